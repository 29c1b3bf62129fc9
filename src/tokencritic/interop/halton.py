"""The importer of Halton-MaskGIT (valeoai) with LlamaGen's tokenizer (FoundationVision), each one torch file."""

import math
import re
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.foreign_weights import read_tensors
from tokencritic.interop.checkpoint import Checkpoint, Origin
from tokencritic.interop.family import Family, Imported, Sources
from tokencritic.models.halton import HaltonConfig, HaltonGenerator
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.tokenizers.llamagen import LlamaGenVQ

# By width: attention heads, which no file contains, and the guidance weight w of the authors' results.
_HEADS = {384: 6, 512: 6, 768: 12, 1024: 16, 1152: 16}
_GUIDANCE_WEIGHTS = {384: 1.5, 512: 1.0, 768: 0.7, 1024: 0.5}
_STEPS = 32

# Our layers -> theirs. Several are concatenated to one of ours.
_ENDS = {
    "trunk.positions.weight": "pos_emb.weight",
    "trunk.classes.weight": "cls_emb.weight",
    "trunk.registers.weight": "reg_tokens.weight",
    "trunk.final_norm.weight": "last_norm.norm_final.weight",
    "trunk.final_bias": "last_norm.norm_final.bias",
    "trunk.final_modulation.weight": "last_norm.mlp.1.weight",
    "trunk.final_modulation.bias": "last_norm.mlp.1.bias",
}
_IN_BLOCK = {
    "modulation": ("mlp.1",),
    "attention_norm": ("ln1",),
    "qkv": ("attn.wq", "attn.wk", "attn.wv"),
    "out": ("attn.wo",),
    "mlp_norm": ("ln2",),
    "up": ("ff.w1", "ff.w3"),
    "down": ("ff.w2",),
}
_MIDDLE = {"mid.block_1": "mid.0", "mid.attn_1": "mid.1", "mid.block_2": "mid.2"}
_CODEBOOK = "quantize.embedding.weight"
_QUERY = "transformer.layers.0.attn.wq.weight"


def read(sources: Sources) -> Imported:
    """Read generator and tokenizer, with the settings of the authors' results.

    The settings are 32 steps of one Halton order for all images, temperature 1 and guidance weight w, here scale 1 + w.
    The authors' evaluation script also halves the logits of the first step; this importer does not.
    """
    generator = import_generator(sources.generator, sources.heads)
    side = math.isqrt(generator.num_tokens)
    if side * side != generator.num_tokens:
        raise InputError(f"{sources.generator} has {generator.num_tokens} tokens per image; expected a square number")
    tokenizer = import_tokenizer(sources.tokenizer, side)
    if generator.codebook_size != tokenizer.codebook_size:
        pair = f"{generator.codebook_size} codes, but the tokenizer {sources.tokenizer} has {tokenizer.codebook_size}"
        raise InputError(f"the generator {sources.generator} has {pair}; give the tokenizer it was trained with")
    return Imported(generator, tokenizer, _defaults(generator.config))


def _defaults(config: HaltonConfig) -> SamplingSettings:
    guidance = 1 + _GUIDANCE_WEIGHTS.get(config.width, 1.0)
    return SamplingSettings(sampler="halton", schedule="halton", steps=_STEPS, guidance=guidance)


def import_generator(file: str | Path, heads: int | None = None) -> HaltonGenerator:
    """Read the generator of an `ImageNet_*.pth`, in evaluation mode. Sizes are read from the arrays.

    heads: attention heads; None for those of the published sizes.
    """
    checkpoint = Checkpoint(file, read_tensors(file, "a Halton-MaskGIT generator"))
    if "in_proj.weight" in checkpoint.arrays:
        raise InputError(f"{file} was trained with proj 2 (it has in_proj.weight); expected proj 1")
    words, width = checkpoint.shape("tok_emb.weight", 2)
    attention_width, _ = checkpoint.shape(_QUERY, 2)
    has_registers = "reg_tokens.weight" in checkpoint.arrays
    sizes = {
        "num_tokens": checkpoint.shape("pos_emb.weight", 2)[0],
        "codebook_size": words - 1,
        "num_classes": checkpoint.shape("cls_emb.weight", 2)[0] - 1,
        "width": width,
        "layers": checkpoint.count(r"transformer\.layers\.(\d+)\."),
        "heads": _heads(file, width, attention_width, heads),
        "mlp_width": checkpoint.shape("transformer.layers.0.ff.w1.weight", 2)[0],
        "registers": checkpoint.shape("reg_tokens.weight", 2)[0] if has_registers else 0,
    }
    return checkpoint.build(HaltonGenerator, sizes, partial(_generator_origin, file))


