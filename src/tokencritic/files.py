"""Atomic writes, and reading of files that may be broken."""

import json
import math
import os
import pickle
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from tokencritic.errors import InputError

# Exceptions that reading a broken file may raise.
BROKEN = (
    *(OSError, EOFError, MemoryError, ArithmeticError, AttributeError, LookupError, RuntimeError, SyntaxError),
    *(TypeError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile, zlib.error, SafetensorError),
)


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Write to a temporary file in the same folder, then rename it. On failure the temporary file is removed.

    write: called with the path of the temporary file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        write(temporary)
        temporary.chmod(mode)  # the mode of a new file; safetensors would leave it readable by its owner only
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def reading(file: str | Path, what: str) -> Iterator[None]:
    """A context that converts errors while reading a file to InputError.

    what: what the file is expected to be, such as "JSON".
    """
    try:
        yield
    except InputError:
        raise
    except BROKEN as error:
        if isinstance(error, OSError) and error.strerror is not None:  # a fault of the disk, not of the content
            raise InputError(f"{file} cannot be read: {error.strerror}") from error
        raise InputError(f"{file} is not {what}: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """Return the first line of an error's message, or the name of its class if the message is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object."""
    with reading(file, "JSON"):
        values = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise InputError(f"{file} holds a {type(values).__name__}; expected an object")
    return values


def write_json(file: str | Path, value: Any) -> None:
    """Write a JSON file atomically and create missing folders. NaN, which means unknown, becomes null."""
    text = json.dumps(known(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_text(file, text)


def write_text(file: str | Path, text: str) -> None:
    """Write a text file atomically and create missing folders."""
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(file), lambda path: path.write_text(text, encoding="utf-8", newline=""))


def known(value: Any) -> Any:
    """Replace NaN, which means unknown, by None in nested dictionaries, lists and tuples."""
    if isinstance(value, Mapping):
        return {name: known(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [known(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value
