"""An .npz of arrays, such as the sample files of other projects."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from tokencritic.data.arrays import ArraySource, numbered_classes
from tokencritic.errors import InputError


def open_npz(file: Path, split: str) -> ArraySource:
    """`images` or `arr_0`: uint8 (n, h, w[, c]); `labels` or `arr_1`: integers (n,); `class_names`: optional strings."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            images, labels = (_take(file, arrays, names) for names in (("images", "arr_0"), ("labels", "arr_1")))
            names = arrays.get("class_names")
    except InputError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{file} is not a whole .npz without pickles: {error}") from error
    if names is not None and (names.ndim != 1 or names.dtype.kind != "U"):
        raise InputError(f"{file} holds class_names {names.dtype} {names.shape}; expected a list of strings")
    if labels.dtype.kind not in "iu" or labels.size == 0:
        raise InputError(f"{file} holds labels {labels.dtype} {labels.shape}; expected integers (n,), one per image")
    class_names = numbered_classes(labels) if names is None else tuple(names.tolist())
    return ArraySource(images, labels, class_names, "npz", split, str(file))


def _take(file: Path, arrays: np.lib.npyio.NpzFile, names: tuple[str, str]) -> np.ndarray:
    for name in names:
        if name in arrays:
            return arrays[name]
    raise InputError(f"{file} has no {' or '.join(names)}; it holds {', '.join(arrays.files) or 'nothing'}")
