"""Images to token arrays: in parallel, resumable, and the same bytes whatever the workers, ranks and interruptions.

The work is cut into fixed chunks. Each chunk is one file, written under `.chunks` in the folder, whole or not at all.
A run does the chunks of its rank that are not there yet; the rank that then finds all of them joins them.
"""

import dataclasses
import errno
import json
import os
import shutil
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokencritic.data.source import Source, check_corrupt
from tokencritic.data.tokens import (
    CROPS_PER_IMAGE,
    FACTS,
    LABEL_TYPE,
    LABELS,
    MAX_CODEBOOK,
    TOKEN_TYPE,
    TOKENS,
    TokenArrays,
    read_facts,
)
from tokencritic.data.transforms import Preprocess, to_float
from tokencritic.errors import InputError, check_at_least
from tokencritic.files import write_atomically
from tokencritic.progress import Progress
from tokencritic.tokenizers.tokenizer import Tokenizer

try:
    import fcntl
except ImportError:  # not on Windows; there two ranks that end at the same moment are not told apart
    fcntl = None

CHUNKS = ".chunks"
CHUNK_ROWS = 2048


def tokenize(
    source: Source,
    tokenizer: Tokenizer,
    out: str | Path,
    *,
    preprocess: Preprocess,
    crops_per_image: int = 1,
    seed: int = 0,
    batch_size: int = 64,
    workers: int = 4,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device | str = "cpu",
    progress: bool = True,
) -> TokenArrays | None:
    """Write the tokens of every image of the source to the folder `out`; or go on where it stopped.

    crops_per_image: how many rows each image has, each of a crop of its own. seed: of the random crops. workers: threads that
    decode. rank, world_size: chunk i is done by rank i % world_size; all share the folder.
    Rows come in the source's order, first those of all first crops; a corrupt image leaves none. Workers, ranks and
    interruptions do not change the result; another batch_size may, where a tokenizer rounds differently.
    Returns the arrays, or None if other ranks have work left: the last of them joins the chunks.
    """
    check_at_least(1, crops_per_image=crops_per_image, batch_size=batch_size, workers=workers)
    if not 0 <= rank < world_size:
        raise InputError(f"rank is {rank} of world_size {world_size}; it must lie in [0, world_size)")
    job = Job(source, tokenizer, preprocess, crops_per_image, seed, batch_size, torch.device(device))
    out, settings = Path(out), job.settings()
    facts = read_facts(out)
    if facts is not None:
        _check_settings(out, facts, settings)
        return TokenArrays.open(out)
    files = ChunkFiles(out, settings, crops_per_image * job.chunks_per_crop, tokenizer.num_tokens)
    files.prepare(rank)
    mine = range(rank, files.count, world_size)
    missing = [number for number in mine if files.read(number) is None]
    total, left = (sum(len(batch) for number in some for batch in job.batches(number)) for some in (mine, missing))
    with Progress(total, "tokenizing", "images", done=total - left, shown=progress and rank == 0) as shown:
        for number, chunk in _chunks(job, missing, workers, shown):
            files.write(number, chunk)
    return TokenArrays.open(out) if files.join(source.max_corrupt) else None


class Chunk(NamedTuple):
    """tokens: uint16 (rows, n). labels: (rows,). corrupt: name -> reason, of the examples that left no row."""

    tokens: np.ndarray
    labels: np.ndarray
    corrupt: dict[str, str]


