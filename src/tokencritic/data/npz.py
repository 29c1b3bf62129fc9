"""The arrays of an .npz, read without unpickling anything, and written."""

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tokencritic.errors import InputError
from tokencritic.files import reading, write_atomically

NPZ = "a whole .npz without pickles"


@contextmanager
def arrays_of(file: Path) -> Iterator[Mapping[str, np.ndarray]]:
    """The arrays of an .npz, to be read while it is open; whatever is wrong with the file is an `InputError`."""
    with reading(file, NPZ), file.open("rb") as stream:
        opened = np.load(stream, allow_pickle=False)
        if not isinstance(opened, np.lib.npyio.NpzFile):
            raise InputError(f"{file} is a single array; expected an .npz, which holds arrays by name")
        with opened, zipfile.ZipFile(stream) as archive:
            for name in archive.namelist():
                with archive.open(name) as member:
                    if member.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
                        raise ValueError(f"{name.removesuffix('.npy')} is no array")
            yield opened


def write_arrays(file: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a compressed .npz, whole or not at all."""

    def write(path: Path) -> None:
        with path.open("wb") as opened:
            np.savez_compressed(opened, **arrays)  # pyright: ignore[reportArgumentType]

    write_atomically(file, write)


def array_names(path: Path) -> set[str]:
    """Of the arrays in an .npz; none of anything else. `arr_0` tells a sample file from a data set."""
    if not (path.is_file() and path.suffix == ".npz"):
        return set()
    with arrays_of(path) as arrays:
        return set(arrays)
