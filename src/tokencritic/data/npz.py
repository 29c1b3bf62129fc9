"""An .npz of arrays, such as the sample files of other projects."""

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tokencritic.data.source import ArraySource, numbered_classes
from tokencritic.errors import InputError

# What reading a broken file may raise; the last three: a size beyond reason, packed in an unknown way, encrypted.
_BROKEN = (
    *(OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error),
    *(MemoryError, NotImplementedError, RuntimeError),
)


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """What a broken .npz raises becomes an `InputError` with its name; a name that is missing stays a `KeyError`."""
    try:
        yield
    except InputError:
        raise
    except _BROKEN as error:
        raise InputError(f"{file} is not a whole .npz without pickles: {error}") from error


@contextmanager
def arrays_of(file: Path) -> Iterator[Mapping[str, np.ndarray]]:
    """The arrays of an .npz, to be read while it is open; whatever is wrong with the file is an `InputError`."""
    with reading(file), file.open("rb") as stream:
        opened = np.load(stream, allow_pickle=False)
        if not isinstance(opened, np.lib.npyio.NpzFile):
            raise InputError(f"{file} is a single array; expected an .npz, which holds arrays by name")
        with opened, zipfile.ZipFile(stream) as archive:
            for name in archive.namelist():
                with archive.open(name) as member:
                    if member.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
                        raise ValueError(f"{name.removesuffix('.npy')} is no array")
            yield opened


def open_npz(file: Path, split: str) -> ArraySource:
    """`images` or `arr_0`: uint8 (n, h, w[, c]); `labels` or `arr_1`: integers (n,); `class_names`: optional strings."""
    with arrays_of(file) as arrays:
        images, labels = (_take(file, arrays, names) for names in (("images", "arr_0"), ("labels", "arr_1")))
        names = arrays.get("class_names")
    if names is not None and (names.ndim != 1 or names.dtype.kind != "U"):
        raise InputError(f"{file} holds class_names {names.dtype} {names.shape}; expected a list of strings")
    class_names = numbered_classes(labels) if names is None else tuple(names.tolist())
    return ArraySource(images, labels, class_names, "npz", split, str(file))


def _take(file: Path, arrays: Mapping[str, np.ndarray], names: tuple[str, str]) -> np.ndarray:
    for name in names:
        if name in arrays:
            return arrays[name]
    raise InputError(f"{file} has no {' or '.join(names)}; it holds {', '.join(arrays) or 'nothing'}")
