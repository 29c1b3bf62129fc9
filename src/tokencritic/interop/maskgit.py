"""The official MaskGIT checkpoints (google-research/maskgit): generator and tokenizer, each one flax file."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.interop.assemble import Origin, assemble
from tokencritic.interop.flax import read_arrays
from tokencritic.models.generator import Generator
from tokencritic.models.saved import without_start
from tokencritic.models.transformer import TransformerConfig
from tokencritic.tokenizers.vqgan import VQGAN, VQGANConfig

_Config = TypeVar("_Config")

_OFFICIAL_CODES = 1024
_OFFICIAL_IMAGE_SIZE = 256


def import_pair(generator_file: str | Path, tokenizer_file: str | Path) -> tuple[Generator, VQGAN]:
    """Generator and tokenizer that belong together: each tells what cannot be seen in the other's file."""
    tokenizer_arrays = read_arrays(tokenizer_file)
    sizes = _tokenizer_config(tokenizer_arrays, tokenizer_file, image_size=None)
    generator = import_generator(generator_file, codebook_size=sizes.codebook_size)
    side = math.isqrt(generator.num_tokens)
    if side * side != generator.num_tokens:
        raise InputError(f"{generator_file} is for {generator.num_tokens} tokens, which make no square image")
    return generator, _tokenizer(tokenizer_arrays, tokenizer_file, side * sizes.factor)


def import_generator(file: str | Path, codebook_size: int | None = None) -> Generator:
    """The generator of a `maskgit_imagenet*_checkpoint`, in eval mode; every other size is seen in the arrays.

    codebook_size: the tokenizer's. The file knows only codes and classes together; without it 1024 is taken if it fits.
    """
    arrays = read_arrays(file)
    config = _generator_config(arrays, file, codebook_size)
    with without_start():
        generator = Generator(config)
    assemble(generator, _generator_origins(config), arrays, file)
    return generator.eval()


def import_tokenizer(file: str | Path, image_size: int | None = None) -> VQGAN:
    """The tokenizer of a `tokenizer_imagenet*_checkpoint`, in eval mode.

    image_size: of the images it is for. The convolutions fit any, so the file does not tell; 256 without it.
    """
    return _tokenizer(read_arrays(file), file, image_size)


def _tokenizer(arrays: Mapping[str, Tensor], file: str | Path, image_size: int | None) -> VQGAN:
    config = _tokenizer_config(arrays, file, image_size)
    with without_start():
        tokenizer = VQGAN(config)
    assemble(tokenizer, _tokenizer_origins(config), arrays, file)
    return tokenizer.eval()


def _generator_config(arrays: Mapping[str, Tensor], file: str | Path, codebook_size: int | None) -> TransformerConfig:
    vocabulary, width = _shape(arrays, "Embed_0.word_embeddings.embedding", 2, file)
    positions, _ = _shape(arrays, "Embed_0.position_embeddings.embedding", 2, file)
    _, heads, _ = _shape(arrays, "TransformerLayer_0.Attention_0.self_attention.query.kernel", 3, file)
    _, mlp_width = _shape(arrays, "TransformerLayer_0.Mlp_0.intermediate_output.kernel", 2, file)
    codes = _OFFICIAL_CODES if codebook_size is None else codebook_size
    if not 1 <= codes <= vocabulary - 2:  # the rest is at least one class, and the mask
        came = "not given" if codebook_size is None else str(codebook_size)
        raise InputError(
            f"codebook_size is {came}; {file} has {vocabulary} words for codes, classes and the mask: "
            f"give the tokenizer's, from 1 to {vocabulary - 2}"
        )
    return _sized(
        TransformerConfig,
        file,
        num_tokens=positions - 1,
        codebook_size=codes,
        num_classes=vocabulary - codes - 1,
        width=width,
        layers=_count(arrays, r"TransformerLayer_(\d+)\."),
        heads=heads,
        mlp_width=mlp_width,
    )


