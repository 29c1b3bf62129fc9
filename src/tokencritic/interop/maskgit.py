"""The importer of the official MaskGIT checkpoints (google-research/maskgit), each one flax file."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tokencritic.errors import InputError
from tokencritic.foreign_weights import read_flax
from tokencritic.interop.checkpoint import Checkpoint, Origin
from tokencritic.interop.family import Family, Imported, Sources
from tokencritic.models.generator import Generator
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.tokenizers.vqgan import VQGAN

# Our layers -> theirs.
_EMBEDDINGS = {"trunk.words": "Embed_0.word_embeddings", "trunk.positions": "Embed_0.position_embeddings"}
_ENDS = {
    "trunk.embedding_norm": "Embed_0.embeddings_ln",
    "trunk.readout": "MlmLayer_0.mlm_dense",
    "trunk.readout_norm": "MlmLayer_0.mlm_ln",
}
_IN_LAYER = {
    "out": "Attention_0.self_attention.out",
    "attention_norm": "Attention_0.attention_output_ln",
    "up": "Mlp_0.intermediate_output",
    "down": "Mlp_0.layer_output",
    "mlp_norm": "Mlp_0.layer_output_ln",
}
_IN_BLOCK = {
    "norm1": "GroupNorm_0",
    "conv1": "Conv_0",
    "norm2": "GroupNorm_1",
    "conv2": "Conv_1",
    "nin_shortcut": "Conv_2",
}


def read(sources: Sources) -> Imported:
    """Read generator and tokenizer, with the authors' sampling settings."""
    found = join(sources, import_generator, import_tokenizer)
    if sources.heads not in (None, heads := found.generator.config.heads):
        raise InputError(f"--heads is {sources.heads}; {sources.generator} has {heads}; omit the flag")
    return found


def join(
    sources: Sources, read_generator: Callable[[Path, int], Generator], read_tokenizer: Callable[..., VQGAN]
) -> Imported:
    """Read a matching generator and tokenizer. Each provides sizes that the other's file does not contain.

    read_generator: a function of a file and the codebook size.
    read_tokenizer: a function of a file and, optionally, the image size.
    """
    tokenizer = read_tokenizer(sources.tokenizer)
    generator = read_generator(sources.generator, tokenizer.codebook_size)
    side = math.isqrt(generator.num_tokens)
    if side * side != generator.num_tokens:
        raise InputError(f"{sources.generator} has {generator.num_tokens} tokens per image; expected a square number")
    tokenizer = read_tokenizer(sources.tokenizer, side * tokenizer.factor)
    # The authors use 8 to 16 steps, and choice temperature 4.5 at 256 x 256 and 7 at 512 x 512.
    noise = 4.5 if tokenizer.image_size <= 256 else 7.0
    defaults = SamplingSettings(sampler="confidence", schedule="maskgit", steps=12, selection_noise=noise)
    return Imported(generator, tokenizer, defaults)


def split_words(file: str | Path, vocabulary: int, codebook_size: int) -> dict[str, int]:
    """Return the numbers of codes and classes. The file only contains the size of the whole vocabulary."""
    if not 1 <= codebook_size <= vocabulary - 2:  # the rest is at least one class, and the mask
        raise InputError(
            f"codebook_size is {codebook_size}; expected 1 to {vocabulary - 2}, because {file} has {vocabulary} words "
            "for codes, classes and the mask"
        )
    return {"codebook_size": codebook_size, "num_classes": vocabulary - codebook_size - 1}


def import_generator(file: str | Path, codebook_size: int) -> Generator:
    """Read the generator of a `maskgit_imagenet*_checkpoint`, in evaluation mode. Sizes are read from the arrays.

    codebook_size: that of the tokenizer, which the file does not contain.
    """
    checkpoint = Checkpoint(file, read_flax(file))
    vocabulary, width = checkpoint.shape("Embed_0.word_embeddings.embedding", 2)
    positions, _ = checkpoint.shape("Embed_0.position_embeddings.embedding", 2)
    _, heads, _ = checkpoint.shape("TransformerLayer_0.Attention_0.self_attention.query.kernel", 3)
    _, mlp_width = checkpoint.shape("TransformerLayer_0.Mlp_0.intermediate_output.kernel", 2)
    sizes = split_words(file, vocabulary, codebook_size) | {
        "num_tokens": positions - 1,
        "width": width,
        "layers": checkpoint.count(r"TransformerLayer_(\d+)\."),
        "heads": heads,
        "mlp_width": mlp_width,
    }
    return checkpoint.build(Generator, sizes, partial(_generator_origin, sizes))


