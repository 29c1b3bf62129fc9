"""Images to token arrays: in parallel, resumable, and the same bytes whatever the workers, ranks and interruptions.

The work is cut into fixed chunks. Each chunk is one file, written under `.chunks` in the folder, whole or not at all.
A run does the chunks of its rank that are not there yet; the rank that then finds all of them joins them.
"""

import dataclasses
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from tokencritic.data.npz import arrays_of
from tokencritic.data.source import Source, check_corrupt
from tokencritic.data.tokens import CROPS, FACTS, LABEL_TYPE, LABELS, TOKEN_TYPE, TOKENS, TokenArrays, read_facts
from tokencritic.data.transforms import Preprocess, to_float
from tokencritic.errors import InputError, check_at_least, check_range
from tokencritic.files import write_atomically
from tokencritic.progress import Progress
from tokencritic.tokenizers.tokenizer import Tokenizer

try:
    import fcntl
except ImportError:  # not on Windows; there two ranks that end at the same moment are not told apart
    fcntl = None

CHUNKS = ".chunks"
CHUNK_ROWS = 2048

# Tokens uint16 (rows, n), labels (rows,), and the examples that left no row: name -> reason.
Chunk = tuple[np.ndarray, np.ndarray, dict[str, str]]


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
    progress: bool = True,
) -> TokenArrays | None:
    """Write the tokens of every image of the source to the folder `out`, or resume an interrupted run.

    crops_per_image: how many rows each image has, each of a crop of its own. seed: of the random crops. workers: threads that
    decode. rank, world_size: chunk i is done by rank i % world_size; all share the folder.
    Rows come in the source's order, first those of all first crops; a corrupt image leaves none. Workers, ranks and
    interruptions do not change the result; another batch_size may, where a tokenizer rounds differently.
    Returns the arrays, or None if other ranks have work left: the last of them joins the chunks.
    """
    check_at_least(1, crops_per_image=crops_per_image, batch_size=batch_size, workers=workers)
    if not 0 <= rank < world_size:
        raise InputError(f"rank is {rank} of world_size {world_size}; it must lie in [0, world_size)")
    job = Job(source, tokenizer, Path(out), preprocess, crops_per_image, seed, batch_size)
    if job.prepare(rank):
        mine = range(rank, crops_per_image * job.chunks_per_crop, world_size)
        missing = [number for number in mine if job.read(number) is None]
        total, left = (sum(len(batch) for number in some for batch in job.batches(number)) for some in (mine, missing))
        with Progress(total, "tokenizing", "images", done=total - left, shown=progress and rank == 0) as shown:
            job.make(missing, workers, shown)
        if not job.join():
            return None
    return TokenArrays.open(out)


