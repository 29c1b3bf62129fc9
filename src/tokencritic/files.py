"""Writing files so that a reader never meets half of one, and reading JSON."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokencritic.errors import InputError


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


def read_bytes(file: Path) -> bytes:
    """The content of a file that a user names."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{file} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{file} holds a {type(values).__name__}; expected an object")
    return values
