"""Tokenizers that others publish as torch weights: MaskGIT's VQGAN of open-muse and TiTok, and taming-transformers' VQGAN."""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.interop.assemble import Origin, assemble
from tokencritic.models.saved import without_start
from tokencritic.tokenizers.taming import TamingConfig, TamingVQGAN
from tokencritic.tokenizers.vqgan import VQGAN, VQGANConfig

_CODEBOOK = "quantize.embedding.weight"
_PUBLISHED_IMAGE_SIZE = 256


def import_muse_tokenizer(file: str | Path, image_size: int | None = None) -> VQGAN:
    """`maskgit-vqgan-imagenet-f16-256` of open-muse or TiTok (.safetensors, .bin or .pt), in eval mode.

    image_size: of the images it is for; the file does not tell, 256 without it. All other sizes are seen in the arrays.
    """
    tensors = read_state(file)
    codes, code_width, channels, filters, multipliers, blocks = _sizes(tensors, file)
    try:
        config = VQGANConfig(
            image_size or max(_PUBLISHED_IMAGE_SIZE, 2 ** (len(multipliers) - 1)),
            *(channels, filters, multipliers, blocks, codes, code_width),
        )
        with without_start():
            tokenizer = VQGAN(config)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    origins = {
        ours: Origin({_muse_name(ours, config): tuple(value.shape)}) for ours, value in tokenizer.state_dict().items()
    }
    assemble(tokenizer, origins, tensors, file)
    return tokenizer.eval()


def import_taming_tokenizer(file: str | Path, image_size: int | None = None) -> TamingVQGAN:
    """A VQGAN checkpoint of taming-transformers (Lightning .ckpt, or its state dict as .safetensors), in eval mode.

    image_size: as for `import_muse_tokenizer`. Entries of the training loss in the file are left out.
    """
    tensors = {name: value for name, value in read_state(file).items() if not name.startswith("loss.")}
    codes, code_width, channels, filters, multipliers, blocks = _sizes(tensors, file)
    levels = {int(match[1]) for name in tensors if (match := re.match(r"encoder\.down\.(\d+)\.attn\.", name))}
    try:
        config = TamingConfig(
            image_size or max(_PUBLISHED_IMAGE_SIZE, 2 ** (len(multipliers) - 1)),
            *(channels, filters, multipliers, blocks, tuple(sorted(levels))),
            *(_shape(tensors, "quant_conv.weight", 4, file)[1], codes, code_width),
        )
        with without_start():
            tokenizer = TamingVQGAN(config)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    origins = {
        ours: Origin({_CODEBOOK if ours == "quantizer.codebook" else ours: tuple(value.shape)})
        for ours, value in tokenizer.state_dict().items()
    }
    assemble(tokenizer, origins, tensors, file)
    return tokenizer.eval()


def read_state(file: str | Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file or of a torch file, there also those under its key `state_dict`."""
    path = Path(file)
    if not path.is_file():
        raise InputError(f"{path} is no file; expected a .safetensors, .ckpt, .bin or .pt file")
    if path.suffix == ".safetensors":
        try:
            return safetensors.torch.load_file(path)
        except (safetensors.SafetensorError, OSError) as error:
            raise InputError(f"{path} is not a whole safetensors file: {error}") from error
    state: Any = _load(path)
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{path} holds no state dict; expected names with tensors, or such a map under 'state_dict'")
    return dict(state)


def _load(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "weights_only" not in str(error) and "Unsupported" not in str(error):
            raise InputError(f"{path} is not a whole torch file: {error}") from error
        raise InputError(
            f"{path} holds more than tensors, so it is not opened here. If you trust it, make a file of the tensors alone: "
            f"state = torch.load('{path.name}', weights_only=False)['state_dict']; "
            "safetensors.torch.save_file({k: v.contiguous() for k, v in state.items()}, 'vqgan.safetensors')"
        ) from error
    except (OSError, EOFError, RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{path} is not a whole torch file: {reason}") from error


def _sizes(tensors: Mapping[str, Tensor], file: str | Path) -> tuple[int, int, int, int, tuple[int, ...], int]:
    """codes, code width, channels, filters, multipliers and blocks per level, which both kinds of file tell alike."""
    codes, code_width = _shape(tensors, _CODEBOOK, 2, file)
    filters, channels, _, _ = _shape(tensors, "encoder.conv_in.weight", 4, file)
    places = [match for name in tensors if (match := re.match(r"encoder\.down\.(\d+)\.block\.(\d+)\.conv1\.", name))]
    levels = 1 + max((int(match[1]) for match in places), default=0)
    blocks = 1 + max((int(match[2]) for match in places), default=0)
    widths = [_shape(tensors, f"encoder.down.{i}.block.0.conv1.weight", 4, file)[0] for i in range(levels)]
    if any(width % filters for width in widths):
        raise InputError(f"{file} has levels of {widths} channels, which are no multiples of the first's, {filters}")
    return codes, code_width, channels, filters, tuple(width // filters for width in widths), blocks


def _muse_name(ours: str, config: VQGANConfig) -> str:
    """Our name of a tensor of the VQGAN -> open-muse's, which nests blocks in levels and numbers levels from the finest."""
    if ours == "quantizer.codebook":
        return _CODEBOOK
    part, module, *rest = ours.split(".")
    ends = {"stem": "conv_in", "norm": "norm_out", "head": "conv_out"}
    if module in ends:
        return ".".join([part, ends[module], *rest])
    levels, number = len(config.multipliers), int(rest[0])
    if module == "upsamplers":
        return f"{part}.up.{levels - 1 - number}.upsample_conv.{rest[-1]}"
    level, place = divmod(number, config.blocks)
    inner = {"norm_1": "norm1", "conv_1": "conv1", "norm_2": "norm2", "conv_2": "conv2", "shortcut": "nin_shortcut"}[
        rest[1]
    ]
    if level == (levels if part == "encoder" else 0):
        return f"{part}.mid.{place}.{inner}.{rest[2]}"
    place_name = f"down.{level}" if part == "encoder" else f"up.{levels - level}"
    return f"{part}.{place_name}.block.{place}.{inner}.{rest[2]}"


def _shape(tensors: Mapping[str, Tensor], name: str, dimensions: int, file: str | Path) -> tuple[int, ...]:
    if name not in tensors:
        raise InputError(f"{file} is not a tokenizer of this kind: it has no tensor {name}")
    shape = tuple(tensors[name].shape)
    if len(shape) != dimensions or 0 in shape:
        raise InputError(f"{file} has {name} of shape {shape}; expected {dimensions} dimensions, none of them 0")
    return shape
