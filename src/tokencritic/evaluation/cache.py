"""What was computed before: rows of arrays on disk, in chunks, under a hash of all that decides them.

A row depends on its number and on those facts alone, not on how many rows there are. So a larger evaluation goes on from a
smaller one, an interrupted one from its last chunk, and ranks fill one folder together.
"""

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from tokencritic.files import write_atomically

CHUNK_ROWS = 256
FACTS = "facts.json"
_DIGEST_BYTES = 32

Rows = dict[str, np.ndarray]


def default_cache() -> Path:
    """The folder that the variable TOKENCRITIC_CACHE names, else `token-critic` in the user's cache folder."""
    if named := os.environ.get("TOKENCRITIC_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "token-critic"


def key_of(facts: Mapping[str, Any]) -> str:
    """A name for what has these facts: 128 bits of a hash of their JSON."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def chunk_range(chunk: int, count: int) -> range:
    """The rows of a chunk, where there are `count` in all."""
    return range(chunk * CHUNK_ROWS, min((chunk + 1) * CHUNK_ROWS, count))


def num_chunks(count: int) -> int:
    """How many chunks hold `count` rows."""
    return -(-count // CHUNK_ROWS)


@dataclass(frozen=True)
class Chunks:
    """The chunk files of one folder: an .npz each, whose arrays have one entry per row."""

    folder: Path

    @classmethod
    def open(cls, cache: Path, kind: str, facts: Mapping[str, Any]) -> Self:
        """The folder of what has these facts, made if it is not there. The facts lie in it, for people to read."""
        folder = cache / kind / key_of(facts)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / FACTS).is_file():
            text = json.dumps(facts, indent=2, sort_keys=True) + "\n"
            write_atomically(folder / FACTS, lambda path: path.write_text(text, encoding="utf-8"))
        return cls(folder)

    def read(self, chunk: int) -> Rows | None:
        """What `write` wrote. None if it is not there or not whole, so that it is made again."""
        try:
            content = self._file(chunk).read_bytes()
        except FileNotFoundError:
            return None
        content, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
        if hashlib.sha256(content).digest() != digest:
            return None
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}

    def write(self, chunk: int, rows: Rows) -> None:
        """One file, whole or not at all, with the SHA-256 of its bytes after them; NumPy reads such an .npz all the same."""
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **rows)  # pyright: ignore[reportArgumentType]
        content = buffer.getvalue()
        whole = content + hashlib.sha256(content).digest()
        write_atomically(self._file(chunk), lambda path: path.write_bytes(whole))

    def extend(self, chunk: int, before: Rows | None, more: Rows) -> Rows:
        """Write a chunk that has `more` rows after those it had; returns all of them."""
        rows = more if before is None else {name: np.concatenate([before[name], more[name]]) for name in more}
        self.write(chunk, rows)
        return rows

    def _file(self, chunk: int) -> Path:
        return self.folder / f"{chunk:06}.npz"


def count_rows(rows: Rows | None) -> int:
    """How many rows a chunk has; 0 if it is not there."""
    return 0 if rows is None else len(next(iter(rows.values())))
