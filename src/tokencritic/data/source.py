"""Image sources: the base class, sources in an array, and sources in folders of image files such as ImageNet."""

import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from PIL import Image, ImageOps

from tokencritic.errors import InputError, check_range

Split = Literal["train", "test"]

_LOOKED_AT = 16  # the number of images that are opened to find out whether a source has colour images
_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".jp2")
_SPLITS = {"train": ("train",), "test": ("val", "validation", "valid", "test")}
OWN_SAMPLE = re.compile(r"[0-9]+(?:_class([0-9]{1,9}))?\.png")  # file names of `token-critic sample`


class Source(ABC):
    """The base class of image sources: images by index.

    images: all images, uint8 (n, h, w, c), or None if images are decoded on demand.
    labels: (n,) int64, -1 where unknown.
    class_names: the name of each class; empty for images without classes, whose labels are -1.
    corrupt: reasons by name of the files that could not be decoded so far.
    max_corrupt: the maximum number of corrupt files before an error is raised.
    place: the folder or name in error messages about corrupt files.
    """

    images: np.ndarray | None = None
    place: object = "source"

    def __init__(self, class_names: tuple[str, ...], labels: np.ndarray, max_corrupt: int = 0) -> None:
        self.class_names, self.labels, self.max_corrupt = class_names, labels, max_corrupt
        self.corrupt: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def __getitem__(self, index: int) -> tuple[Image.Image, int] | None:
        """Return an image in mode L or RGB and its label, or None if its file is corrupt."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return JSON values that identify the source, without paths.

        Two sources with equal descriptions have the same examples in the same order.
        """

    def name(self, index: int) -> str:
        """Return the name of an example in messages and in `corrupt`."""
        return str(index)

    def add_corrupt(self, found: Mapping[str, str]) -> None:
        """Add reasons by name of corrupt files, also those that workers found. Raises InputError for too many."""
        self.corrupt.update(found)
        check_corrupt(self.place, self.corrupt, self.max_corrupt)

    def check(self) -> None:
        """Open the first images, so that a folder of broken files raises InputError before any work."""
        for index in range(min(_LOOKED_AT, len(self))):
            self[index]
        if len(self.corrupt) == len(self):
            raise InputError(f"{self.name(0)} and all other images cannot be decoded; expected at least one that can")

    @property
    def channels(self) -> int:
        """The number of channels: 1 for grey images, 3 for colour. For images on disk, the first few determine it."""
        if self.images is not None:
            return self.images.shape[3]
        examples = (self[index] for index in range(min(_LOOKED_AT, len(self))))
        modes = {example[0].mode for example in examples if example is not None}
        return 1 if modes == {"L"} else 3


class ArraySource(Source):
    """A source of images of one size in an array.

    images: uint8 (n, h, w, c) with 1 or 3 channels, or (n, h, w).
    labels: integers (n,) in [0, len(class_names)), or None for images without classes.
    kind, split: part of the description of the source.
    place: the path in error messages.
    """

    images: np.ndarray

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray | None,
        class_names: tuple[str, ...],
        kind: str,
        split: str,
        place: str,
    ) -> None:
        if images.ndim == 3:
            images = images[..., None]
        check_arrays(place, images.dtype, images.shape, labels)
        if labels is None:
            labels = np.full(len(images), -1)
        else:
            check_range(f"{place}: labels", labels, len(class_names))
        super().__init__(class_names, labels.astype(np.int64))
        self.images = images  # pyright: ignore[reportIncompatibleVariableOverride]
        self.kind, self.split = kind, split

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return to_picture(self.images[index]), int(self.labels[index])

    def describe(self) -> dict[str, Any]:
        """Return kind, split, number of examples, image shape and a hash of the content."""
        content = hashlib.sha256(np.ascontiguousarray(self.images).data)
        content.update(self.labels.astype("<i8").tobytes())
        facts = {"kind": self.kind, "split": self.split, "examples": len(self)}
        return facts | {"image_shape": list(self.images.shape[1:]), "content_sha256": content.hexdigest()}


class FolderSource(Source):
    """A source of image files in a folder.

    files: paths relative to `folder`.

    A file that cannot be decoded gives None and is added to `corrupt`. More than `max_corrupt` of them raise
    InputError.
    """

    def __init__(
        self, folder: Path, files: list[str], labels: np.ndarray, class_names: tuple[str, ...], split: str = "train"
    ) -> None:
        super().__init__(class_names, labels)
        self.folder = self.place = folder
        self.split, self._files = split, files

    def __getitem__(self, index: int) -> tuple[Image.Image, int] | None:
        name = self._files[index]
        try:
            return read_image(self.folder / name), int(self.labels[index])
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # a fault of the disk, not of the content
                raise InputError(f"{self.folder / name} cannot be read: {error.strerror}") from error
            self.add_corrupt({name: str(error) or type(error).__name__})
        return None

    def name(self, index: int) -> str:
        """Return the path of an example relative to the folder."""
        return self._files[index]

    def describe(self) -> dict[str, Any]:
        """Return kind, split, number of examples and a hash of the list of files."""
        listing = hashlib.sha256("\n".join(self._files).encode("utf-8", "surrogateescape"))
        return {"kind": "folder", "split": self.split, "examples": len(self), "listing_sha256": listing.hexdigest()}


