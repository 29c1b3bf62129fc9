"""The chunks of token arrays in the making: one file each, and how they are joined."""

import errno
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np

from tokencritic.data.source import check_corrupt
from tokencritic.data.tokens import FACTS, LABEL_TYPE, LABELS, TOKEN_TYPE, TOKENS, read_facts
from tokencritic.errors import InputError
from tokencritic.files import write_atomically

try:
    import fcntl
except ImportError:  # not on Windows; there two ranks that end at the same moment are not told apart
    fcntl = None

CHUNKS = ".chunks"


class Chunk(NamedTuple):
    """tokens: uint16 (rows, n). labels: (rows,). corrupt: name -> reason, of the examples that left no row."""

    tokens: np.ndarray
    labels: np.ndarray
    corrupt: dict[str, str]

    @classmethod
    def joined(cls, pieces: Sequence[Self]) -> Self:
        """One chunk of all the rows, in order."""
        corrupt = {name: reason for piece in pieces for name, reason in piece.corrupt.items()}
        tokens, labels = (np.concatenate(arrays) for arrays in list(zip(*pieces, strict=True))[:2])
        return cls(tokens, labels, corrupt)


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
        with _clear_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for file in sorted(folder.glob("settings-*.json")):
                check_settings(self.out, json.loads(file.read_text(encoding="utf-8")), self.settings)
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


def check_settings(out: Path, there: dict[str, Any], now: dict[str, Any]) -> None:
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

    with _clear_errors(file):
        write_atomically(file, write_to)


@contextmanager
def _clear_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "free some space and run the same command again; what is done is kept"
            raise InputError(f"{file} cannot be written, the disk is full; {advice}") from error
        raise InputError(f"{file} cannot be written: {error.strerror or error}") from error
