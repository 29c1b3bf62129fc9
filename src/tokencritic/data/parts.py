"""The parts of token arrays in the making: one file per chunk, and how they are joined."""

import errno
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np

from tokencritic.data.folder import check_corrupt
from tokencritic.data.tokens import FACTS, LABEL_TYPE, LABELS, TOKEN_TYPE, TOKENS, read_facts
from tokencritic.errors import InputError
from tokencritic.files import write_atomically

try:
    import fcntl
except ImportError:  # not on Windows; there two ranks that end at the same moment are not told apart
    fcntl = None

PARTS = ".parts"
_LOCK = "lock"


class Part(NamedTuple):
    """tokens: uint16 (rows, n). labels: (rows,). corrupt: name -> reason, of the examples that left no row."""

    tokens: np.ndarray
    labels: np.ndarray
    corrupt: dict[str, str]


@dataclass(frozen=True)
class Parts:
    """The part files of one folder `out`. settings: all that decides their content."""

    out: Path
    settings: dict[str, Any]
    count: int
    num_tokens: int

    @classmethod
    def prepare(cls, out: Path, settings: dict[str, Any], count: int, num_tokens: int, rank: int) -> Self:
        """Make the folder, or find what earlier runs and other ranks with the same settings left there."""
        folder = out / PARTS
        with _clear_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for file in sorted(folder.glob("settings-*.json")):
                check_settings(out, json.loads(file.read_text(encoding="utf-8")), settings)
        # One file per rank: no two machines ever write the same one.
        _write(folder / f"settings-{rank:04}.json", lambda opened: opened.write(_as_json(settings)))
        return cls(out, settings, count, num_tokens)

    def write(self, chunk: int, part: Part) -> None:
        """One file, whole or not at all."""
        arrays = {
            "tokens": part.tokens.astype(TOKEN_TYPE),
            "labels": part.labels.astype(LABEL_TYPE),
            "corrupt": np.frombuffer(_as_json(part.corrupt), np.uint8),
        }
        _write(self._file(chunk), lambda opened: np.savez(opened, **arrays))

    def read(self, chunk: int) -> Part | None:
        """What `write` wrote; None if it is not there, or not whole, so that it is done again."""
        try:
            with self._file(chunk).open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
                corrupt = json.loads(arrays["corrupt"].tobytes())
                part = Part(arrays["tokens"], arrays["labels"], corrupt)
        except (FileNotFoundError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
            return None
        fits = part.tokens.dtype == TOKEN_TYPE and part.tokens.shape == (len(part.labels), self.num_tokens)
        return part if fits else None

    def join(self, max_corrupt: int) -> bool:
        """Write the final files and remove the parts. False if some are missing: another rank has work left."""
        try:
            lock = (self.out / PARTS / _LOCK).open("ab")
        except FileNotFoundError:  # another rank has just joined and removed them
            return read_facts(self.out) is not None
        with lock:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            if read_facts(self.out) is not None:
                return True
            if not all(self._file(chunk).is_file() for chunk in range(self.count)):
                return False
            self._join(max_corrupt)
        shutil.rmtree(self.out / PARTS, ignore_errors=True)
        return True

    def _join(self, max_corrupt: int) -> None:
        labels, corrupt = [], {}
        for part in self._read_all():
            labels.append(part.labels)
            corrupt |= part.corrupt
        check_corrupt("source", corrupt, max_corrupt)
        rows = sum(map(len, labels))
        if rows == 0:
            raise InputError("source holds no image that can be decoded; there is nothing to write")

        def write_tokens(opened: BinaryIO) -> None:
            _write_header(opened, TOKEN_TYPE, (rows, self.num_tokens))
            for part in self._read_all():
                opened.write(part.tokens.tobytes())

        def write_labels(opened: BinaryIO) -> None:
            _write_header(opened, LABEL_TYPE, (rows,))
            opened.write(np.concatenate(labels).tobytes())

        facts = self.settings | {"rows": rows, "corrupt": dict(sorted(corrupt.items()))}
        _write(self.out / TOKENS, write_tokens)
        _write(self.out / LABELS, write_labels)
        _write(
            self.out / FACTS, lambda opened: opened.write(_as_json(facts))
        )  # last: it says that the others are whole

    def _read_all(self) -> Iterator[Part]:
        for chunk in range(self.count):
            part = self.read(chunk)
            if part is None:
                raise InputError(f"{self._file(chunk)} is damaged; run the same command again to make it anew")
            yield part

    def _file(self, chunk: int) -> Path:
        return self.out / PARTS / f"{chunk:06}.npz"


def check_settings(out: Path, there: dict[str, Any], now: dict[str, Any]) -> None:
    """Tokens made with other settings are not mixed with these."""
    now = json.loads(_as_json(now))  # tuples become lists, as in the file
    other = [name for name in now if there.get(name) != now[name]]
    if other:
        first = other[0]
        values = f"{_short(there.get(first))} there, {_short(now[first])} now"
        raise InputError(f"{out} holds tokens made with another {', '.join(other)} ({values}); choose another folder")


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


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


def _write_header(opened: BinaryIO, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """The head of an .npy file. The rows follow piece by piece: they may not fit into memory together."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(opened, header)