def _generator_origins(config: TransformerConfig) -> dict[str, Origin]:
    width, vocabulary, codes = config.width, config.vocabulary_size, config.codebook_size
    origins = {
        "trunk.words.weight": Origin({"Embed_0.word_embeddings.embedding": (vocabulary, width)}),
        "trunk.positions.weight": Origin({"Embed_0.position_embeddings.embedding": (config.num_tokens + 1, width)}),
        **_norm("trunk.embedding_norm", "Embed_0.embeddings_ln", width),
        **_dense("trunk.readout", "MlmLayer_0.mlm_dense", width, width),
        **_norm("trunk.readout_norm", "MlmLayer_0.mlm_ln", width),
        "bias": Origin({"MlmLayer_0.mlm_bias.bias": (vocabulary,)}, lambda bias: bias[:codes]),
    }
    heads, head_width = config.heads, config.width // config.heads
    for index in range(config.layers):
        ours, theirs = f"trunk.blocks.{index}", f"TransformerLayer_{index}"
        attention = f"{theirs}.Attention_0.self_attention"
        three = [f"{attention}.{name}" for name in ("query", "key", "value")]
        origins |= {
            f"{ours}.qkv.weight": Origin(
                {f"{name}.kernel": (width, heads, head_width) for name in three},
                lambda *kernels: torch.cat([kernel.flatten(1).T for kernel in kernels]),
            ),
            f"{ours}.qkv.bias": Origin(
                {f"{name}.bias": (heads, head_width) for name in three},
                lambda *biases: torch.cat([bias.flatten() for bias in biases]),
            ),
            f"{ours}.out.weight": Origin(
                {f"{attention}.out.kernel": (heads, head_width, width)}, lambda kernel: kernel.flatten(0, 1).T
            ),
            f"{ours}.out.bias": Origin({f"{attention}.out.bias": (width,)}),
            **_norm(f"{ours}.attention_norm", f"{theirs}.Attention_0.attention_output_ln", width),
            **_dense(f"{ours}.up", f"{theirs}.Mlp_0.intermediate_output", width, config.mlp_width),
            **_dense(f"{ours}.down", f"{theirs}.Mlp_0.layer_output", config.mlp_width, width),
            **_norm(f"{ours}.mlp_norm", f"{theirs}.Mlp_0.layer_output_ln", width),
        }
    return origins


