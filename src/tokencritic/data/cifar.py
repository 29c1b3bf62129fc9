"""CIFAR-10 in three forms: PNG sheets with label lists, the Python batches and the binary batches."""

import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

from tokencritic.data.source import ArraySource
from tokencritic.errors import InputError
from tokencritic.files import read_bytes
from tokencritic.foreign_weights import read_pickled_arrays

_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_SIZE = 32
_PIXELS = _SIZE * _SIZE
_SUFFIXES = {"cifar-sheets": ".png", "cifar-batches-py": "", "cifar-batches-bin": ".bin"}
_BATCHES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
# The published package spells it so.
_LABEL_LISTS = {"train": "train_lables.json", "test": "test_lables.json"}


def find_cifar(folder: Path) -> tuple[Path, str] | None:
    """Where the files lie, in the folder or in the sub-folder the archives unpack to, and their kind; or None."""
    places = (folder, folder / "package", folder / "cifar-10-batches-py", folder / "cifar-10-batches-bin")
    for place in places:
        for kind, suffix in _SUFFIXES.items():
            if any((place / f"{batches[0]}{suffix}").is_file() for batches in _BATCHES.values()):
                return place, kind
    return None


def open_cifar(found: tuple[Path, str], split: str) -> ArraySource:
    """One split of CIFAR-10. found: by `find_cifar`."""
    folder, kind = found
    read = {"cifar-sheets": _read_sheet, "cifar-batches-py": _read_pickle, "cifar-batches-bin": _read_records}[kind]
    batches = [read(folder / f"{name}{_SUFFIXES[kind]}") for name in _BATCHES[split]]
    images, labels = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    if kind == "cifar-sheets":
        labels = _read_labels(folder / _LABEL_LISTS[split])
    return ArraySource(images, labels, _NAMES, kind, split, str(folder))


def _read_sheet(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """A sheet of 1024 pixels a row: each row is one image. It has no labels."""
    try:
        with Image.open(io.BytesIO(read_bytes(file))) as sheet:
            if sheet.width != _PIXELS or sheet.mode != "RGB":
                raise InputError(f"{file} is {sheet.mode}, {sheet.width} wide; a sheet is RGB, {_PIXELS} wide")
            return np.asarray(sheet).reshape(-1, _SIZE, _SIZE, 3), np.empty(0, np.int64)
    except (OSError, SyntaxError) as error:
        raise InputError(f"{file} is not a whole PNG: {error}") from error


def _read_labels(file: Path) -> np.ndarray:
    content = read_bytes(file)
    try:
        return np.array(json.loads(content))
    except ValueError as error:
        raise InputError(f"{file} is not a JSON list of labels: {error}") from error


def _read_pickle(file: Path) -> tuple[np.ndarray, np.ndarray]:
    content = read_bytes(file)
    try:
        batch = read_pickled_arrays(content)
        values = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
        return _from_planes(np.asarray(values["data"])), np.array(values["labels"])
    except Exception as error:  # a broken pickle can raise almost anything
        raise InputError(f"{file} is not a CIFAR-10 batch: {type(error).__name__}: {error}") from error


def _read_records(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Records of one label byte and 3072 pixel bytes."""
    content = np.frombuffer(read_bytes(file), np.uint8)
    if content.size == 0 or content.size % (1 + 3 * _PIXELS):
        raise InputError(f"{file} holds {content.size} bytes; expected a multiple of {1 + 3 * _PIXELS}")
    records = content.reshape(-1, 1 + 3 * _PIXELS)
    return _from_planes(records[:, 1:]), records[:, 0]


def _from_planes(data: np.ndarray) -> np.ndarray:
    """(n, 3072) with a red, a green and a blue plane -> (n, 32, 32, 3)."""
    return np.ascontiguousarray(data.reshape(-1, 3, _SIZE, _SIZE).transpose(0, 2, 3, 1))
