"""Image sources whose images are one array in memory."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from PIL import Image

from tokencritic.errors import InputError


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Images of one size in an array.

    images: uint8 (n, h, w, c) with c of 1 or 3, or (n, h, w). labels: integers (n,), below `len(class_names)`.
    kind, split and place say where they came from; `place` appears in errors only.
    """

    images: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]
    kind: str
    split: str
    place: str

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        if images.ndim == 3:
            images = images[..., None]
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3) or 0 in images.shape:
            shape = f"{images.dtype} {tuple(self.images.shape)}"
            raise InputError(f"{self.place} holds images {shape}; expected uint8 (n, h, w) or (n, h, w, 1 or 3)")
        if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu":
            shape = f"{labels.dtype} {tuple(labels.shape)}"
            raise InputError(f"{self.place} holds labels {shape}; expected integers ({len(images)},), one per image")
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= len(self.class_names):
            bad = low if low < 0 else high
            raise InputError(f"{self.place} holds label {bad}; expected 0 to {len(self.class_names) - 1}")
        object.__setattr__(self, "images", images)
        object.__setattr__(self, "labels", labels.astype(np.int64))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        image = self.images[index]
        return Image.fromarray(image[..., 0] if image.shape[2] == 1 else image), int(self.labels[index])

    def batch(self, indices: Sequence[int] | np.ndarray | slice) -> tuple[np.ndarray, np.ndarray]:
        """Several examples at once: uint8 (b, h, w, c) and int64 (b,)."""
        return self.images[indices], self.labels[indices]

    def name(self, index: int) -> str:
        """What an example is called in messages: its number."""
        return str(index)

    @property
    def corrupt(self) -> Mapping[str, str]:
        """Always empty: an array is whole or is not opened."""
        return {}

    @property
    def max_corrupt(self) -> int:
        return 0

    def describe(self) -> dict[str, Any]:
        """Facts for a JSON, without paths: kind, split, number of examples, image shape and a hash of the content."""
        return {
            "kind": self.kind,
            "split": self.split,
            "examples": len(self),
            "image_shape": list(self.images.shape[1:]),
            "content_sha256": self._content_hash,
        }

    @cached_property
    def _content_hash(self) -> str:
        content = hashlib.sha256(np.ascontiguousarray(self.images).data)
        content.update(self.labels.astype("<i8").tobytes())
        return content.hexdigest()


def numbered_classes(*labels: np.ndarray) -> tuple[str, ...]:
    """Names for classes that have none: "0", "1", ... up to the highest label that occurs."""
    return tuple(
        str(number) for number in range(max((int(some.max()) for some in labels if some.size), default=-1) + 1)
    )
