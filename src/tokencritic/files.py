"""Writing files so that a reader never meets half of one, and reading files that may be broken."""

import json
import os
import pickle
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from tokencritic.errors import InputError

# What reading a broken file may raise.
BROKEN = (
    *(OSError, EOFError, MemoryError, ArithmeticError, AttributeError, LookupError, RuntimeError, SyntaxError),
    *(TypeError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile, zlib.error, SafetensorError),
)


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Call `write` with a temporary name in the same folder, then rename; on failure nothing is left behind."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        write(temporary)
        temporary.chmod(mode)  # as any new file has it; safetensors writes for its owner's eyes only
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def reading(file: str | Path, what: str) -> Iterator[None]:
    """Whatever reading a file raises becomes one InputError. what: what the file should be, such as "JSON"."""
    try:
        yield
    except InputError:
        raise
    except BROKEN as error:
        if isinstance(error, OSError) and error.strerror is not None:  # the disk or the permissions, not the content
            raise InputError(f"{file} cannot be read: {error.strerror}") from error
        raise InputError(f"{file} is not {what}: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """The first line of an error's text; its class if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object."""
    with reading(file, "JSON"):
        values = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise InputError(f"{file} holds a {type(values).__name__}; expected an object")
    return values
