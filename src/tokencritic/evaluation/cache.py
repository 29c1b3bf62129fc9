"""A cache of arrays on disk, stored in chunks of rows under a hash of everything that determines them.

A row depends only on its index and on the hashed facts, not on the number of rows. Therefore a larger evaluation reuses
a smaller one, an interrupted one resumes at its last chunk, and several ranks can fill one folder.
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
    """Return the cache folder: `named`, else $TOKENCRITIC_CACHE, else `token-critic` in the user's cache folder."""
    if named := named or os.environ.get("TOKENCRITIC_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "token-critic"


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def chunk_ranges(count: int) -> list[range]:
    """Split `count` rows into the row ranges of their chunks."""
    return [range(start, min(start + CHUNK_ROWS, count)) for start in range(0, count, CHUNK_ROWS)]


@dataclass(frozen=True)
class Chunks:
    """The first `count` rows of cached arrays, stored in one folder with one .npz file per chunk.

    Each array of a chunk has one entry per row. A chunk is identified by its range of rows, which starts at a multiple
    of `CHUNK_ROWS`. Only the last chunk may be shorter than `CHUNK_ROWS`.
    """

    folder: Path
    count: int

    def __len__(self) -> int:
        return self.count

    @classmethod
    def open(cls, cache: Path, kind: str, facts: Mapping[str, Any], count: int) -> Self:
        """Open the cache folder for these facts and create it if needed.

        kind: the name of the parent folder, such as "features".
        facts: JSON values; their hash names the folder. `facts.json` in the folder records them for people to read.
        """
        key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
        folder = cache / kind / key
        if not (file := folder / "facts.json").is_file():
            write_json(file, facts)
        return cls(folder, count)

    def stream(self, name: str) -> Iterator[Tensor]:
        """Yield one of the arrays chunk by chunk. All chunks must be on disk; one at a time is in memory."""
        for number, rows in enumerate(chunk_ranges(self.count)):
            values = self.read(rows).get(name, np.empty(0))
            if len(values) < len(rows):
                place = f"chunk {number} in {self.folder}"
                raise InputError(f"{place} is missing or damaged; ranks must share one cache; rerun the command")
            yield torch.from_numpy(values)

    def whole(self, name: str) -> Tensor:
        """Return all rows of one of the arrays."""
        return torch.cat(list(self.stream(name)))

    def read(self, rows: range) -> ChunkArrays:
        """Return the arrays of these rows, as far as they are on disk; empty if the file is missing or damaged."""
        return {name: values[: len(rows)] for name, values in read_sealed(self._file(rows)).items()}

    def complete(self, rows: range, make: Callable[[range], ChunkArrays]) -> ChunkArrays:
        """Return the arrays of these rows. `make` computes the rows that are not on disk, which are then written."""
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
    """Return the number of rows in the arrays of a chunk."""
    return len(next(iter(arrays.values()), ()))
