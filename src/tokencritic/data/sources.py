"""Image sources: one small interface over the forms in which labelled images lie on a disk."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
from PIL import Image

from tokencritic.data.cifar import find_cifar, open_cifar
from tokencritic.data.folder import FolderSource
from tokencritic.data.idx import find_idx, open_idx
from tokencritic.data.npz import open_npz
from tokencritic.errors import InputError

Split = Literal["train", "test"]


class Source(Protocol):
    """Labelled images by number. A source may also have `batch(indices) -> (uint8 (b, h, w, c), labels (b,))`."""

    @property
    def class_names(self) -> tuple[str, ...]: ...

    @property
    def labels(self) -> np.ndarray | None:
        """(n,) int64, or None where they are not known."""
        ...

    @property
    def corrupt(self) -> Mapping[str, str]:
        """The files met so far that cannot be decoded, and why."""
        ...

    @property
    def max_corrupt(self) -> int:
        """How many such files are let pass."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[Image.Image, int] | None:
        """An image in mode L or RGB and its label; None if its file is corrupt."""
        ...

    def name(self, index: int, /) -> str:
        """What an example is called in messages and in `corrupt`."""
        ...

    def describe(self) -> dict[str, Any]:
        """Facts for a JSON, without paths. Two sources with equal facts hold the same examples in the same order."""
        ...


def open_source(path: str | Path, split: Split = "train", *, max_corrupt: int = 10) -> Source:
    """Open what the path holds.

    path: a folder of class folders (with or without train and val folders above them), of idx files, of CIFAR-10 in any
    of its forms, or an .npz file. A path that holds one set only is opened as "train".
    max_corrupt: how many files that cannot be decoded are skipped before it is an error.
    """
    path = Path(path)
    if split not in get_args(Split):
        raise InputError(f"split is {split!r}; choose one of {', '.join(get_args(Split))}")
    if max_corrupt < 0:
        raise InputError(f"max_corrupt is {max_corrupt}; it must be 0 or more")
    if path.is_file():
        if path.suffix != ".npz":
            raise InputError(f"{path} is a file that is no .npz; expected an .npz or a folder of images")
        if split != "train":
            raise InputError(f"{path} holds one set, opened as train; give the {split} set's own file instead")
        return open_npz(path, split)
    if not path.is_dir():
        raise InputError(f"{path} does not exist; expected an .npz or a folder of images")
    if place := find_idx(path):
        return open_idx(place, split)
    if found := find_cifar(path):
        return open_cifar(*found, split)
    return FolderSource(path, split, max_corrupt)
