"""Tokenizers that others publish as torch weights: MaskGIT's VQGAN of open-muse and TiTok, and taming-transformers' VQGAN."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tokencritic.errors import InputError
from tokencritic.foreign_weights import read_tensors
from tokencritic.interop.checkpoint import Checkpoint, Origin
from tokencritic.tokenizers.tokenizer import Tokenizer
from tokencritic.tokenizers.vqgan import VQGAN, TamingVQGAN, VQGANConfig

_CODEBOOK = "quantize.embedding.weight"


def import_muse_tokenizer(file: str | Path, image_size: int | None = None) -> VQGAN:
    """`maskgit-vqgan-imagenet-f16-256` of open-muse or TiTok (.safetensors, .bin or .pt), in eval mode.

    image_size: of the images it is for; the file does not tell, 256 without it. All other sizes are seen in the arrays.
    """
    checkpoint = _read(file)
    sizes = _sizes(checkpoint, image_size)
    return checkpoint.build(VQGAN, sizes, lambda model: _origins(model, partial(_muse_name, model.config)))


def import_taming_tokenizer(file: str | Path, image_size: int | None = None) -> TamingVQGAN:
    """A VQGAN checkpoint of taming-transformers (Lightning .ckpt, or its state dict as .safetensors), in eval mode.

    image_size: as for `import_muse_tokenizer`. Entries of the training loss in the file are left out.
    """
    checkpoint = _read(file)
    sizes = _sizes(checkpoint, image_size) | {"latent_width": checkpoint.shape("quant_conv.weight", 4)[1]}
    matches = (re.match(r"encoder\.down\.(\d+)\.attn\.", name) for name in checkpoint.arrays)
    sizes["attention"] = tuple(sorted({int(match[1]) for match in matches if match}))
    return checkpoint.build(TamingVQGAN, sizes, lambda model: _origins(model, lambda name: name))


def _read(file: str | Path) -> Checkpoint:
    if not Path(file).is_file():
        raise InputError(f"{file} is no file; expected a .safetensors, .ckpt, .bin or .pt file")
    tensors = read_tensors(file, "a tokenizer")
    return Checkpoint(file, {name: value for name, value in tensors.items() if not name.startswith("loss.")})


def _sizes(checkpoint: Checkpoint, image_size: int | None) -> dict[str, Any]:
    """What both kinds of file tell alike."""
    codes, code_width = checkpoint.shape(_CODEBOOK, 2)
    filters, channels, _, _ = checkpoint.shape("encoder.conv_in.weight", 4)
    levels = checkpoint.count(r"encoder\.down\.(\d+)\.block\.\d+\.conv1\.")
    blocks = checkpoint.count(r"encoder\.down\.\d+\.block\.(\d+)\.conv1\.")
    widths = [checkpoint.shape(f"encoder.down.{i}.block.0.conv1.weight", 4)[0] for i in range(levels or 1)]
    sizes = {"channels": channels, "blocks": blocks, "codebook_size": codes, "code_width": code_width}
    return sizes | checkpoint.levels(filters, widths, image_size)


def _origins(tokenizer: Tokenizer, name_of: Callable[[str], str]) -> dict[str, Origin]:
    """name_of: our name of a tensor -> theirs; only the codebook's is the same in both kinds."""
    return {
        ours: Origin({_CODEBOOK if ours == "quantizer.codebook" else name_of(ours): tuple(value.shape)})
        for ours, value in tokenizer.state_dict().items()
    }


def _muse_name(config: VQGANConfig, ours: str) -> str:
    """Our name of a tensor of the VQGAN -> open-muse's, which nests blocks in levels and numbers levels from the finest."""
    part, module, *rest = ours.split(".")
    ends = {"stem": "conv_in", "norm": "norm_out", "head": "conv_out"}
    if module in ends:
        return ".".join([part, ends[module], *rest])
    levels, number = len(config.multipliers), int(rest[0])
    if module == "upsamplers":
        return f"{part}.up.{levels - 1 - number}.upsample_conv.{rest[-1]}"
    level, place = divmod(number, config.blocks)
    inner = "nin_shortcut" if rest[1] == "shortcut" else rest[1].replace("_", "")
    if level == (levels if part == "encoder" else 0):
        return f"{part}.mid.{place}.{inner}.{rest[2]}"
    place_name = f"down.{level}" if part == "encoder" else f"up.{levels - level}"
    return f"{part}.{place_name}.block.{place}.{inner}.{rest[2]}"
