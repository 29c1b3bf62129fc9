"""What every image source is; the two kinds: an array in memory, and folders of image files, as of ImageNet."""

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

_LOOKED_AT = 16  # images of a source that are opened to see whether any of them has colours
_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".jp2")
_SPLITS = {"train": ("train",), "test": ("val", "validation", "valid", "test")}
OWN_SAMPLE = re.compile(r"\d+(?:_class(\d+))?\.png")  # as `token-critic sample` names its images


class Source(ABC):
    """Images by number.

    images: all of them, uint8 (n, h, w, c), or None where each is decoded when it is asked for. labels: (n,) int64, -1 where
    they are not known. class_names: empty for images without classes, whose labels are all -1. corrupt: the files met so far
    that cannot be decoded, and why. max_corrupt: how many are let pass.
    """

    images: np.ndarray | None = None

    def __init__(self, class_names: tuple[str, ...], labels: np.ndarray, max_corrupt: int = 0) -> None:
        self.class_names, self.labels, self.max_corrupt = class_names, labels, max_corrupt
        self.corrupt: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def __getitem__(self, index: int) -> tuple[Image.Image, int] | None:
        """An image in mode L or RGB and its label; None if its file is corrupt."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Facts for a JSON, without paths. Two sources with equal facts hold the same examples in the same order."""

    def name(self, index: int) -> str:
        """What an example is called in messages and in `corrupt`."""
        return str(index)

    @property
    def channels(self) -> int:
        """1 if the images are grey, 3 if they have colours, as the first of them show."""
        if self.images is not None:
            return self.images.shape[3]
        examples = (self[index] for index in range(min(_LOOKED_AT, len(self))))
        modes = {example[0].mode for example in examples if example is not None}
        return 1 if modes == {"L"} else 3


