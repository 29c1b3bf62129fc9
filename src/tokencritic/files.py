"""Writing files so that a reader never meets half of one, and reading files that may be broken."""

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


def write_json(file: str | Path, value: Any) -> None:
    """Write a JSON file atomically; missing folders are made. NaN, what is not known, becomes null."""
    text = json.dumps(known(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_text(file, text)


def write_text(file: str | Path, text: str) -> None:
    """Write a file atomically; missing folders are made."""
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(file), lambda path: path.write_text(text, encoding="utf-8", newline=""))


def known(value: Any) -> Any:
    """A value as JSON has it: NaN, what is not known, is None."""
    if isinstance(value, Mapping):
        return {name: known(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [known(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value
