"""idx files: MNIST and the sets published in its form, plain or gzipped, under their usual file names."""

import gzip
import hashlib
import zlib
from pathlib import Path

import numpy as np

from tokencritic.data.source import ArraySource, numbered_classes
from tokencritic.errors import InputError
from tokencritic.files import read_bytes

_PREFIXES = {"train": "train", "test": "t10k"}
_DIMENSIONS = {"images": 3, "labels": 1}

_FASHION_NAMES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
# sha256 of the labels, without the header: the same whether the file was gzipped by one or another.
_FASHION_LABELS = (
    "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
    "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
)


def find_idx(folder: Path) -> Path | None:
    """Where the idx files lie: the folder itself, or its `raw` as other libraries leave it; None if they do not."""
    for place in (folder, folder / "raw"):
        if any(_find(place, split, "images") for split in _PREFIXES):
            return place
    return None


def open_idx(folder: Path, split: str) -> ArraySource:
    """The images and labels of one split.

    Fashion-MNIST gets its class names when the labels are exactly its own, or when the folder (the one above, if it
    is called `raw`) has "fashion" in its name. Every other set gets "0", "1", ... up to the highest label of both splits.
    """
    images, labels = (_read(folder, split, what) for what in _DIMENSIONS)
    named = folder.resolve().parent if folder.name == "raw" else folder.resolve()
    if hashlib.sha256(labels.tobytes()).hexdigest() in _FASHION_LABELS or "fashion" in named.name.lower():
        names = _FASHION_NAMES
    else:
        names = numbered_classes(*(_read(folder, one, "labels") for one in _PREFIXES if _find(folder, one, "labels")))
    return ArraySource(images, labels, names, "idx", split, str(folder))


def _read(folder: Path, split: str, what: str) -> np.ndarray:
    """One idx file of unsigned bytes."""
    file = _find(folder, split, what)
    if file is None:
        raise InputError(f"{folder} has no {_names(split, what)[0]} (or .gz), which the {split} split needs")
    content = read_bytes(file)
    try:
        content = gzip.decompress(content) if file.suffix == ".gz" else content
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{file} is not a whole gzip file: {error}") from error
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        start = content[:4].hex() or "nothing"
        raise InputError(f"{file} starts with {start}; an idx file of bytes starts with 000008")
    start = 4 + 4 * content[3]
    shape = tuple(np.frombuffer(content[4:start], ">u4").tolist()) if len(content) >= start else ()
    expected = start + int(np.prod(shape, dtype=object))
    if len(shape) != content[3] or len(content) != expected:
        raise InputError(f"{file} holds {len(content)} bytes; its header {shape} asks for {expected}")
    if len(shape) != _DIMENSIONS[what]:
        raise InputError(f"{file} holds {len(shape)} dimensions; {what} have {_DIMENSIONS[what]}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _find(folder: Path, split: str, what: str) -> Path | None:
    return next((folder / name for name in _names(split, what) if (folder / name).is_file()), None)


def _names(split: str, what: str) -> list[str]:
    """The usual name, the name some archives unpack to, and both with .gz."""
    stems = [f"{_PREFIXES[split]}-{what}{mark}idx{_DIMENSIONS[what]}-ubyte" for mark in "-."]
    return stems + [f"{stem}.gz" for stem in stems]