def _heads(file: str | Path, width: int, attention_width: int, given: int | None) -> int:
    """Return the given number of heads, or that of the published size. Raises InputError if it does not fit."""
    fitting = [heads for heads in range(1, width + 1) if heads * (width // heads) == attention_width]
    heads = _HEADS.get(width) if given is None else given
    if heads in fitting:
        return heads
    if not fitting:
        raise InputError(f"{file} has {_QUERY} of shape {(attention_width, width)}, which fits no number of heads")
    asked = (
        f"--heads is {given}, which does not fit {file}"
        if given is not None
        else f"{file} does not contain the number of heads"
    )
    raise InputError(f"{asked}; give --heads with one of {', '.join(map(str, fitting))}")


def import_tokenizer(file: str | Path, side: int) -> LlamaGenVQ:
    """Read the tokenizer of a `vq_ds16_c2i.pt`, in evaluation mode. side: tokens along each side of an image."""
    tensors = read_tensors(file, "a LlamaGen tokenizer")
    tensors.pop("quantize.codebook_used", None)  # a counter of training
    checkpoint = Checkpoint(file, tensors)
    codes, code_width = checkpoint.shape(_CODEBOOK, 2)
    filters, channels, _, _ = checkpoint.shape("encoder.conv_in.weight", 4)
    levels = checkpoint.count(r"encoder\.conv_blocks\.(\d+)\.res\.") or 1
    widths = [checkpoint.shape(f"encoder.conv_blocks.{i}.res.0.conv1.weight", 4)[0] for i in range(levels)]
    sizes: dict[str, Any] = {
        "channels": channels,
        "blocks": checkpoint.count(r"encoder\.conv_blocks\.\d+\.res\.(\d+)\."),
        "codebook_size": codes,
        "code_width": code_width,
        "latent_width": checkpoint.shape("quant_conv.weight", 4)[1],
    }
    sizes |= checkpoint.levels(filters, widths, side * 2 ** (levels - 1))
    return checkpoint.build(LlamaGenVQ, sizes, partial(_tokenizer_origin, levels))


def _generator_origin(file: str | Path, ours: str, shape: tuple[int, ...]) -> Origin:
    if ours == "trunk.words.weight":
        return Origin({"tok_emb.weight": shape, "head.weight": shape}, partial(_tied, file))
    if ours == "bias":  # without the logit of the mask token, which is last
        return Origin({"head.bias": (shape[0] + 1,)}, lambda bias: bias[:-1])
    if ours in _ENDS:
        return Origin({_ENDS[ours]: shape})
    _, _, index, layer, tensor = ours.split(".")
    theirs = [f"transformer.layers.{index}.{name}.{tensor}" for name in _IN_BLOCK[layer]]
    if len(theirs) == 1:
        return Origin({theirs[0]: shape})
    return Origin(dict.fromkeys(theirs, (shape[0] // len(theirs), *shape[1:])), lambda *parts: torch.cat(parts))


def _tied(file: str | Path, words: Tensor, head: Tensor) -> Tensor:
    if not torch.equal(words, head):
        raise InputError(f"{file} has a head.weight that differs from tok_emb.weight; expected the two tied")
    return words


def _tokenizer_origin(levels: int, ours: str, shape: tuple[int, ...]) -> Origin:
    if ours == "quantizer.codebook":
        return Origin({_CODEBOOK: shape})
    theirs = re.sub(r"mid\.\w+", lambda match: _MIDDLE[match[0]], ours)
    theirs = theirs.replace(".down.", ".conv_blocks.").replace(".block.", ".res.")
    # Theirs are numbered in order of execution, ours from the finest level.
    theirs = re.sub(r"\.up\.(\d+)\.", lambda match: f".conv_blocks.{levels - 1 - int(match[1])}.", theirs)
    return Origin({theirs: shape})


FAMILY = Family(
    generator_marks=("last_norm.norm_final.weight",),
    tokenizer_marks=("encoder.conv_blocks.0.res.0.conv1.weight",),
    read=read,
)
