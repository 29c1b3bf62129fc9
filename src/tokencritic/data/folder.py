"""A folder of class folders of image files, as ImageNet is unpacked."""

import hashlib
import os
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import Image, ImageOps

from tokencritic.data.source import Source, check_corrupt
from tokencritic.errors import InputError

_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".jp2")
_SPLITS = {"train": ("train",), "test": ("val", "validation", "valid", "test")}
_SYNSET = re.compile(r"n\d{8}")
_SYNSET_FILES = ("LOC_synset_mapping.txt", "synset_words.txt", "words.txt")
_PARENTS_SEARCHED = 3  # the usual archive has its mapping beside ILSVRC/Data/CLS-LOC


class FolderSource(Source):
    """Class folders in sorted order give the labels; files of a class come in sorted order of their names.

    `source[i]` is (image in mode L or RGB, label), or None for a file that cannot be decoded. Such files are kept in
    `corrupt` (name -> reason); one more of them than `max_corrupt` is an `InputError`.
    """

    def __init__(self, folder: Path, split: str, max_corrupt: int) -> None:
        self.folder, self.split = _split_folder(folder, split), split
        classes = _class_folders(self.folder)
        if not classes:
            raise InputError(f"{self.folder} has no class folders; expected one folder of images per class")
        files = [_image_files(self.folder, name) for name in classes]
        for name, found in zip(classes, files, strict=True):
            if not found:
                raise InputError(f"{self.folder / name} holds no image; remove the class folder or fill it")
        labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(found) for found in files])
        super().__init__(_names(folder, classes), labels, max_corrupt)
        self._files = [file for found in files for file in found]

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
        """Its file, seen from the folder of class folders."""
        return self._files[index]

    def describe(self) -> dict[str, Any]:
        """Kind, split, number of examples and a hash of the list of files."""
        listing = hashlib.sha256("\n".join(self._files).encode("utf-8", "surrogateescape"))
        return {"kind": "folder", "split": self.split, "examples": len(self), "listing_sha256": listing.hexdigest()}


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
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def _image_files(folder: Path, name: str) -> list[str]:
    """Names relative to `folder`, with / between their parts, of the images at any depth below a class folder."""
    found = []
    for place, _, files in os.walk(folder / name):
        relative = Path(place).relative_to(folder).as_posix()
        found += [f"{relative}/{file}" for file in files if file.lower().endswith(_SUFFIXES) and file[0] != "."]
    return sorted(found)


def _names(folder: Path, classes: list[str]) -> tuple[str, ...]:
    """The folders' names; ImageNet's synset ids become words where a list of them lies in the folder or above it."""
    if not all(_SYNSET.fullmatch(name) for name in classes):
        return tuple(classes)
    places = [folder, *list(folder.resolve().parents)[:_PARENTS_SEARCHED]]
    lists = [place / name for place in places for name in _SYNSET_FILES if (place / name).is_file()]
    if not lists:
        return tuple(classes)
    lines = lists[0].read_text(encoding="utf-8", errors="replace").splitlines()
    words = {parts[0]: parts[1].strip() for line in lines if len(parts := line.split(maxsplit=1)) == 2}
    names = [words.get(name, name) for name in classes]
    often = Counter(names)  # ImageNet has two cranes, and a name must say which class it means
    return tuple(
        name if often[name] == 1 else f"{name} ({synset})" for name, synset in zip(names, classes, strict=True)
    )
