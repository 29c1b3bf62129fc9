"""Conversions between Pillow images, arrays and tensors."""

import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tokencritic.data.source import read_image, to_picture
from tokencritic.data.transforms import Preprocess, to_float
from tokencritic.errors import InputError
from tokencritic.files import BROKEN, reason_of

_one_at_a_time = threading.Lock()  # limits the memory of decoding large pictures in several threads


def read_picture(
    file: Path | IO[bytes], name: str, most_pixels: int | None = None, formats: tuple[str, ...] | None = None
) -> Image.Image:
    """Read a picture in mode L or RGB, as `read_image` does. Of an animation, the first frame is read.

    name: the name of the picture in error messages.
    most_pixels, formats: as in `read_image`. Without `most_pixels`, Pillow's limit applies.
    """
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            return read_image(file, most_pixels, formats)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            most = most_pixels or Image.MAX_IMAGE_PIXELS
            raise InputError(f"{name} is too large; expected at most {most} pixels") from error
        except BROKEN as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or reason_of(error)
            if isinstance(error, Image.UnidentifiedImageError):  # its message contains the address of the stream
                reason = "cannot identify image file"
            raise InputError(f"{name} is not a readable image: {reason}") from error


def to_pil(image: np.ndarray) -> Image.Image:
    """Convert floats (h, w, c) in [0, 1] to a Pillow image: mode L for one channel, RGB for three."""
    return to_picture((image * 255).round().astype(np.uint8))


def to_images(given: Any, size: int, channels: int) -> Tensor:
    """Convert images in any form to float (b, channels, size, size) in [0, 1].

    given: Pillow images in mode L or RGB, one or a sequence, or uint8 (b, h, w, c). They may have any size; the central
    square is cropped and resized. Floats, an array (b, h, w, c) or a tensor (b, c, h, w), are neither cropped nor
    resized.
    """
    if isinstance(given, Image.Image):
        given = [given]
    if isinstance(given, Sequence) and given and all(isinstance(picture, Image.Image) for picture in given):
        if odd := {picture.mode for picture in given} - {"L", "RGB"}:
            raise InputError(f"images holds a picture in mode {min(odd)}; convert it to L or RGB")
        return to_float(Preprocess(size, channels).batch(given, range(len(given))))
    if isinstance(given, np.ndarray) and given.ndim == 4 and given.shape[3] in (1, 3) and given.size:
        if given.dtype == np.uint8:
            return to_float(Preprocess(size, channels).batch(given, range(len(given))))
        if given.dtype.kind == "f":
            return torch.from_numpy(given.transpose(0, 3, 1, 2).astype(np.float32))
    if isinstance(given, Tensor) and given.ndim == 4 and given.is_floating_point() and given.numel():
        return given.float()
    shape = f" {given.dtype} {tuple(given.shape)}" if isinstance(given, np.ndarray | Tensor) else ""
    expected = "a picture or a list of them, uint8 or floats in [0, 1] (b, h, w, c), or a float tensor (b, c, h, w)"
    raise InputError(f"images is a {type(given).__name__}{shape}; expected {expected}")


def check_images(images: Tensor | np.ndarray) -> Tensor:
    """Check images and return them as a tensor of the same layout. Raises InputError for any other form.

    images: uint8 (b, h, w, c) or float (b, c, h, w) in [0, 1], an array or a tensor; c is 1 or 3.
    """
    images = torch.from_numpy(images) if isinstance(images, np.ndarray) else images
    is_uint8 = images.dtype == torch.uint8
    expected = "uint8 (b, h, w, c) or float (b, c, h, w) in [0, 1], c 1 or 3"
    known = is_uint8 or images.is_floating_point()
    if images.ndim != 4 or not known or images.shape[3 if is_uint8 else 1] not in (1, 3):
        raise InputError(f"images are {images.dtype} {tuple(images.shape)}; expected {expected}")
    if not is_uint8 and len(images):
        low, high = (float(value) for value in images.aminmax())
        if not (low >= 0 and high <= 1):  # false for NaN as well
            raise InputError(f"images hold values from {low} to {high}; expected {expected}")
    return images


def to_pixels(images: Tensor) -> Tensor:
    """Convert checked images to float32 (b, 3, h, w) with integer values from 0 to 255.

    Floats are rounded to the levels of an image file, so that metrics are the same for files and for tensors.
    """
    pixels = images.permute(0, 3, 1, 2).float() if images.dtype == torch.uint8 else images.float().mul(255).round()
    return pixels.expand(-1, 3, -1, -1)