class ArraySource(Source):
    """Images of one size in an array.

    images: uint8 (n, h, w, c) with c of 1 or 3, or (n, h, w). labels: integers (n,), below `len(class_names)`; None for images
    without classes. kind and split are facts of the source; `place` appears in errors only.
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
        """Kind, split, number of examples, image shape and a hash of the content."""
        content = hashlib.sha256(np.ascontiguousarray(self.images).data)
        content.update(self.labels.astype("<i8").tobytes())
        facts = {"kind": self.kind, "split": self.split, "examples": len(self)}
        return facts | {"image_shape": list(self.images.shape[1:]), "content_sha256": content.hexdigest()}


class FolderSource(Source):
    """Image files of a folder, given by their names seen from it.

    `source[i]` is (image in mode L or RGB, label), or None for a file that cannot be decoded. Such files are kept in
    `corrupt` (name -> reason); one more of them than `max_corrupt` is an `InputError`.
    """

    def __init__(
        self, folder: Path, files: list[str], labels: np.ndarray, class_names: tuple[str, ...], split: str = "train"
    ) -> None:
        super().__init__(class_names, labels)
        self.folder, self.split, self._files = folder, split, files

    def __getitem__(self, index: int) -> tuple[Image.Image, int] | None:
        name = self._files[index]
        try:
            return read_image(self.folder / name), int(self.labels[index])
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # the disk or the permissions, not the content
                raise InputError(f"{self.folder / name} cannot be read: {error.strerror}") from error
            self.corrupt[name] = str(error) or type(error).__name__
        check_corrupt(self.folder, self.corrupt, self.max_corrupt)
        return None

    def name(self, index: int) -> str:
        """Its file, seen from the folder."""
        return self._files[index]

    def describe(self) -> dict[str, Any]:
        """Kind, split, number of examples and a hash of the list of files."""
        listing = hashlib.sha256("\n".join(self._files).encode("utf-8", "surrogateescape"))
        return {"kind": "folder", "split": self.split, "examples": len(self), "listing_sha256": listing.hexdigest()}


def open_class_folders(path: Path, split: str, max_corrupt: int) -> FolderSource:
    """Class folders in sorted order give the labels; files of a class come in sorted order of their names.

    Images in a folder without class folders have no classes.
    """
    folder = _split_folder(path, split)
    classes = _class_folders(folder)
    if classes:
        files = [_image_files(folder, name) for name in classes]
        for name, found in zip(classes, files, strict=True):
            if not found:
                raise InputError(f"{folder / name} holds no image; remove the class folder or fill it")
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
    """Images in a folder without class folders. Labels are known of what `token-critic sample` wrote, -1 of others."""
    names = _images_in(folder)
    if not names:
        raise InputError(f"{folder} holds no image; expected a model folder, images, or class folders of images")
    own = [match for name in names if (match := OWN_SAMPLE.fullmatch(name))]
    labelled = [match for match in own if match[1] is not None]
    if labelled:
        files, labels = [match[0] for match in labelled], [int(match[1]) for match in labelled]
    else:  # without classes too, the grid beside the samples is none of them
        files = [match[0] for match in own] if {*names} - {match[0] for match in own} == {"grid.png"} else names
        labels = [-1] * len(files)
    return FolderSource(folder, files, np.array(labels, np.int64), ())


def to_picture(pixels: np.ndarray) -> Image.Image:
    """uint8 (h, w, c) -> a picture in mode L for one channel, RGB for three."""
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def check_arrays(place: object, dtype: np.dtype, shape: tuple[int, ...], labels: np.ndarray | None) -> None:
    """Raises InputError unless an array of this type and shape holds images, and labels one integer for each of them."""
    if dtype != np.uint8 or len(shape) != 4 or shape[3] not in (1, 3) or 0 in shape:
        raise InputError(f"{place} holds images {dtype} {shape}; expected uint8 (n, h, w, c), c 1 or 3, none of them 0")
    if labels is not None and (labels.shape != shape[:1] or labels.dtype.kind not in "iu"):
        found = f"{labels.dtype} {labels.shape}"
        raise InputError(f"{place} holds labels {found}; expected integers {shape[:1]}, one per image")


def check_corrupt(place: object, corrupt: Mapping[str, str], limit: int) -> None:
    """More corrupt files than the limit are an error that names the first few."""
    if len(corrupt) > limit:
        first = "; ".join(f"{name} ({reason})" for name, reason in sorted(corrupt.items())[:3])
        raise InputError(f"{place} has {len(corrupt)} corrupt files, more than max_corrupt {limit}: {first}")


def read_image(
    file: Path | IO[bytes], most_pixels: int | None = None, formats: tuple[str, ...] | None = None
) -> Image.Image:
    """Decode a file of any mode to L or RGB, upright. Transparent parts become white; 16 bits become 8.

    most_pixels: of width times height, looked up before anything is decoded. formats: None for all that Pillow knows.
    """
    with Image.open(file, formats=formats) as image:
        if most_pixels is not None and image.width * image.height > most_pixels:
            raise Image.DecompressionBombError(f"more than {most_pixels} pixels")
        image.load()
        with suppress(Exception):  # Pillow raises what it likes on odd EXIF; the pixels are whole
            ImageOps.exif_transpose(image, in_place=True)
        if image.mode.startswith("I"):
            values = np.asarray(image).astype(np.int64)
            if values.min() < 0 or values.max() > 65535:
                raise ValueError(f"mode {image.mode} with values beyond 16 bits")
            return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))
        mode = "L" if image.mode in ("1", "L", "LA", "La") else "RGB"
        if image.has_transparency_data:
            if image.mode == "La":  # Pillow knows the way back from premultiplied grey only to LA
                image = image.convert("LA")
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return image.convert(mode)


def _split_folder(folder: Path, split: str) -> Path:
    """The sub-folder of a split if the folder has any (a folder of folders, so that a class may be called "train")."""
    present = {name: folder / name for names in _SPLITS.values() for name in names if _class_folders(folder / name)}
    for name in _SPLITS[split]:
        if name in present:
            return present[name]
    if present or split != "train":
        raise InputError(
            f"{folder} has no {' or '.join(_SPLITS[split])} folder of class folders for the {split} split; "
            "point at the class folders themselves to use them whatever their split"
        )
    return folder


def _class_folders(folder: Path) -> list[str]:
    entries = folder.iterdir() if folder.is_dir() else ()
    return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def _images_in(folder: Path) -> list[str]:
    """The names of the images that lie in the folder itself, sorted."""
    images = (path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES and path.name[0] != ".")
    return sorted(path.name for path in images if path.is_file())


def _image_files(folder: Path, name: str) -> list[str]:
    """Names relative to `folder`, with / between their parts, of the images at any depth below a class folder."""
    found = []
    for place, _, files in os.walk(folder / name):
        relative = Path(place).relative_to(folder).as_posix()
        found += [f"{relative}/{file}" for file in files if file.lower().endswith(_SUFFIXES) and file[0] != "."]
    return sorted(found)
