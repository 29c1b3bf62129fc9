"""The forms in which a user holds images: pictures of Pillow, arrays, tensors."""

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

_one_at_a_time = threading.Lock()  # so that many large pictures at once do not fill the memory


def read_picture(
    file: Path | IO[bytes], name: str, most_pixels: int | None = None, formats: tuple[str, ...] | None = None
) -> Image.Image:
    """A picture in mode L or RGB, upright; of an animation the first frame; what is transparent becomes white.

    name: what an error calls it. most_pixels, formats: as for `read_image`; without, Pillow's own bound of pixels holds.
    """
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            return read_image(file, most_pixels, formats)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            most = most_pixels or Image.MAX_IMAGE_PIXELS
            raise InputError(f"{name} is too large: at most {most} pixels are taken") from error
        except BROKEN as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or reason_of(error)
            if isinstance(error, Image.UnidentifiedImageError):  # its message holds the address of the stream
                reason = "cannot identify image file"
            raise InputError(f"{name} is no image that can be read: {reason}") from error


def to_pil(image: np.ndarray) -> Image.Image:
    """(h, w, c) in [0, 1] -> a picture in mode L for one channel, RGB for three."""
    return to_picture((image * 255).round().astype(np.uint8))


def to_images(given: Any, size: int, channels: int) -> Tensor:
    """Images in any form -> float (b, channels, size, size) in [0, 1].

    given: one picture in mode L or RGB or a sequence of them, or uint8 (b, h, w, c), of any size: their middle square is taken
    and resized. Floats, an array (b, h, w, c) or a tensor (b, c, h, w), are taken as they are.
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
    """Images of one of the two forms that measures and sample files take, as a tensor of the same layout.

    uint8 (b, h, w, c), an array or a tensor, or float (b, c, h, w) in [0, 1]; c is 1 or 3. Anything else is an error.
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
    """Checked images -> float32 (b, 3, h, w), whole numbers from 0 to 255.

    Floats are rounded to the levels that an image file holds, so that a number is the same from files and from memory.
    """
    pixels = images.permute(0, 3, 1, 2).float() if images.dtype == torch.uint8 else images.float().mul(255).round()
    return pixels.expand(-1, 3, -1, -1)
