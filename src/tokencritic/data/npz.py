"""Reading and writing .npz files, without pickles."""

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tokencritic.errors import InputError, check_expansion
from tokencritic.files import reading, write_atomically

NPZ = "a whole .npz without pickles"


@contextmanager
def arrays_of(file: Path) -> Iterator[Mapping[str, np.ndarray]]:
    """Return a context with the arrays of an .npz by name, each read on access. A broken file raises InputError."""
    with reading(file, NPZ), file.open("rb") as stream:
        opened = np.load(stream, allow_pickle=False)
        if not isinstance(opened, np.lib.npyio.NpzFile):
            raise InputError(f"{file} is a single array; expected an .npz of named arrays")
        with opened, zipfile.ZipFile(stream) as archive:
            for name, info in zip(archive.namelist(), archive.infolist(), strict=True):
                check_expansion(f"{file}: {name}", info.compress_size, info.file_size)
                with archive.open(info) as member:
                    if member.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
                        raise ValueError(f"{name.removesuffix('.npy')} is not an array")
            yield opened


def sealed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the bytes of an .npz followed by their SHA-256. NumPy ignores the hash."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue() + hashlib.sha256(buffer.getvalue()).digest()


def read_sealed(file: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a sealed .npz. Returns an empty dictionary if the file is missing or any byte has changed."""
    content = file.read_bytes() if file.is_file() else b""
    size = len(content) - hashlib.sha256().digest_size
    if size < 0 or hashlib.sha256(content[:size]).digest() != content[size:]:
        return {}
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


def write_arrays(file: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a compressed .npz atomically."""

    def write(path: Path) -> None:
        with path.open("wb") as opened:
            np.savez_compressed(opened, **arrays)  # pyright: ignore[reportArgumentType]

    write_atomically(file, write)


def array_names(path: Path) -> set[str]:
    """Return the names of the arrays in an .npz, or an empty set for any other path."""
    if not (path.is_file() and path.suffix == ".npz"):
        return set()
    with arrays_of(path) as arrays:
        return set(arrays)
