"""Checks of output paths, made before any work."""

import os
import tempfile
from pathlib import Path

from tokencritic.errors import InputError


def check_folder(name: str, folder: str | Path) -> None:
    """Raise InputError unless a folder can be written, or created with its parents.

    name: the flag or argument.
    """
    if not str(folder):
        raise InputError(f"{name} is empty; expected a folder to write")
    if _exists(name, Path(folder)) and not Path(folder).is_dir():
        raise InputError(f"{name} is {folder}, which is a file; expected a folder to write")
    _check_writable(name, Path(folder))


def check_file(name: str, file: str | Path) -> None:
    """Raise InputError unless a file can be written, in a folder that exists or can be created."""
    if not Path(file).name:
        raise InputError(f"{name} is {str(file)!r}; expected a file to write")
    if _exists(name, Path(file)) and Path(file).is_dir():
        raise InputError(f"{name} is {file}, which is a folder; expected a file to write")
    _check_writable(name, Path(file).parent)


def _exists(name: str, path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:  # a name that is too long or holds a null character
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{name} is {path}, which cannot be written: {reason}") from error
    return True


def _check_writable(name: str, folder: Path) -> None:
    """Raise InputError unless a temporary file can be created in the folder, or in its nearest existing parent.

    Permission bits alone do not show whether a folder can be written.
    """
    whole = folder.absolute()
    there = next(place for place in (whole, *whole.parents) if place.exists())
    if not there.is_dir():
        raise InputError(f"{name} is {folder}, and {there} is a file; expected a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{name} is {folder}, and {there} cannot be written to")
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise InputError(f"{name} is {folder}, and {there} cannot be written to: {error.strerror}") from error
