"""Tokenizing images to token arrays: parallel and resumable. Workers, ranks and interruptions do not change the result.

The work is split into fixed chunks. Each chunk is one file in the sub-folder `.chunks`, written atomically. A rank
makes those of its chunks that do not exist yet. When all ranks have finished, the first rank joins the chunks.
"""

import dataclasses
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from tokencritic.contracts import ImageTokenizer
from tokencritic.data.feeding import read_ahead
from tokencritic.data.npz import read_sealed, sealed
from tokencritic.data.source import Source, check_corrupt
from tokencritic.data.tokens import CROPS, FACTS, LABEL_TYPE, LABELS, TOKEN_TYPE, TOKENS, TokenArrays, read_facts
from tokencritic.data.transforms import Preprocess, to_float
from tokencritic.distribution import ALONE, Ranks, send
from tokencritic.errors import InputError, check_at_least, check_range, check_seed
from tokencritic.files import read_json, write_atomically
from tokencritic.progress import Progress

CHUNKS = ".chunks"
CHUNK_ROWS = 2048


@dataclass(frozen=True, eq=False)
class TokenizeJob:
    """A job that tokenizes every image of a source and writes token arrays to the folder `out`.

    crops_per_image: the number of crops of each image. Each crop is one row.
    seed: determines the random crops and flips.
    workers: processes that decode image files, see `read_ahead`. Images in an array are read in this process.

    Rows are in the order of the source: the first crops of all images, then the second crops, and so on. Corrupt images
    have no rows. Workers, ranks and interruptions do not change the result. The batch size may change it through
    rounding.
    """

    source: Source
    tokenizer: ImageTokenizer
    out: Path
    preprocess: Preprocess
    crops_per_image: int = 1
    seed: int = 0
    batch_size: int = 64
    workers: int = 0

    def __post_init__(self) -> None:
        check_at_least(1, crops_per_image=self.crops_per_image, batch_size=self.batch_size)
        check_at_least(0, workers=self.workers)
        check_seed(self.seed)
        if (size := self.tokenizer.codebook_size) > 2**16:
            raise InputError(f"codebook_size is {size}; token arrays hold at most {2**16}")

    def run(
        self, ranks: Ranks = ALONE, progress: bool = True, on_start: Callable[[], object] = lambda: None
    ) -> TokenArrays:
        """Write the tokens, or resume an interrupted run.

        ranks: the processes that share the work and the folder.
        progress: whether to show a progress bar.
        on_start: called once the folder is checked, if work is left.
        """
        with ExitStack() as stack:
            ranks.from_first(lambda: stack.enter_context(self._claimed()))
            if ranks.from_first(self._prepare):
                on_start()
                mine = ranks.share(len(self.chunks))
                missing = [number for number in mine if not read_sealed(self._file(number))]
                total, left = (sum(len(self.chunks[number][1]) for number in some) for some in (mine, missing))
                shown = progress and ranks.first
                with Progress(total, "tokenizing", "images", done=total - left, shown=shown) as progressing:
                    self._make(missing, progressing)
                ranks.wait()
                ranks.from_first(self._join)
        return TokenArrays.open(self.out)

    @cached_property
    def chunks(self) -> list[tuple[int, range]]:
        """The crop number and the range of examples of each chunk."""
        numbers = range(len(self.source))
        parts = [numbers[start : start + CHUNK_ROWS] for start in numbers[::CHUNK_ROWS]]
        return [(crop, part) for crop in range(self.crops_per_image) for part in parts]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Everything that determines the result, as stored in tokens.json."""
        return {
            "format": 1,
            "tokenizer_fingerprint": self.tokenizer.fingerprint(),
            "codebook_size": self.tokenizer.codebook_size,
            "grid": list(self.tokenizer.layout),
            "preprocess": dataclasses.asdict(self.preprocess),
            CROPS: self.crops_per_image,
            "seed": self.seed,
            "source": self.source.describe(),
            "class_names": list(self.source.class_names),
        }

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """Return a context that locks the folder for this run. Raises InputError if another run has locked it."""
        chunks, new = self.out / CHUNKS, not self.out.exists()
        lock = chunks / ".lock"
        with ExitStack() as stack:
            try:
                chunks.mkdir(parents=True, exist_ok=True)
                fcntl.flock(stack.enter_context(lock.open("w")), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, FileNotFoundError) as error:  # FileNotFoundError: the other run has just ended
                expected = "wait for it, or choose another folder"
                raise InputError(f"{self.out} is in use by another run; {expected}") from error
            except OSError as error:
                raise InputError(f"{chunks} cannot be written: {error.strerror or error}") from error
            try:
                yield
            finally:  # chunks of an interrupted run stay
                with suppress(OSError):
                    if {path.name for path in chunks.iterdir()} <= {lock.name}:
                        shutil.rmtree(chunks)
                    if new:
                        self.out.rmdir()

    def _prepare(self) -> bool:
        """Return whether work is left. Raises InputError if the folder has tokens with other settings."""
        finished, file = read_facts(self.out), self.out / CHUNKS / "settings.json"
        there = finished or (read_json(file) if file.is_file() else None)
        if there is None:
            _write(file, lambda opened: opened.write(_as_json(self.settings)))
            return True
        now = json.loads(_as_json(self.settings))  # converts tuples to lists, as in the file
        if other := [name for name in now if there.get(name) != now[name]]:
            values = f"{json.dumps(there.get(other[0])):.200}, expected {json.dumps(now[other[0]]):.200}"
            different = f"{self.out} holds tokens with different {', '.join(other)} ({values})"
            raise InputError(f"{different}; choose another folder")
        return finished is None

    def _batches(self, number: int) -> list[range]:
        examples = self.chunks[number][1]
        return [examples[start : start + self.batch_size] for start in range(0, len(examples), self.batch_size)]

    def _make(self, numbers: list[int], progress: Progress) -> None:
        """Make and write the chunks with these numbers. Workers decode ahead while this process encodes."""
        reader = BatchReader(self.source, self.preprocess, self.seed)
        calls = ((self.chunks[number][0], batch) for number in numbers for batch in self._batches(number))
        images = sum(len(self.chunks[number][1]) for number in numbers)
        workers = self.workers if self.source.images is None else 0
        with read_ahead(reader, calls, images, workers, self.tokenizer.device) as read:
            for number in numbers:
                tokens, labels, corrupt = [], [], {}
                for batch in self._batches(number):
                    pixels, some_labels, some_corrupt = next(read)
                    self.source.add_corrupt(some_corrupt)
                    tokens.append(self._encode(pixels))
                    labels.append(some_labels)
                    corrupt |= some_corrupt
                    progress.advance(len(batch))
                arrays = {
                    "tokens": np.concatenate(tokens).astype(TOKEN_TYPE),
                    "labels": np.concatenate(labels).astype(LABEL_TYPE),
                    "corrupt": np.frombuffer(_as_json(corrupt), np.uint8),
                }
                _write(self._file(number), lambda opened, arrays=arrays: opened.write(sealed(arrays)))

    @torch.inference_mode()
    def _encode(self, pixels: Tensor) -> np.ndarray:
        """Tokenize a batch: uint8 (b, c, h, w) -> int64 (b, n)."""
        shape = (len(pixels), self.tokenizer.num_tokens)
        tokens = self.tokenizer.encode(to_float(send(pixels, self.tokenizer.device)))
        if tokens.shape != shape:
            raise InputError(f"tokenizer gives tokens {tuple(tokens.shape)}; expected {shape}")
        check_range("the tokenizer's output", tokens, self.tokenizer.codebook_size)
        return tokens.cpu().numpy()

    def _join(self) -> None:
        """Write the final files and remove the chunks."""
        labels, corrupt = [], {}

        def write_tokens(opened: BinaryIO) -> None:
            """Write chunk by chunk, because all tokens may not fit into memory.

            The header is rewritten at the end. NumPy pads it, so that any number of rows fits.
            """
            header = {"descr": np.lib.format.dtype_to_descr(TOKEN_TYPE), "fortran_order": False}
            np.lib.format.write_array_header_1_0(opened, header | {"shape": (0, self.tokenizer.num_tokens)})
            for number in range(len(self.chunks)):
                chunk = read_sealed(self._file(number))
                if not chunk:
                    raise InputError(f"{self._file(number)} is damaged; rerun the command to make it again")
                opened.write(chunk["tokens"].tobytes())
                labels.append(chunk["labels"])
                corrupt.update(json.loads(chunk["corrupt"].tobytes()))
            opened.seek(0)
            shape = (sum(map(len, labels)), self.tokenizer.num_tokens)
            np.lib.format.write_array_header_1_0(opened, header | {"shape": shape})
            check_corrupt("source", corrupt, self.source.max_corrupt)
            if shape[0] == 0:
                raise InputError("source holds no image that can be decoded; expected at least one")

        _write(self.out / TOKENS, write_tokens)
        _write(self.out / LABELS, lambda opened: np.save(opened, np.concatenate(labels)))
        facts = self.settings | {"rows": sum(map(len, labels)), "corrupt": dict(sorted(corrupt.items()))}
        # Written last: it marks the other files as complete.
        _write(self.out / FACTS, lambda opened: opened.write(_as_json(facts)))
        shutil.rmtree(self.out / CHUNKS, ignore_errors=True)

    def _file(self, number: int) -> Path:
        return self.out / CHUNKS / f"{number:06}.npz"


@dataclass(frozen=True)
class BatchReader:
    """A function that reads and preprocesses a batch of consecutive examples. Arguments are those of `TokenizeJob`."""

    source: Source
    preprocess: Preprocess
    seed: int

    def __call__(self, crop_number: int, batch: range) -> tuple[Tensor, np.ndarray, dict[str, str]]:
        """Return images uint8 (b, c, h, w), labels (b,), and the reasons of corrupt examples by name.

        Corrupt examples have no row.
        """
        source, kept = self.source, list(batch)
        if source.images is not None:
            images = source.images[batch.start : batch.stop]
        else:
            examples = {index: example for index in batch if (example := source[index]) is not None}
            images, kept = [image for image, _ in examples.values()], list(examples)
        pixels = self.preprocess.batch(images, kept, seed=self.seed, crop_number=crop_number)
        names = [source.name(index) for index in batch if index not in kept]
        return pixels, source.labels[kept], {name: source.corrupt[name] for name in names}


def _as_json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def _write(file: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file atomically, and flush it to the disk before it gets its name."""

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