@dataclass(frozen=True, eq=False)
class Job:
    """One folder of tokens to be made. Its chunks are numbered over all crops."""

    source: Source
    tokenizer: Tokenizer
    out: Path
    preprocess: Preprocess
    crops_per_image: int
    seed: int
    batch_size: int

    def __post_init__(self) -> None:
        if len(self.source) == 0:
            raise InputError("source holds no image; there is nothing to tokenize")
        wanted = self.tokenizer.image_size, self.tokenizer.channels
        given = self.preprocess.size, self.preprocess.channels
        if given != wanted:
            raise InputError(f"preprocess gives (size, channels) {given}; the tokenizer takes {wanted}")
        if (size := self.tokenizer.codebook_size) > 2**16:
            raise InputError(f"codebook_size is {size}; token arrays hold at most {2**16}")

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All that decides the result, as it stands in the JSON."""
        return {
            "format": 1,
            "tokenizer_fingerprint": self.tokenizer.fingerprint(),
            "codebook_size": self.tokenizer.codebook_size,
            "grid": list(self.tokenizer.grid),
            "preprocess": dataclasses.asdict(self.preprocess),
            CROPS: self.crops_per_image,
            "seed": self.seed,
            "source": self.source.describe(),
            "class_names": list(self.source.class_names),
        }

    @property
    def chunks_per_crop(self) -> int:
        return -(-len(self.source) // CHUNK_ROWS)

    def prepare(self, rank: int) -> bool:
        """Whether there is work left. Raises InputError if earlier runs or other ranks left tokens of other settings."""
        finished = read_facts(self.out)
        files = sorted((self.out / CHUNKS).glob("settings-*.json"))
        for there in [finished] if finished else [json.loads(file.read_text(encoding="utf-8")) for file in files]:
            now = json.loads(_as_json(self.settings))  # tuples become lists, as in the file
            if other := [name for name in now if there.get(name) != now[name]]:
                values = f"{json.dumps(there.get(other[0])):.200} there, {json.dumps(now[other[0]]):.200} now"
                different = f"{self.out} holds tokens made with another {', '.join(other)} ({values})"
                raise InputError(f"{different}; choose another folder")
        if finished:
            return False
        # One file per rank: no two machines ever write the same one.
        _write(self.out / CHUNKS / f"settings-{rank:04}.json", lambda opened: opened.write(_as_json(self.settings)))
        return True

    def batches(self, number: int) -> list[range]:
        """The numbers of a chunk's examples in the source, in batches."""
        start = number % self.chunks_per_crop * CHUNK_ROWS
        stop = min(start + CHUNK_ROWS, len(self.source))
        return [range(first, min(first + self.batch_size, stop)) for first in range(start, stop, self.batch_size)]

    def make(self, numbers: list[int], workers: int, progress: Progress) -> None:
        """Write the chunks of these numbers. Workers decode ahead, across chunks, while this thread encodes."""
        batches = ((number, batch) for number in numbers for batch in self.batches(number))
        waiting: deque[Future[tuple[Tensor, np.ndarray, dict[str, str]]]] = deque()
        pool = ThreadPoolExecutor(workers)
        try:
            for number in numbers:
                tokens, labels, corrupt = [], [], {}
                for batch in self.batches(number):
                    ahead = islice(batches, workers + 2 - len(waiting))
                    waiting.extend(pool.submit(self._decode, *one) for one in ahead)
                    pixels, some_labels, some_corrupt = waiting.popleft().result()
                    tokens.append(self._encode(pixels))
                    labels.append(some_labels)
                    corrupt |= some_corrupt
                    progress.advance(len(batch))
                arrays = {
                    "tokens": np.concatenate(tokens).astype(TOKEN_TYPE),
                    "labels": np.concatenate(labels).astype(LABEL_TYPE),
                    "corrupt": np.frombuffer(_as_json(corrupt), np.uint8),
                }
                _write(self._file(number), lambda opened, arrays=arrays: np.savez(opened, **arrays))
        finally:
            pool.shutdown(cancel_futures=True)

    def _decode(self, number: int, batch: range) -> tuple[Tensor, np.ndarray, dict[str, str]]:
        """Read and crop: uint8 (b, c, h, w), labels (b,), and the corrupt examples, which leave no row. Runs in a worker."""
        source, kept = self.source, list(batch)
        if source.images is not None:
            images = source.images[batch.start : batch.stop]
        else:
            examples = {index: example for index in batch if (example := source[index]) is not None}
            images, kept = [image for image, _ in examples.values()], list(examples)
        crop_number = number // self.chunks_per_crop
        pixels = self.preprocess.batch(images, kept, seed=self.seed, crop_number=crop_number)
        names = [source.name(index) for index in batch if index not in kept]
        return pixels, source.labels[kept], {name: source.corrupt[name] for name in names}

    @torch.inference_mode()
    def _encode(self, pixels: Tensor) -> np.ndarray:
        """uint8 (b, c, h, w) -> int64 (b, n)."""
        shape = (len(pixels), self.tokenizer.num_tokens)
        tokens = self.tokenizer.encode(to_float(pixels.to(self.tokenizer.device)))
        if tokens.shape != shape:
            raise InputError(f"tokenizer gives tokens {tuple(tokens.shape)}; its grid promises {shape}")
        check_range("the tokenizer's output", tokens, self.tokenizer.codebook_size)
        return tokens.cpu().numpy()

    def read(self, number: int) -> Chunk | None:
        """The chunk that `make` wrote; None if its file is missing or damaged, so that it is made again."""
        try:
            with arrays_of(self._file(number)) as arrays:
                tokens, labels, corrupt = arrays["tokens"], arrays["labels"], json.loads(arrays["corrupt"].tobytes())
        except (InputError, KeyError):
            return None
        fits = tokens.dtype == TOKEN_TYPE and tokens.shape == (len(labels), self.tokenizer.num_tokens)
        return (tokens, labels, corrupt) if fits else None

    def join(self) -> bool:
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
            files = [self._file(number) for number in range(self.crops_per_image * self.chunks_per_crop)]
            if not all(file.is_file() for file in files):
                return False
            self._join(len(files))
        shutil.rmtree(self.out / CHUNKS, ignore_errors=True)
        return True

    def _join(self, count: int) -> None:
        def chunks() -> Iterator[Chunk]:
            """One by one: all of them may not fit into memory together."""
            for number in range(count):
                chunk = self.read(number)
                if chunk is None:
                    raise InputError(f"{self._file(number)} is damaged; run the same command again to make it anew")
                yield chunk

        labels, corrupt = [], {}
        for _, some_labels, some_corrupt in chunks():
            labels.append(some_labels)
            corrupt |= some_corrupt
        check_corrupt("source", corrupt, self.source.max_corrupt)
        rows = sum(map(len, labels))
        if rows == 0:
            raise InputError("source holds no image that can be decoded; there is nothing to write")

        def write_tokens(opened: BinaryIO) -> None:
            descr, shape = np.lib.format.dtype_to_descr(TOKEN_TYPE), (rows, self.tokenizer.num_tokens)
            header = {"descr": descr, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(opened, header)
            for tokens, _, _ in chunks():
                opened.write(tokens.tobytes())

        facts = self.settings | {"rows": rows, "corrupt": dict(sorted(corrupt.items()))}
        _write(self.out / TOKENS, write_tokens)
        _write(self.out / LABELS, lambda opened: np.save(opened, np.concatenate(labels)))
        # Last: it says that the others are whole.
        _write(self.out / FACTS, lambda opened: opened.write(_as_json(facts)))

    def _file(self, number: int) -> Path:
        return self.out / CHUNKS / f"{number:06}.npz"


def _as_json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def _write(file: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write atomically, and surely on the disk before the file gets its name."""

    def write_to(path: Path) -> None:
        with path.open("wb") as opened:
            write(opened)
            opened.flush()
            os.fsync(opened.fileno())

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, write_to)
    except OSError as error:
        advice = "the work done is kept; rerun the command to resume"
        raise InputError(f"{file} cannot be written: {error.strerror or error}; {advice}") from error
