"""What every image source is, and the one whose images are an array in memory."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from PIL import Image

from tokencritic.errors import InputError

Split = Literal["train", "test"]

_LOOKED_AT = 16  # images of a source that are opened to see whether any of them has colours


class Source(ABC):
    """Labelled images by number.

    images: all of them, uint8 (n, h, w, c), or None where each is decoded when it is asked for. labels: (n,) int64, -1 where
    they are not known. corrupt: the files met so far that cannot be decoded, and why. max_corrupt: how many are let pass.
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

    images: uint8 (n, h, w, c) with c of 1 or 3, or (n, h, w). labels: integers (n,), below `len(class_names)`.
    kind and split are facts of the source; `place` appears in errors only.
    """

    images: np.ndarray

    def __init__(
        self, images: np.ndarray, labels: np.ndarray, class_names: tuple[str, ...], kind: str, split: str, place: str
    ) -> None:
        shape = f"{images.dtype} {tuple(images.shape)}"
        if images.ndim == 3:
            images = images[..., None]
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3) or 0 in images.shape:
            raise InputError(f"{place} holds images {shape}; expected uint8 (n, h, w) or (n, h, w, 1 or 3)")
        check_labels(place, labels, len(images))
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= len(class_names):
            bad = low if low < 0 else high
            raise InputError(f"{place} holds label {bad}; expected 0 to {len(class_names) - 1}")
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


def to_picture(pixels: np.ndarray) -> Image.Image:
    """uint8 (h, w, c) -> a picture in mode L for one channel, RGB for three."""
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def check_labels(place: object, labels: np.ndarray, count: int) -> None:
    """Raises InputError unless there is one integer for each of `count` images."""
    if labels.shape != (count,) or labels.dtype.kind not in "iu":
        found = f"{labels.dtype} {tuple(labels.shape)}"
        raise InputError(f"{place} holds labels {found}; expected integers ({count},), one per image")


def check_corrupt(place: object, corrupt: Mapping[str, str], limit: int) -> None:
    """More corrupt files than the limit are an error that names the first few."""
    if len(corrupt) > limit:
        first = "; ".join(f"{name} ({reason})" for name, reason in sorted(corrupt.items())[:3])
        raise InputError(f"{place} has {len(corrupt)} corrupt files, more than max_corrupt {limit}: {first}")
