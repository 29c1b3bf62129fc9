"""How images come to the size that Inception takes. The choice moves FID by more than many papers' differences."""

from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tokencritic.errors import InputError

Resize = Literal["tf1", "clean"]


def resize(pixels: Tensor, size: int, how: Resize) -> Tensor:
    """pixels: float32 (b, c, h, w) in [0, 255] -> (b, c, size, size). An image of that size passes unchanged.

    "tf1": the bilinear resize of TensorFlow 1 inside the original graph: corners at the corner, no antialiasing.
    "clean": Pillow's bicubic, which is antialiased, in floating point (Parmar et al., "On aliased resizing", 2022).
    """
    check_resize(how)
    if pixels.shape[2:] == (size, size):
        return pixels
    return _RESIZES[how](pixels, size)


def check_resize(how: str) -> None:
    """Only the resizes named above are known."""
    if how not in _RESIZES:
        raise InputError(f"resize is {how!r}; choose one of {', '.join(_RESIZES)}")


def _tf1(pixels: Tensor, size: int) -> Tensor:
    return _interpolate(_interpolate(pixels, size, 3), size, 2)


def _interpolate(pixels: Tensor, size: int, dim: int) -> Tensor:
    """Along one dimension. Output i lies at input i * old / new, in float32 as in the graph; beyond the last, the last."""
    old = pixels.shape[dim]
    places = torch.arange(size, dtype=torch.float32, device=pixels.device) * torch.tensor(
        old / size, dtype=torch.float32
    )
    low = places.long()
    high = (low + 1).clamp(max=old - 1)
    share = (places - low).view(-1, *[1] * (3 - dim))
    start = pixels.index_select(dim, low)
    return start + (pixels.index_select(dim, high) - start) * share


def _clean(pixels: Tensor, size: int) -> Tensor:
    planes = pixels.flatten(0, 1).cpu().numpy()
    resized = [Image.fromarray(plane).resize((size, size), Image.Resampling.BICUBIC) for plane in planes]
    stacked = torch.from_numpy(np.stack([np.asarray(plane) for plane in resized])).clamp_(0, 255)
    return stacked.view(*pixels.shape[:2], size, size).to(pixels.device)


_RESIZES = {"tf1": _tf1, "clean": _clean}
