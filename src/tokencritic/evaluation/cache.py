"""What was computed before: arrays on disk, in chunks of rows, under a hash of all that decides them.

A row depends on its number and on those facts alone, not on how many rows there are. So a larger evaluation reuses a smaller
one, an interrupted one resumes at its last chunk, and ranks fill one folder together.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from tokencritic.data.npz import read_sealed, sealed
from tokencritic.errors import InputError
from tokencritic.files import write_atomically, write_json

CHUNK_ROWS = 256

ChunkArrays = dict[str, np.ndarray]


def cache_folder(named: str | None = None) -> Path:
    """The named folder, else that of the variable TOKENCRITIC_CACHE, else `token-critic` in the user's cache folder."""
    if named := named or os.environ.get("TOKENCRITIC_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "token-critic"


def file_digest(file: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def chunk_ranges(count: int) -> list[range]:
    """The rows of each chunk of `count` rows."""
    return [range(start, min(start + CHUNK_ROWS, count)) for start in range(0, count, CHUNK_ROWS)]


@dataclass(frozen=True)
class Chunks:
    """The first `count` rows in the chunk files of one folder: an .npz each, whose arrays have one entry per row.

    Chunks are named by the range of their rows, which begins at a multiple of `CHUNK_ROWS`; only the last one is shorter.
    """

    folder: Path
    count: int

    def __len__(self) -> int:
        return self.count

    @classmethod
    def open(cls, cache: Path, kind: str, facts: Mapping[str, Any], count: int) -> Self:
        """The folder of what has these facts, made if it does not exist, with the facts in it for people to read."""
        key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
        folder = cache / kind / key
        if not (file := folder / "facts.json").is_file():
            write_json(file, facts)
        return cls(folder, count)

    def stream(self, name: str) -> Iterator[Tensor]:
        """One of the arrays, chunk by chunk, all of which must be on disk: memory for one of them at a time."""
        for number, rows in enumerate(chunk_ranges(self.count)):
            values = self.read(rows).get(name, np.empty(0))
            if len(values) < len(rows):
                place = f"chunk {number} in {self.folder}"
                raise InputError(f"{place} is missing or damaged; ranks must share one cache; rerun the command")
            yield torch.from_numpy(values)

    def whole(self, name: str) -> Tensor:
        """All rows of one of the arrays, in memory."""
        return torch.cat(list(self.stream(name)))

    def read(self, rows: range) -> ChunkArrays:
        """The arrays of these rows, as far as they are on disk; none if the file does not exist or is damaged."""
        return {name: values[: len(rows)] for name, values in read_sealed(self._file(rows)).items()}

    def complete(self, rows: range, make: Callable[[range], ChunkArrays]) -> ChunkArrays:
        """The arrays of these rows: from disk, and those that are missing made now and written."""
        arrays = self.read(rows)
        if missing := rows[num_rows(arrays) :]:
            made = make(missing)
            arrays = {name: np.concatenate([arrays[name], made[name]]) for name in made} if arrays else made
            content = sealed(arrays)
            write_atomically(self._file(rows), lambda path: path.write_bytes(content))
        return arrays

    def _file(self, rows: range) -> Path:
        return self.folder / f"{rows.start // CHUNK_ROWS:06}.npz"


def num_rows(arrays: ChunkArrays) -> int:
    """How many rows a chunk has on disk."""
    return len(next(iter(arrays.values()), ()))
