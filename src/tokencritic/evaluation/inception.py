"""The Inception-v3 of December 2015 that FID is defined with, as its TensorFlow graph has it.

It differs from later Inceptions in two ways that move every number: its average pools count no padding, and its last block
pools by maximum. Batch normalisation is folded into the convolutions when the weights are read.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

INPUT_SIZE = 299
NUM_CLASSES = 1008
# After how many layers the features of each dimension are taken: before the second, third and fourth stage, and last.
TAPS = {64: 4, 192: 7, 768: 15, 2048: 18}
# sFID: the first 7 channels of the block "mixed_6", 17 x 17 places.
SPATIAL_DIMENSION = 17 * 17 * 7
_SPATIAL_LAYERS = 14
_SPATIAL_CHANNELS = 7


class Activations(NamedTuple):
    """features: (b, d). spatial: (b, 2023), place by place, or None where it was not asked for."""

    features: Tensor
    spatial: Tensor | None


class Convolution(nn.Module):
    """Convolution, bias and ReLU. `kernel` and `padding` are of the height and the width."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int | tuple[int, int], stride: int = 1, padded: bool = True
    ) -> None:
        super().__init__()
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        self.stride = stride
        self.padding = (height // 2, width // 2) if padded else (0, 0)
        self.weight = nn.Parameter(torch.empty(outputs, inputs, height, width), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu_(F.conv2d(x, self.weight, self.bias, self.stride, self.padding))


class Mixed(nn.Module):
    """Branches side by side, their channels one after the other."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class AveragePool(nn.Module):
    """3 x 3 at every place, of the pixels that are there."""

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


class Inception(nn.Module):
    """Images to features. `dimension` names the depth at which they are taken; layers beyond it are not made."""

    def __init__(self, dimension: int = 2048) -> None:
        super().__init__()
        layers = [
            Convolution(3, 32, 3, stride=2, padded=False),
            Convolution(32, 32, 3, padded=False),
            Convolution(32, 64, 3),
            nn.MaxPool2d(3, stride=2),
            Convolution(64, 80, 1),
            Convolution(80, 192, 3, padded=False),
            nn.MaxPool2d(3, stride=2),
            _block_a(192, pooled=32),
            _block_a(256, pooled=64),
            _block_a(288, pooled=64),
            _block_b(288),
            *(_block_c(768, width) for width in (128, 160, 160, 192)),
            _block_d(768),
            _block_e(1280, AveragePool()),
            _block_e(2048, nn.MaxPool2d(3, stride=1, padding=1)),
        ]
        self.layers = nn.ModuleList(layers[: TAPS[dimension]])

    def convolutions(self) -> list[Convolution]:
        """All of them, in the order in which `weights.py` names them."""
        return [module for module in self.modules() if isinstance(module, Convolution)]

    def forward(self, x: Tensor, spatial: bool = False) -> Activations:
        """x: (b, 3, 299, 299) in [-1, 1). Returns features (b, d) and, if asked for, spatial features (b, 2023)."""
        x = x.contiguous(memory_format=torch.channels_last)
        places = None
        for number, layer in enumerate(self.layers, start=1):
            x = layer(x)
            if spatial and number == _SPATIAL_LAYERS:
                places = x[:, :_SPATIAL_CHANNELS].permute(0, 2, 3, 1).flatten(1)
        return Activations(x.mean((2, 3)), places)


def _chain(inputs: int, *convolutions: tuple[int, int | tuple[int, int]]) -> list[Convolution]:
    """Convolutions of stride 1 in a row, each given by its outputs and its kernel."""
    widths = [inputs, *(outputs for outputs, _ in convolutions)]
    return [Convolution(old, new, kernel) for old, (new, kernel) in zip(widths, convolutions, strict=False)]


def _block_a(inputs: int, pooled: int) -> Mixed:
    return Mixed(
        Convolution(inputs, 64, 1),
        nn.Sequential(*_chain(inputs, (48, 1), (64, 5))),
        nn.Sequential(*_chain(inputs, (64, 1), (96, 3), (96, 3))),
        nn.Sequential(AveragePool(), Convolution(inputs, pooled, 1)),
    )


def _block_b(inputs: int) -> Mixed:
    return Mixed(
        Convolution(inputs, 384, 3, stride=2, padded=False),
        nn.Sequential(*_chain(inputs, (64, 1), (96, 3)), Convolution(96, 96, 3, stride=2, padded=False)),
        nn.MaxPool2d(3, stride=2),
    )


def _block_c(inputs: int, width: int) -> Mixed:
    flat, tall = (1, 7), (7, 1)
    return Mixed(
        Convolution(inputs, 192, 1),
        nn.Sequential(*_chain(inputs, (width, 1), (width, flat), (192, tall))),
        nn.Sequential(*_chain(inputs, (width, 1), (width, tall), (width, flat), (width, tall), (192, flat))),
        nn.Sequential(AveragePool(), Convolution(inputs, 192, 1)),
    )


def _block_d(inputs: int) -> Mixed:
    return Mixed(
        nn.Sequential(*_chain(inputs, (192, 1)), Convolution(192, 320, 3, stride=2, padded=False)),
        nn.Sequential(
            *_chain(inputs, (192, 1), (192, (1, 7)), (192, (7, 1))),
            Convolution(192, 192, 3, stride=2, padded=False),
        ),
        nn.MaxPool2d(3, stride=2),
    )


def _block_e(inputs: int, pool: nn.Module) -> Mixed:
    def fork() -> Mixed:
        return Mixed(Convolution(384, 384, (1, 3)), Convolution(384, 384, (3, 1)))

    return Mixed(
        Convolution(inputs, 320, 1),
        nn.Sequential(*_chain(inputs, (384, 1)), fork()),
        nn.Sequential(*_chain(inputs, (448, 1), (384, 3)), fork()),
        nn.Sequential(pool, Convolution(inputs, 192, 1)),
    )
