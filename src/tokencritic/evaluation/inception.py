"""The Inception-v3 of December 2015 that FID is defined with, as its TensorFlow graph has it, and its input resize.

It differs from later Inceptions in two ways that move every number: its average pools count no padding, and its last block
pools by maximum. Batch normalisation is folded into the convolutions when the weights are read.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

INPUT_SIZE = 299
DIMENSION = 2048
NUM_CLASSES = 1008


def resize_tf1(pixels: Tensor, size: int) -> Tensor:
    """The bilinear resize of TensorFlow 1 in the original graph: corners at the corner, no antialiasing.

    pixels: float32 (b, c, h, w) in [0, 255] -> (b, c, size, size). Output i lies at input i * old / new along each dimension,
    in float32 as in the graph; beyond the last input, at the last.
    """
    for dim in (3, 2):
        old = pixels.shape[dim]
        scale = torch.tensor(old / size, dtype=torch.float32)
        places = torch.arange(size, dtype=torch.float32, device=pixels.device) * scale
        low = places.long()
        high = (low + 1).clamp(max=old - 1)
        share = (places - low).view(-1, *[1] * (3 - dim))
        start = pixels.index_select(dim, low)
        pixels = start + (pixels.index_select(dim, high) - start) * share
    return pixels


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


def _average_pool() -> nn.Module:
    """3 x 3 at every place, of the pixels that are there."""
    return nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)


class Inception(nn.Module):
    """The network from images to the features of its last pooling layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
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
            _block_e(1280, _average_pool()),
            _block_e(2048, nn.MaxPool2d(3, stride=1, padding=1)),
        )

    def convolutions(self) -> list[Convolution]:
        """All of them, in the order in which `weights.py` names them."""
        return [module for module in self.modules() if isinstance(module, Convolution)]

    def forward(self, x: Tensor) -> Tensor:
        """x: (b, 3, 299, 299) in [-1, 1). Returns features (b, 2048)."""
        return self.layers(x.contiguous(memory_format=torch.channels_last)).mean((2, 3))


def _chain(inputs: int, *convolutions: tuple[int, int | tuple[int, int]]) -> list[Convolution]:
    """Convolutions of stride 1 in a row, each given by its outputs and its kernel."""
    widths = [inputs, *(outputs for outputs, _ in convolutions)]
    return [Convolution(old, new, kernel) for old, (new, kernel) in zip(widths, convolutions, strict=False)]


def _block_a(inputs: int, pooled: int) -> Mixed:
    return Mixed(
        Convolution(inputs, 64, 1),
        nn.Sequential(*_chain(inputs, (48, 1), (64, 5))),
        nn.Sequential(*_chain(inputs, (64, 1), (96, 3), (96, 3))),
        nn.Sequential(_average_pool(), Convolution(inputs, pooled, 1)),
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
        nn.Sequential(_average_pool(), Convolution(inputs, 192, 1)),
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