def _tokenizer_config(arrays: Mapping[str, Tensor], file: str | Path, image_size: int | None) -> VQGANConfig:
    codes, code_width = _shape(arrays, "quantizer.codebook", 2, file)
    _, _, channels, filters = _shape(arrays, "encoder.Conv_0.kernel", 4, file)
    levels = _count(arrays, r"decoder\.Conv_(\d+)\.") - 1  # one at either end and one between two levels
    blocks = _count(arrays, r"encoder\.ResBlock_(\d+)\.")
    if levels < 1 or blocks % (levels + 1) or not blocks:
        raise InputError(f"{file} has {blocks} encoder blocks, which do not fill {levels} levels and the middle evenly")
    per_level = blocks // (levels + 1)
    widths = [
        _shape(arrays, f"encoder.ResBlock_{level * per_level}.Conv_0.kernel", 4, file)[3] for level in range(levels)
    ]
    if any(width % filters for width in widths):
        raise InputError(f"{file} has levels of {widths} channels, which are no multiples of the first's, {filters}")
    return _sized(
        VQGANConfig,
        file,
        image_size=image_size or max(_OFFICIAL_IMAGE_SIZE, 2 ** (levels - 1)),
        channels=channels,
        filters=filters,
        multipliers=tuple(width // filters for width in widths),
        blocks=per_level,
        codebook_size=codes,
        code_width=code_width,
    )


def _tokenizer_origins(config: VQGANConfig) -> dict[str, Origin]:
    widths, levels = config.widths, len(config.widths)
    encoder = _block_origins("encoder", config.filters, [*widths, widths[-1]], config.blocks)
    decoder = _block_origins("decoder", widths[-1], [widths[-1], *widths[::-1]], config.blocks)
    origins = {
        "quantizer.codebook": Origin({"quantizer.codebook": (config.codebook_size, config.code_width)}),
        **_convolution("encoder.stem", "encoder.Conv_0", 3, config.channels, config.filters, bias=False),
        **encoder,
        **_norm("encoder.norm", "encoder.GroupNorm_0", widths[-1]),
        **_convolution("encoder.head", "encoder.Conv_1", 1, widths[-1], config.code_width),
        **_convolution("decoder.stem", "decoder.Conv_0", 3, config.code_width, widths[-1]),
        **decoder,
        **_norm("decoder.norm", "decoder.GroupNorm_0", widths[0]),
        **_convolution("decoder.head", f"decoder.Conv_{levels}", 3, widths[0], config.channels),
    }
    for index, width in enumerate(widths[:0:-1]):
        origins |= _convolution(f"decoder.upsamplers.{index}.conv", f"decoder.Conv_{index + 1}", 3, width, width)
    return origins


def _block_origins(part: str, width: int, new_widths: list[int], count: int) -> dict[str, Origin]:
    origins: dict[str, Origin] = {}
    for index, new in enumerate(new for new in new_widths for _ in range(count)):
        ours, theirs = f"{part}.blocks.{index}", f"{part}.ResBlock_{index}"
        origins |= _norm(f"{ours}.norm_1", f"{theirs}.GroupNorm_0", width)
        origins |= _convolution(f"{ours}.conv_1", f"{theirs}.Conv_0", 3, width, new, bias=False)
        origins |= _norm(f"{ours}.norm_2", f"{theirs}.GroupNorm_1", new)
        origins |= _convolution(f"{ours}.conv_2", f"{theirs}.Conv_1", 3, new, new, bias=False)
        if width != new:
            origins |= _convolution(f"{ours}.shortcut", f"{theirs}.Conv_2", 1, new, new, bias=False)
        width = new
    return origins


def _norm(ours: str, theirs: str, width: int) -> dict[str, Origin]:
    return {
        f"{ours}.weight": Origin({f"{theirs}.scale": (width,)}),
        f"{ours}.bias": Origin({f"{theirs}.bias": (width,)}),
    }


def _dense(ours: str, theirs: str, width: int, new: int) -> dict[str, Origin]:
    return {
        f"{ours}.weight": Origin({f"{theirs}.kernel": (width, new)}, lambda kernel: kernel.T),
        f"{ours}.bias": Origin({f"{theirs}.bias": (new,)}),
    }


def _convolution(ours: str, theirs: str, size: int, width: int, new: int, bias: bool = True) -> dict[str, Origin]:
    kernel = Origin({f"{theirs}.kernel": (size, size, width, new)}, lambda kernel: kernel.permute(3, 2, 0, 1))
    return {f"{ours}.weight": kernel} | ({f"{ours}.bias": Origin({f"{theirs}.bias": (new,)})} if bias else {})


def _shape(arrays: Mapping[str, Tensor], name: str, dimensions: int, file: str | Path) -> tuple[int, ...]:
    """The shape of an array that tells sizes; without it, or with one of another kind, the file is something else."""
    if name not in arrays:
        raise InputError(f"{file} is not an official MaskGIT checkpoint of this kind: it has no array {name}")
    shape = tuple(arrays[name].shape)
    if len(shape) != dimensions or 0 in shape:
        raise InputError(f"{file} has {name} of shape {shape}; expected {dimensions} dimensions, none of them 0")
    return shape


def _sized(config_type: type[_Config], file: str | Path, **sizes: Any) -> _Config:
    """The config of the sizes seen in a file; where they make none, the error names the file."""
    try:
        return config_type(**sizes)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def _count(arrays: Mapping[str, Tensor], pattern: str) -> int:
    """How many different numbers the pattern's group takes among the names."""
    return len({match[1] for name in arrays if (match := re.match(pattern, name))})
