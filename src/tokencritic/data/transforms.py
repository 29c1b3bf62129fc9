"""Cropping, resizing and flipping of images to the size and channels of a tokenizer; image batches for training."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import tee
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tokencritic.data.feeding import read_ahead
from tokencritic.data.source import Source, to_picture
from tokencritic.distribution import send
from tokencritic.errors import InputError, check_at_least
from tokencritic.randomness import crop_uniforms

Crop = Literal["center", "random"]
Images = Sequence[Image.Image] | np.ndarray
ImagesRead = tuple[Tensor, Tensor, dict[str, str]]
"""Images uint8 (b, c, h, w), labels (b,) int64, and the reasons by name of all corrupt files so far."""

# The number of random boxes tried before a central box is used. Of the 24 uniforms of an image, the first 20 give the
# areas and aspect ratios of the boxes, the next 2 the position, and the last one the flip.
_ATTEMPTS = 10
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Preprocess:
    """Preprocessing of images: crop, resize and flip.

    size: height and width of the result.
    channels: 1 (grey) or 3.
    crop: "center" resizes the short side and takes the central square. "random" resizes a box whose share of the area
    is in `scale` and whose aspect ratio (width / height) is in `ratio`.
    flip: mirror each image with probability 1/2.

    All randomness is a pure function of (seed, crop_number, index).
    """

    size: int
    channels: int = 3
    crop: Crop = "center"
    flip: bool = False
    scale: tuple[float, float] = field(default=(0.08, 1.0), init=False)
    ratio: tuple[float, float] = field(default=(3 / 4, 4 / 3), init=False)

    def __post_init__(self) -> None:
        check_at_least(1, size=self.size)
        if self.channels not in (1, 3):
            raise InputError(f"channels is {self.channels}; it must be 1 or 3")
        if self.crop not in ("center", "random"):
            raise InputError(f"crop is {self.crop!r}; choose one of center, random")

    def batch(
        self, images: Images, indices: Sequence[int] | np.ndarray, *, seed: int = 0, crop_number: int = 0
    ) -> Tensor:
        """Preprocess a batch of images. Returns uint8 (b, c, size, size).

        images: a sequence of Pillow images, or one array uint8 (b, h, w, c).
        indices: (b,), the index of each image in its source.
        """
        used = indices if self.flip or self.crop == "random" else ()
        draws = crop_uniforms(used, seed, crop_number)
        fitting = [(self.size, self.size, channels) for channels in (1, self.channels)]
        # Images that need neither a resize nor a conversion to grey are processed as one array.
        if self.crop == "center" and isinstance(images, np.ndarray) and images.shape[1:] in fitting:
            pixels = images if images.shape[3] == self.channels else np.repeat(images, self.channels, axis=3)
        else:
            pixels = self._resize_each(images, draws)
        if self.flip:
            pixels = np.where(draws[:, -1, None, None, None] < 0.5, pixels[:, :, ::-1], pixels)
        return torch.from_numpy(np.array(pixels.transpose(0, 3, 1, 2), order="C"))

    def _resize_each(self, images: Images, draws: np.ndarray) -> np.ndarray:
        images = [to_picture(image) if isinstance(image, np.ndarray) else image for image in images]
        mode = "L" if self.channels == 1 else "RGB"
        if mode == "L":
            images = [image.convert(mode) for image in images]
        if self.crop == "random":
            sizes = np.array([image.size for image in images]).reshape(-1, 2)
            boxes = random_boxes(sizes, draws, self.scale, self.ratio).tolist()
            cropped = (image.crop(tuple(box)) for image, box in zip(images, boxes, strict=True))
            resized = [image.resize((self.size, self.size), Image.Resampling.BICUBIC) for image in cropped]
        else:
            resized = [center_crop(image, self.size) for image in images]
        content = b"".join(image.convert(mode).tobytes() for image in resized)  # faster than stacking arrays
        return np.frombuffer(content, np.uint8).reshape(-1, self.size, self.size, self.channels)


def to_float(pixels: Tensor) -> Tensor:
    """Convert uint8 of any shape to float32 in [0, 1]."""
    return pixels.float().div_(255)


def center_crop(image: Image.Image, size: int) -> Image.Image:
    """Resize the short side to `size` and take the central square.

    As in ADM, the image is first halved with a box filter as often as possible, then resized with a bicubic filter.
    """
    while min(image.size) >= 2 * size:
        image = image.resize((image.width // 2, image.height // 2), Image.Resampling.BOX)
    factor = size / min(image.size)
    wanted = round(image.width * factor), round(image.height * factor)
    if image.size != wanted:
        image = image.resize(wanted, Image.Resampling.BICUBIC)
    left, top = (image.width - size) // 2, (image.height - size) // 2
    return image.crop((left, top, left + size, top + size))


def random_boxes(
    sizes: np.ndarray, draws: np.ndarray, scale: tuple[float, float], ratio: tuple[float, float]
) -> np.ndarray:
    """Sample the box of a random resized crop: the first of ten random boxes that fits, else the largest central box.

    sizes: (b, 2), width and height of each image.
    draws: (b, 24), uniforms of each image.
    scale, ratio: ranges of the share of the area and of the aspect ratio.

    Returns (b, 4) int64: left, top, right, bottom.
    """
    low, high = np.log(ratio)
    # fmt: off
    shares = scale[0] + (scale[1] - scale[0]) * draws[:, :_ATTEMPTS]                         # b attempts
    ratios = np.exp(low + (high - low) * draws[:, _ATTEMPTS : 2 * _ATTEMPTS])                # b attempts
    areas = sizes.prod(axis=1, keepdims=True) * shares                                       # b attempts
    tried = np.rint(np.sqrt(np.stack([areas * ratios, areas / ratios], axis=2)))             # b attempts 2
    fits = np.all((tried >= 1) & (tried <= sizes[:, None]), axis=2, keepdims=True)           # b attempts 1
    found = np.any(fits, axis=1)                                                             # b 1
    first = np.take_along_axis(tried, fits.argmax(axis=1, keepdims=True), axis=1)[:, 0]      # b 2
    limits = sizes[:, ::-1] * np.array([ratio[1], 1 / ratio[0]])                             # b 2
    middle = np.maximum(1, np.minimum(sizes, np.rint(limits)))                               # b 2
    boxes = np.where(found, first, middle).astype(np.int64)                                  # b 2
    places = np.where(found, draws[:, 2 * _ATTEMPTS : 2 * _ATTEMPTS + 2], 0.5)               # b 2
    corners = np.floor(places * (sizes - boxes + 1)).astype(np.int64)                        # b 2
    # fmt: on
    return np.concatenate([corners, corners + boxes], axis=1)


class ImageBatches:
    """Batches of images for training: a callable from rows and a step to images with random crops and flips.

    A file that cannot be decoded is replaced by the next one in the source that can.

    workers: processes that read image files inside of `reading_ahead`. Images in an array are read in this process.
    """

    def __init__(self, source: Source, preprocess: Preprocess, seed: int = 0, workers: int = 0) -> None:
        check_at_least(0, workers=workers)
        self.source, self.preprocess, self.seed, self.workers = source, preprocess, seed, workers
        self._read = RowReader(source, preprocess, seed)
        self._ahead: Iterator[tuple[tuple[Tensor, int], ImagesRead]] | None = None

    def __len__(self) -> int:
        return len(self.source)

    def __call__(self, rows: Tensor, step: int | None, device: torch.device = _CPU) -> Tensor:
        """Return images: float (b, c, h, w) in [0, 1] on a device.

        rows: (b,) int64, indices into the source.
        step: determines crops and flips. None gives the center crop without a flip.
        """
        return self.labelled(rows, step, device)[0]

    def labelled(self, rows: Tensor, step: int | None, device: torch.device = _CPU) -> tuple[Tensor, Tensor]:
        """Return the images of `__call__` and their labels (b,) int64."""
        if step is None or self._ahead is None:
            pixels, labels, corrupt = self._read(rows.cpu().numpy(), step)
        else:
            (next_rows, next_step), (pixels, labels, corrupt) = next(self._ahead)
            if next_step != step or not next_rows.equal(rows.cpu()):
                raise ValueError(f"step {step} is asked for; expected step {next_step}, whose images were read ahead")
        self.source.add_corrupt(corrupt)
        return to_float(send(pixels, device)), send(labels, device)

    @contextmanager
    def reading_ahead(
        self, parts: Iterable[tuple[Tensor, int]], images: int, device: torch.device = _CPU
    ) -> Iterator[None]:
        """Return a context in which workers read the images of `parts` ahead.

        parts: rows (b,) and step of each call. Calls with a step must follow this order.
        images: the number of rows of all parts.
        """
        own, ahead = tee(parts)
        calls = ((rows.numpy(), step) for rows, step in ahead)
        workers = self.workers if self.source.images is None else 0
        with read_ahead(self._read, calls, images, workers, device) as read:
            self._ahead = zip(own, read, strict=False)
            try:
                yield
            finally:
                self._ahead = None

    def facts(self) -> dict[str, Any]:
        """Return the JSON values that determine the images: the source and the preprocessing."""
        return {"source": self.source.describe(), "preprocess": dataclasses.asdict(self.preprocess)}


@dataclass(frozen=True)
class RowReader:
    """A function that reads the images of a training step. Arguments are those of `ImageBatches`."""

    source: Source
    preprocess: Preprocess
    seed: int

    def __call__(self, rows: np.ndarray, step: int | None) -> ImagesRead:
        source, preprocess = self.source, self.preprocess
        if source.images is not None:
            images, labels = source.images[rows], source.labels[rows]
        else:
            images, labels = zip(*map(self._whole, rows.tolist()), strict=True)
        if step is None:
            preprocess = dataclasses.replace(preprocess, crop="center", flip=False)
        pixels = preprocess.batch(images, rows, seed=self.seed, crop_number=step or 0)
        return pixels, torch.from_numpy(np.asarray(labels, np.int64)), source.corrupt

    def _whole(self, row: int) -> tuple[Image.Image, int]:
        for place in range(row, row + len(self.source)):
            example = self.source[place % len(self.source)]
            if example is not None:
                return example
        raise InputError(f"no image of the source can be decoded, such as {self.source.name(row)}; expected one")