def import_tokenizer(file: str | Path, image_size: int | None = None) -> VQGAN:
    """Read the tokenizer of a `tokenizer_imagenet*_checkpoint`, in evaluation mode.

    image_size: pixels along each side, which the file does not contain; 256 by default.
    """
    checkpoint = Checkpoint(file, read_flax(file))
    codes, code_width = checkpoint.shape("quantizer.codebook", 2)
    _, _, channels, filters = checkpoint.shape("encoder.Conv_0.kernel", 4)
    levels = checkpoint.count(r"decoder\.Conv_(\d+)\.") - 1  # one at either end and one between two levels
    blocks = checkpoint.count(r"encoder\.ResBlock_(\d+)\.")
    if levels < 1 or blocks % (levels + 1) or not blocks:
        raise InputError(f"{file} has {blocks} encoder blocks; expected a multiple of {levels + 1} for {levels} levels")
    blocks //= levels + 1
    widths = [checkpoint.shape(f"encoder.ResBlock_{i * blocks}.Conv_0.kernel", 4)[3] for i in range(levels)]
    sizes: dict[str, Any] = {"channels": channels, "blocks": blocks, "codebook_size": codes, "code_width": code_width}
    sizes |= checkpoint.levels(filters, widths, image_size)
    return checkpoint.build(VQGAN, sizes, partial(_tokenizer_origin, sizes))


def _generator_origin(sizes: dict[str, Any], ours: str, shape: tuple[int, ...]) -> Origin:
    codes, words = sizes["codebook_size"], sizes["codebook_size"] + sizes["num_classes"] + 1
    if ours == "bias":
        return Origin({"MlmLayer_0.mlm_bias.bias": (words,)}, lambda bias: bias[:codes])
    layer, _, tensor = ours.rpartition(".")
    if layer in _EMBEDDINGS:
        return Origin({f"{_EMBEDDINGS[layer]}.embedding": shape})
    if layer in _ENDS:
        return _layer_origin(_ENDS[layer], tensor, shape)
    _, _, index, name = layer.split(".")
    theirs, width = f"TransformerLayer_{index}", sizes["width"]
    split = (sizes["heads"], width // sizes["heads"])
    if name == "qkv":
        three = [f"{theirs}.Attention_0.self_attention.{part}" for part in ("query", "key", "value")]
        if tensor == "bias":
            return Origin({f"{part}.bias": split for part in three}, lambda *parts: torch.cat(parts).flatten())
        kernels = {f"{part}.kernel": (width, *split) for part in three}
        return Origin(kernels, lambda *parts: torch.cat([part.flatten(1).T for part in parts]))
    if (name, tensor) == ("out", "weight"):
        return Origin({f"{theirs}.{_IN_LAYER[name]}.kernel": (*split, width)}, lambda kernel: kernel.flatten(0, 1).T)
    return _layer_origin(f"{theirs}.{_IN_LAYER[name]}", tensor, shape)


def _tokenizer_origin(sizes: dict[str, Any], ours: str, shape: tuple[int, ...]) -> Origin:
    if ours == "quantizer.codebook":
        return Origin({ours: shape})
    part, place, *rest, tensor = ours.split(".")
    levels, blocks = len(sizes["multipliers"]), sizes["blocks"]
    if not rest:  # at either end
        last = 1 if part == "encoder" else levels
        theirs = {"conv_in": "Conv_0", "norm_out": "GroupNorm_0", "conv_out": f"Conv_{last}"}[place]
    elif rest[-1] == "upsample_conv":
        theirs = f"Conv_{levels - int(rest[0])}"
    else:  # flax numbers levels, middle and blocks in order of execution
        middle = levels if part == "encoder" else 0
        level = {"down": int(rest[0]), "mid": middle, "up": levels - int(rest[0])}[place]
        theirs = f"ResBlock_{level * blocks + int(rest[-2])}.{_IN_BLOCK[rest[-1]]}"
    return _layer_origin(f"{part}.{theirs}", tensor, shape)


def _layer_origin(theirs: str, tensor: str, shape: tuple[int, ...]) -> Origin:
    """Return the origin of a bias, the scale of a norm, or a kernel, whose output channels come last in flax."""
    if tensor == "bias" or len(shape) == 1:
        return Origin({f"{theirs}.{'bias' if tensor == 'bias' else 'scale'}": shape})
    new, old, *size = shape
    return Origin({f"{theirs}.kernel": (*size, old, new)}, lambda kernel: kernel.movedim((-1, -2), (0, 1)))


FAMILY = Family(
    ("Embed_0.word_embeddings.embedding",),
    ("encoder.Conv_0.kernel",),
    read,
)