def open_class_folders(path: Path, split: str, max_corrupt: int) -> FolderSource:
    """Open a folder with one folder of images per class. Classes and the files of a class are sorted by name.

    Images in a folder without class folders have no classes.
    """
    folder = _split_folder(path, split)
    classes = _class_folders(folder)
    if classes:
        files = [_image_files(folder, name) for name in classes]
        for name, found in zip(classes, files, strict=True):
            if not found:
                raise InputError(f"{folder / name} holds no images; expected at least one in every class folder")
        labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(found) for found in files])
        source = FolderSource(folder, [file for found in files for file in found], labels, tuple(classes), split)
    else:
        files = _images_in(folder)
        if not files:
            raise InputError(f"{folder} has no class folders and no images; expected one folder per class, or images")
        source = FolderSource(folder, files, np.full(len(files), -1, np.int64), (), split)
    source.max_corrupt = max_corrupt
    return source


def open_flat_folder(folder: Path) -> FolderSource:
    """Open a folder of images without class folders. Labels are -1 except for images of `token-critic sample`."""
    names = _images_in(folder)
    if not names:
        raise InputError(f"{folder} holds no images; expected a model folder, images, or class folders of images")
    own = [match for name in names if (match := OWN_SAMPLE.fullmatch(name))]
    labelled = [match for match in own if match[1] is not None]
    if labelled:  # excludes the grid in the same folder
        files, labels = [match[0] for match in labelled], [int(match[1]) for match in labelled]
    else:
        files = [match[0] for match in own] if {*names} - {match[0] for match in own} == {"grid.png"} else names
        labels = [-1] * len(files)
    return FolderSource(folder, files, np.array(labels, np.int64), ())


def to_picture(pixels: np.ndarray) -> Image.Image:
    """Convert uint8 (h, w, c) to a Pillow image: mode L for one channel, RGB for three."""
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def check_arrays(place: object, dtype: np.dtype, shape: tuple[int, ...], labels: np.ndarray | None) -> None:
    """Raise InputError unless type and shape are those of images, and labels are one integer per image.

    place: the path or name in error messages.
    """
    if dtype != np.uint8 or len(shape) != 4 or shape[3] not in (1, 3) or 0 in shape:
        raise InputError(f"{place} holds images {dtype} {shape}; expected uint8 (n, h, w, c), c 1 or 3, none of them 0")
    if labels is not None and (labels.shape != shape[:1] or labels.dtype.kind not in "iu"):
        found = f"{labels.dtype} {labels.shape}"
        raise InputError(f"{place} holds labels {found}; expected integers {shape[:1]}, one per image")


def check_corrupt(place: object, corrupt: Mapping[str, str], limit: int) -> None:
    """Raise InputError that names the first few corrupt files if there are more than `limit`."""
    if len(corrupt) > limit:
        first = "; ".join(f"{name} ({reason})" for name, reason in sorted(corrupt.items())[:3])
        raise InputError(f"{place} has {len(corrupt)} corrupt files, more than max_corrupt {limit}: {first}")


def read_image(
    file: Path | IO[bytes], most_pixels: int | None = None, formats: tuple[str, ...] | None = None
) -> Image.Image:
    """Decode an image file to mode L or RGB.

    EXIF rotation is applied, transparent parts become white, and 16 bits are reduced to 8.

    most_pixels: the maximum of width times height, checked before decoding.
    formats: names of the allowed formats; None for all that Pillow knows.
    """
    with Image.open(file, formats=formats) as image:
        if most_pixels is not None and image.width * image.height > most_pixels:
            raise Image.DecompressionBombError(f"more than {most_pixels} pixels")
        image.load()
        with suppress(Exception):  # invalid EXIF raises various errors in Pillow; the pixels are intact
            ImageOps.exif_transpose(image, in_place=True)
        if image.mode.startswith("I"):
            values = np.asarray(image).astype(np.int64)
            if values.min() < 0 or values.max() > 65535:
                raise ValueError(f"mode {image.mode} with values beyond 16 bits")
            return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))
        mode = "L" if image.mode in ("1", "L", "LA", "La") else "RGB"
        if image.has_transparency_data:
            if image.mode == "La":  # Pillow converts premultiplied grey only to LA
                image = image.convert("LA")
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return image.convert(mode)


def _split_folder(folder: Path, split: str) -> Path:
    """Return the sub-folder of a split, or the folder itself if it has no splits.

    A split has class folders in it, so a class may be called "train".
    """
    present = {name: folder / name for names in _SPLITS.values() for name in names if _class_folders(folder / name)}
    for name in _SPLITS[split]:
        if name in present:
            return present[name]
    if present or split != "train":
        raise InputError(
            f"{folder} has no {' or '.join(_SPLITS[split])} folder of class folders for the {split} split; "
            "pass the folder that contains the class folders to use it as it is"
        )
    return folder


def _class_folders(folder: Path) -> list[str]:
    entries = folder.iterdir() if folder.is_dir() else ()
    return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def _images_in(folder: Path) -> list[str]:
    """Return the sorted names of the images directly in the folder."""
    images = (path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES and path.name[0] != ".")
    return sorted(path.name for path in images if path.is_file())


def _image_files(folder: Path, name: str) -> list[str]:
    """Return the sorted POSIX paths, relative to `folder`, of all images at any depth in a class folder."""
    found = []
    for place, _, files in os.walk(folder / name):
        relative = Path(place).relative_to(folder).as_posix()
        found += [f"{relative}/{file}" for file in files if file.lower().endswith(_SUFFIXES) and file[0] != "."]
    return sorted(found)