@dataclass(frozen=True, eq=False)
class Job:
    """What is to be done, apart from who does it. Chunks are numbered over all crops."""

    source: Source
    tokenizer: Tokenizer
    preprocess: Preprocess
    crops_per_image: int
    seed: int
    batch_size: int
    device: torch.device

    def __post_init__(self) -> None:
        if len(self.source) == 0:
            raise InputError("source holds no image; there is nothing to tokenize")
        wanted = self.tokenizer.image_size, self.tokenizer.channels
        given = self.preprocess.size, self.preprocess.channels
        if given != wanted:
            raise InputError(f"preprocess gives (size, channels) {given}; the tokenizer takes {wanted}")
        if self.tokenizer.codebook_size > MAX_CODEBOOK:
            size = self.tokenizer.codebook_size
            raise InputError(f"codebook_size is {size}; token arrays hold at most {MAX_CODEBOOK}")

    @property
    def chunks_per_crop(self) -> int:
        return -(-len(self.source) // CHUNK_ROWS)

    def batches(self, chunk: int) -> list[range]:
        """The numbers of a chunk's examples in the source, in batches."""
        start = chunk % self.chunks_per_crop * CHUNK_ROWS
        stop = min(start + CHUNK_ROWS, len(self.source))
        return [range(first, min(first + self.batch_size, stop)) for first in range(start, stop, self.batch_size)]

    def settings(self) -> dict[str, Any]:
        """All that decides the result, as it stands in the JSON."""
        return {
            "format": 1,
            "tokenizer_fingerprint": self.tokenizer.fingerprint(),
            "codebook_size": self.tokenizer.codebook_size,
            "grid": list(self.tokenizer.grid),
            "preprocess": dataclasses.asdict(self.preprocess),
            CROPS_PER_IMAGE: self.crops_per_image,
            "seed": self.seed,
            "source": self.source.describe(),
            "class_names": list(self.source.class_names),
        }

    def decode(self, chunk: int, batch: range) -> tuple[Tensor, np.ndarray, dict[str, str]]:
        """Read and crop: uint8 (b, c, h, w), labels (b,), and the corrupt examples, which leave no row. Runs in a worker."""
        source, kept = self.source, list(batch)
        if source.images is not None:
            images = source.images[batch.start : batch.stop]
        else:
            examples = {index: source[index] for index in batch}
            images = [example[0] for example in examples.values() if example is not None]
            kept = [index for index, example in examples.items() if example is not None]
        crop_number = chunk // self.chunks_per_crop
        pixels = self.preprocess.batch(images, kept, seed=self.seed, crop_number=crop_number)
        names = [source.name(index) for index in batch if index not in kept]
        return pixels, source.labels[kept], {name: source.corrupt[name] for name in names}

    @torch.inference_mode()
    def encode(self, pixels: Tensor) -> np.ndarray:
        """uint8 (b, c, h, w) -> uint16 (b, n)."""
        shape = (len(pixels), self.tokenizer.num_tokens)
        if not len(pixels):
            return np.zeros(shape, np.uint16)
        tokens = self.tokenizer.encode(to_float(pixels.to(self.device)))
        if tokens.shape != shape:
            raise InputError(f"tokenizer gives tokens {tuple(tokens.shape)}; its grid promises {shape}")
        values = tokens.cpu().numpy()
        if values.min() < 0 or values.max() >= self.tokenizer.codebook_size:
            size = self.tokenizer.codebook_size
            raise InputError(f"tokenizer gives tokens {values.min()} to {values.max()}; its codebook has {size}")
        return values.astype(np.uint16)


def _chunks(job: Job, numbers: list[int], workers: int, progress: Progress) -> Iterator[tuple[int, Chunk]]:
    """The chunks of these numbers, in order. Workers decode ahead, across chunks, while this thread encodes."""
    batches = ((number, batch) for number in numbers for batch in job.batches(number))
    waiting: deque[Future[tuple[Tensor, np.ndarray, dict[str, str]]]] = deque()
    pool = ThreadPoolExecutor(workers)
    try:
        for number in numbers:
            pieces = []
            for batch in job.batches(number):
                wanted = workers + 2 - len(waiting)
                waiting.extend(pool.submit(job.decode, *ahead) for ahead in islice(batches, wanted))
                pixels, labels, corrupt = waiting.popleft().result()
                pieces.append(Chunk(job.encode(pixels), labels, corrupt))
                progress.advance(len(batch))
            tokens, labels = (np.concatenate(arrays) for arrays in list(zip(*pieces, strict=True))[:2])
            yield number, Chunk(tokens, labels, {name: why for piece in pieces for name, why in piece.corrupt.items()})
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class ChunkFiles:
    """The chunks of one folder `out`. settings: all that decides their content. count: how many there will be."""

    out: Path
    settings: dict[str, Any]
    count: int
    num_tokens: int

    def prepare(self, rank: int) -> None:
        """Make the folder; other settings in what earlier runs and other ranks left there are an error."""
        folder = self.out / CHUNKS
        with _disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for file in sorted(folder.glob("settings-*.json")):
                _check_settings(self.out, json.loads(file.read_text(encoding="utf-8")), self.settings)
        # One file per rank: no two machines ever write the same one.
        _write(folder / f"settings-{rank:04}.json", lambda opened: opened.write(_as_json(self.settings)))

    def write(self, number: int, chunk: Chunk) -> None:
        """One file, whole or not at all."""
        arrays = {
            "tokens": chunk.tokens.astype(TOKEN_TYPE),
            "labels": chunk.labels.astype(LABEL_TYPE),
            "corrupt": np.frombuffer(_as_json(chunk.corrupt), np.uint8),
        }
        _write(self._file(number), lambda opened: np.savez(opened, **arrays))

    def read(self, number: int) -> Chunk | None:
        """What `write` wrote; None if it is not there, or not whole, so that it is done again."""
        try:
            with self._file(number).open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
                chunk = Chunk(arrays["tokens"], arrays["labels"], json.loads(arrays["corrupt"].tobytes()))
        except (FileNotFoundError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
            return None
        fits = chunk.tokens.dtype == TOKEN_TYPE and chunk.tokens.shape == (len(chunk.labels), self.num_tokens)
        return chunk if fits else None

    def join(self, max_corrupt: int) -> bool:
        """Write the final files and remove the chunks. False if some are missing: another rank has work left."""
        try:
            lock = (self.out / CHUNKS / "lock").open("ab")
        except FileNotFoundError:  # another rank has just joined and removed them
            return read_facts(self.out) is not None
        with lock:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            if read_facts(self.out) is not None:
                return True
            if not all(self._file(number).is_file() for number in range(self.count)):
                return False
            self._join(max_corrupt)
        shutil.rmtree(self.out / CHUNKS, ignore_errors=True)
        return True

    def _join(self, max_corrupt: int) -> None:
        labels, corrupt = [], {}
        for chunk in self._read_all():
            labels.append(chunk.labels)
            corrupt |= chunk.corrupt
        check_corrupt("source", corrupt, max_corrupt)
        rows = sum(map(len, labels))
        if rows == 0:
            raise InputError("source holds no image that can be decoded; there is nothing to write")

        def write_tokens(opened: BinaryIO) -> None:
            """Chunk by chunk: all of them may not fit into memory together."""
            descr = np.lib.format.dtype_to_descr(TOKEN_TYPE)
            header = {"descr": descr, "fortran_order": False, "shape": (rows, self.num_tokens)}
            np.lib.format.write_array_header_1_0(opened, header)
            for chunk in self._read_all():
                opened.write(chunk.tokens.tobytes())

        facts = self.settings | {"rows": rows, "corrupt": dict(sorted(corrupt.items()))}
        _write(self.out / TOKENS, write_tokens)
        _write(self.out / LABELS, lambda opened: np.save(opened, np.concatenate(labels)))
        # Last: it says that the others are whole.
        _write(self.out / FACTS, lambda opened: opened.write(_as_json(facts)))

    def _read_all(self) -> Iterator[Chunk]:
        for number in range(self.count):
            chunk = self.read(number)
            if chunk is None:
                raise InputError(f"{self._file(number)} is damaged; run the same command again to make it anew")
            yield chunk

    def _file(self, number: int) -> Path:
        return self.out / CHUNKS / f"{number:06}.npz"


def _check_settings(out: Path, there: dict[str, Any], now: dict[str, Any]) -> None:
    """Tokens made with other settings are not mixed with these."""
    now = json.loads(_as_json(now))  # tuples become lists, as in the file
    other = [name for name in now if there.get(name) != now[name]]
    if other:
        values = f"{json.dumps(there.get(other[0])):.200} there, {json.dumps(now[other[0]]):.200} now"
        raise InputError(f"{out} holds tokens made with another {', '.join(other)} ({values}); choose another folder")


def _as_json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def _write(file: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write atomically, and surely on the disk before the file gets its name."""

    def write_to(path: Path) -> None:
        with path.open("wb") as opened:
            write(opened)
            opened.flush()
            os.fsync(opened.fileno())

    with _disk_errors(file):
        write_atomically(file, write_to)


@contextmanager
def _disk_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "free some space and run the same command again; what is done is kept"
            raise InputError(f"{file} cannot be written, the disk is full; {advice}") from error
        raise InputError(f"{file} cannot be written: {error.strerror or error}") from error
