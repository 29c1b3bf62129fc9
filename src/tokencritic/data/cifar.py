"""CIFAR-10 in three forms: PNG sheets with label lists, the Python batches and the binary batches."""

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tokencritic.data.arrays import ArraySource
from tokencritic.errors import InputError

_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_SIZE = 32
_PIXELS = _SIZE * _SIZE
_BATCHES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
# The published package spells it so.
_LABEL_LISTS = {"train": "train_lables.json", "test": "test_lables.json"}


def find_cifar(folder: Path) -> tuple[Path, str] | None:
    """Where the files lie, in the folder or in the sub-folder the archives unpack to, and their kind; or None."""
    kinds = {"cifar-sheets": ".png", "cifar-batches-py": "", "cifar-batches-bin": ".bin"}
    places = (folder, folder / "package", folder / "cifar-10-batches-py", folder / "cifar-10-batches-bin")
    for place in places:
        for kind, suffix in kinds.items():
            if any((place / f"{batches[0]}{suffix}").is_file() for batches in _BATCHES.values()):
                return place, kind
    return None


def open_cifar(folder: Path, kind: str, split: str) -> ArraySource:
    """One split of CIFAR-10. kind: as `find_cifar` gave it."""
    read = {"cifar-sheets": _read_sheets, "cifar-batches-py": _read_pickles, "cifar-batches-bin": _read_binaries}[kind]
    images, labels = read(folder, split)
    return ArraySource(images, labels, _NAMES, kind, split, str(folder))


def _read_sheets(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Sheets of 1024 pixels a row: each row is one image."""
    sheets = []
    for name in _BATCHES[split]:
        file = folder / f"{name}.png"
        try:
            with Image.open(io.BytesIO(_read_bytes(file))) as sheet:
                if sheet.width != _PIXELS or sheet.mode != "RGB":
                    raise InputError(f"{file} is {sheet.mode}, {sheet.width} wide; a sheet is RGB, {_PIXELS} wide")
                sheets.append(np.asarray(sheet).reshape(-1, _SIZE, _SIZE, 3))
        except (OSError, SyntaxError) as error:
            raise InputError(f"{file} is not a whole PNG: {error}") from error
    file = folder / _LABEL_LISTS[split]
    content = _read_bytes(file)
    try:
        labels = np.array(json.loads(content))
    except ValueError as error:
        raise InputError(f"{file} is not a JSON list of labels: {error}") from error
    return np.concatenate(sheets), labels


def _read_pickles(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    parts = [_read_pickle(folder / name) for name in _BATCHES[split]]
    return _from_planes(np.concatenate([data for data, _ in parts])), np.concatenate([labels for _, labels in parts])


def _read_pickle(file: Path) -> tuple[np.ndarray, np.ndarray]:
    content = _read_bytes(file)
    try:
        batch = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
        values = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
        data, labels = values["data"], np.array(values["labels"])
    except Exception as error:  # a broken pickle can raise almost anything
        raise InputError(f"{file} is not a CIFAR-10 batch: {type(error).__name__}: {error}") from error
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3 * _PIXELS:
        raise InputError(f"{file} holds data of {getattr(data, 'shape', None)}; expected uint8 (n, {3 * _PIXELS})")
    return data, labels


class _ArrayUnpickler(pickle.Unpickler):
    """Makes dicts, lists, numbers, bytes and arrays of bytes, and refuses every other name."""

    def find_class(self, module: str, name: str, /) -> Any:
        allowed: dict[tuple[str, str], Callable[..., Any] | type] = {
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): _byte_type,
            ("_codecs", "encode"): _latin1_bytes,
        }
        for core in ("numpy.core.multiarray", "numpy._core.multiarray"):
            allowed[core, "_reconstruct"] = np.empty(0).__reduce__()[0]  # pyright: ignore[reportArgumentType]
        if (module, name) not in allowed:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return allowed[module, name]


def _byte_type(code: str | bytes, *_flags: object) -> np.dtype:
    """`numpy.dtype` for bytes alone. The flags of old files (align, copy) are numbers that newer numpy warns about."""
    if code not in ("u1", b"u1"):
        raise pickle.UnpicklingError(f"it holds an array of {code!r}")
    return np.dtype(np.uint8)


def _latin1_bytes(text: str, encoding: str | bytes) -> bytes:
    """How Python 3 writes bytes into an old pickle protocol."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding!r}")
    return text.encode("latin1")


def _read_binaries(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Records of one label byte and 3072 pixel bytes."""
    records = []
    for name in _BATCHES[split]:
        file = folder / f"{name}.bin"
        content = np.frombuffer(_read_bytes(file), np.uint8)
        if content.size == 0 or content.size % (1 + 3 * _PIXELS):
            raise InputError(f"{file} holds {content.size} bytes; expected a multiple of {1 + 3 * _PIXELS}")
        records.append(content.reshape(-1, 1 + 3 * _PIXELS))
    content = np.concatenate(records)
    return _from_planes(content[:, 1:]), content[:, 0]


def _from_planes(data: np.ndarray) -> np.ndarray:
    """(n, 3072) with a red, a green and a blue plane -> (n, 32, 32, 3)."""
    return np.ascontiguousarray(data.reshape(-1, 3, _SIZE, _SIZE).transpose(0, 2, 3, 1))


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}; CIFAR-10 needs it") from error
