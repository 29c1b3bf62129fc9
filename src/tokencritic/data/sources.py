"""Opening an image source, in whatever form its images lie on a disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from tokencritic.data.cifar import find_cifar, open_cifar
from tokencritic.data.folder import FolderSource
from tokencritic.data.idx import find_idx, open_idx
from tokencritic.data.npz import open_npz
from tokencritic.data.source import Source, Split
from tokencritic.errors import InputError, check_at_least

# Folders of files with known names: how the files are found in a folder, and how what was found is opened.
_FORMS: tuple[tuple[Callable[[Path], Any], Callable[[Any, str], Source]], ...] = (
    (find_idx, open_idx),
    (find_cifar, open_cifar),
)


def has_known_files(folder: Path) -> bool:
    """Whether a folder holds a data set by the names of its files, so that it needs no class folders."""
    return any(find(folder) for find, _ in _FORMS)


def open_source(path: str | Path, split: Split = "train", *, max_corrupt: int = 10) -> Source:
    """Open what the path holds.

    path: a folder of class folders (with or without train and val folders above them), of idx files, of CIFAR-10 in any
    of its forms, or an .npz file. A path that holds one set only is opened as "train".
    max_corrupt: how many files that cannot be decoded are skipped before it is an error.
    """
    path = Path(path)
    if split not in get_args(Split):
        raise InputError(f"split is {split!r}; choose one of {', '.join(get_args(Split))}")
    check_at_least(0, max_corrupt=max_corrupt)
    if path.is_file():
        if path.suffix != ".npz":
            raise InputError(f"{path} is a file that is no .npz; expected an .npz or a folder of images")
        if split != "train":
            raise InputError(f"{path} holds one set, opened as train; give the {split} set's own file instead")
        return open_npz(path, split)
    if not path.is_dir():
        raise InputError(f"{path} does not exist; expected an .npz or a folder of images")
    for find, open_found in _FORMS:
        if found := find(path):
            return open_found(found, split)
    return FolderSource(path, split, max_corrupt)
