"""Opening image sources: class folders, a folder of images, idx files, CIFAR-10 in three formats, .npz of arrays."""

import gzip
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
from PIL import Image

from tokencritic.bounds import CLASSES
from tokencritic.data.npz import arrays_of
from tokencritic.data.source import ArraySource, Source, Split, open_class_folders
from tokencritic.errors import InputError, check_at_least, check_expansion
from tokencritic.files import parse_json, read_whole, reading
from tokencritic.foreign_weights import read_pickled_arrays

_IDX_PREFIXES = {"train": "train", "test": "t10k"}
_IDX_DIMENSIONS = {"images": 3, "labels": 1}
_FASHION_NAMES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
# SHA-256 of the labels without the header, which does not depend on how the file was compressed.
_FASHION_LABELS = (
    "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
    "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
)

_CIFAR_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR_SUFFIXES = {"cifar-sheets": ".png", "cifar-batches-py": "", "cifar-batches-bin": ".bin"}
_CIFAR_FOLDERS = ("", "package", "cifar-10-batches-py", "cifar-10-batches-bin")  # folders of the unpacked archives
_CIFAR_BATCHES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
_PIXELS = 32 * 32


def open_source(path: str | Path, split: Split = "train", *, max_corrupt: int = 10) -> Source:
    """Open the image source at a path.

    path: a folder of class folders, with or without train and val folders above them; a folder of images without classes;
        a folder of idx files; a folder of CIFAR-10 in any of its formats; or an .npz file.
    split: "train" for a path without splits.
    max_corrupt: the maximum number of files that cannot be decoded before an error is raised.
    """
    path = Path(path)
    if split not in get_args(Split):
        raise InputError(f"split is {split!r}; choose one of {', '.join(get_args(Split))}")
    check_at_least(0, max_corrupt=max_corrupt)
    if path.is_file():
        if path.suffix != ".npz":
            raise InputError(f"{path} is not an .npz; expected an .npz or a folder of images")
        if split != "train":
            raise InputError(f"split is {split}, but {path} has no splits; pass the file of the {split} split as train")
        return _open_npz(path, split)
    if not path.is_dir():
        raise InputError(f"{path} does not exist; expected an .npz or a folder of images")
    if idx := _find_idx(path):
        return _open_idx(idx, split)
    if cifar := _find_cifar(path):
        return _open_cifar(*cifar, split)
    return open_class_folders(path, split, max_corrupt)


def has_known_files(folder: Path) -> bool:
    """Return whether a folder has idx or CIFAR-10 files, so that it needs no class folders."""
    return bool(_find_idx(folder) or _find_cifar(folder))


def _open_npz(file: Path, split: str) -> ArraySource:
    """Open an .npz of arrays.

    The arrays are `images` or `arr_0`, uint8 (n, h, w[, c]); `labels` or `arr_1`, integers (n,), which images without
    classes do not have; and optionally `class_names`, strings.
    """
    with arrays_of(file) as arrays:
        images = _take(file, arrays, ("images", "arr_0"))
        labels = arrays.get("labels", arrays.get("arr_1"))
        names = arrays.get("class_names")
    if names is not None and (names.ndim != 1 or names.dtype.kind != "U"):
        raise InputError(f"{file} holds class_names {names.dtype} {names.shape}; expected a list of strings")
    if labels is None:
        return ArraySource(images, None, (), "npz", split, str(file))
    class_names = _numbered_classes(file, labels) if names is None else tuple(names.tolist())
    return ArraySource(images, labels, class_names, "npz", split, str(file))


def _take(file: Path, arrays: Mapping[str, np.ndarray], names: tuple[str, str]) -> np.ndarray:
    for name in names:
        if name in arrays:
            return arrays[name]
    raise InputError(f"{file} has arrays {', '.join(arrays) or 'none'}; expected {' or '.join(names)}")


def _find_idx(folder: Path) -> Path | None:
    """Return the folder of idx files: the folder itself, its `raw` as torchvision has it, or None."""
    for place in (folder, folder / "raw"):
        if any(_idx_file(place, split, "images") for split in _IDX_PREFIXES):
            return place
    return None


def _open_idx(folder: Path, split: str) -> ArraySource:
    """Open MNIST or a data set published in its format.

    Fashion-MNIST is recognised by its labels, or by "fashion" in the name of the folder (of its parent for `raw`). Its
    classes have names. Those of any other data set are "0", "1", ... up to the highest label of both splits.
    """
    images, labels = (_read_idx(folder, split, what) for what in _IDX_DIMENSIONS)
    named = folder.resolve().parent if folder.name == "raw" else folder.resolve()
    if hashlib.sha256(labels.tobytes()).hexdigest() in _FASHION_LABELS or "fashion" in named.name.lower():
        names = _FASHION_NAMES
    else:
        splits = [one for one in _IDX_PREFIXES if _idx_file(folder, one, "labels")]
        names = _numbered_classes(folder, *(_read_idx(folder, one, "labels") for one in splits))
    return ArraySource(images, labels, names, "idx", split, str(folder))


def _idx_file(folder: Path, split: str, what: str) -> Path | None:
    """Return the file under its usual name or the name in some archives, each with or without .gz, or None."""
    stems = [f"{_IDX_PREFIXES[split]}-{what}{mark}idx{_IDX_DIMENSIONS[what]}-ubyte" for mark in "-."]
    files = [folder / f"{stem}{suffix}" for suffix in ("", ".gz") for stem in stems]
    return next((file for file in files if file.is_file()), None)


def _read_idx(folder: Path, split: str, what: str) -> np.ndarray:
    """Read one idx file of unsigned bytes."""
    dimensions = _IDX_DIMENSIONS[what]
    file = _idx_file(folder, split, what)
    if file is None:
        usual = f"{_IDX_PREFIXES[split]}-{what}-idx{dimensions}-ubyte"
        raise InputError(f"{folder} has no {usual}; expected the file, or its .gz, for the {split} split")
    magic, start = bytes([0, 0, 8, dimensions]), 4 + 4 * dimensions
    with reading(file, "a whole gzip file"), (gzip.open if file.suffix == ".gz" else open)(file, "rb") as stream:
        header = stream.read(start)
        if header[:4] != magic:
            got = header[:4].hex() or "nothing"
            raise InputError(f"{file} starts with {got}; expected {magic.hex()}, idx of {what}")
        shape = np.frombuffer(header[4:].ljust(start - 4, b"\0"), ">u4").tolist()
        size = math.prod(shape)
        check_expansion(file, file.stat().st_size, size)
        content = stream.read(size)
        if len(header) != start or len(content) != size or stream.read(1):  # one byte beyond the header's size
            held = (
                f"{'more than ' if len(header) == start and len(content) == size else ''}{len(header) + len(content)}"
            )
            raise InputError(f"{file} holds {held} bytes; its header {shape} requires {start + size}")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _find_cifar(folder: Path) -> tuple[Path, str] | None:
    """Return the folder of CIFAR-10 files, which may be that of an unpacked archive, and their kind; or None."""
    for place in (folder / name for name in _CIFAR_FOLDERS):
        for kind, suffix in _CIFAR_SUFFIXES.items():
            if any((place / f"{batches[0]}{suffix}").is_file() for batches in _CIFAR_BATCHES.values()):
                return place, kind
    return None


def _open_cifar(folder: Path, kind: str, split: str) -> ArraySource:
    batches = [_read_cifar(folder / f"{name}{_CIFAR_SUFFIXES[kind]}", kind) for name in _CIFAR_BATCHES[split]]
    images, labels = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    if kind == "cifar-sheets":
        file = folder / f"{split}_lables.json"  # spelled like this in the published package
        with reading(file, "a JSON list of labels"):
            labels = np.array(parse_json(file, read_whole(file)))
    return ArraySource(images, labels, _CIFAR_NAMES, kind, split, str(folder))


def _read_cifar(file: Path, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Read images (n, 32, 32, 3) and labels (n,) of a file. A sheet has no labels."""
    if kind == "cifar-sheets":
        with reading(file, "a whole PNG"), Image.open(file) as sheet:
            if sheet.width != _PIXELS or sheet.mode != "RGB":  # each row of a sheet is one image
                raise InputError(f"{file} is {sheet.mode}, {sheet.width} wide; expected RGB, {_PIXELS} wide")
            return np.asarray(sheet).reshape(-1, 32, 32, 3), np.empty(0, np.int64)
    with reading(file, "a CIFAR-10 batch"):
        if kind == "cifar-batches-py":
            batch: dict[Any, Any] = read_pickled_arrays(file.read_bytes())
            values = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
            planes, labels = np.asarray(values["data"]), np.array(values["labels"])
        else:
            content = np.frombuffer(file.read_bytes(), np.uint8)
            if content.size == 0 or content.size % (1 + 3 * _PIXELS):
                raise InputError(f"{file} holds {content.size} bytes; expected a multiple of {1 + 3 * _PIXELS}")
            records = content.reshape(-1, 1 + 3 * _PIXELS)
            planes, labels = records[:, 1:], records[:, 0]
        return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels


def _numbered_classes(place: Path, *labels: np.ndarray) -> tuple[str, ...]:
    """Return the names "0", "1", ... up to the highest label. Arrays that are not integers are ignored."""
    highest = max((int(some.max()) for some in labels if some.size and some.dtype.kind in "iu"), default=-1)
    if highest >= CLASSES:
        raise InputError(f"{place}: labels holds {highest}; expected labels below {CLASSES}")
    return tuple(str(number) for number in range(highest + 1))
