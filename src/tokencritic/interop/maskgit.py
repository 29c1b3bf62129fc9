"""The official MaskGIT checkpoints (google-research/maskgit): generator and tokenizer, each one flax file."""

import math
from pathlib import Path
from typing import Any

import torch

from tokencritic.errors import InputError
from tokencritic.foreign_weights import read_flax
from tokencritic.interop.checkpoint import Checkpoint, Origin
from tokencritic.models.generator import Generator
from tokencritic.tokenizers.vqgan import VQGAN


def import_pair(generator_file: str | Path, tokenizer_file: str | Path) -> tuple[Generator, VQGAN]:
    """Generator and tokenizer that belong together: each tells what cannot be seen in the other's file."""
    tokenizer = Checkpoint(tokenizer_file, read_flax(tokenizer_file))
    codebook_size, _ = tokenizer.shape("quantizer.codebook", 2)
    generator = import_generator(generator_file, codebook_size)
    side = math.isqrt(generator.num_tokens)
    if side * side != generator.num_tokens:
        raise InputError(f"{generator_file} is for {generator.num_tokens} tokens, which make no square image")
    factor = 2 ** (len(_tokenizer_sizes(tokenizer, None)["multipliers"]) - 1)
    return generator, tokenizer.build(VQGAN, _tokenizer_sizes(tokenizer, side * factor), _tokenizer_origins)


def import_generator(file: str | Path, codebook_size: int) -> Generator:
    """The generator of a `maskgit_imagenet*_checkpoint`, in eval mode; every other size is seen in the arrays.

    codebook_size: the tokenizer's; the file knows only codes and classes together.
    """
    checkpoint = Checkpoint(file, read_flax(file))
    return checkpoint.build(Generator, _generator_sizes(checkpoint, codebook_size), _generator_origins)


def import_tokenizer(file: str | Path, image_size: int | None = None) -> VQGAN:
    """The tokenizer of a `tokenizer_imagenet*_checkpoint`, in eval mode.

    image_size: of the images it is for. The convolutions fit any, so the file does not tell; 256 without it.
    """
    checkpoint = Checkpoint(file, read_flax(file))
    return checkpoint.build(VQGAN, _tokenizer_sizes(checkpoint, image_size), _tokenizer_origins)


def _generator_sizes(checkpoint: Checkpoint, codebook_size: int) -> dict[str, Any]:
    vocabulary, width = checkpoint.shape("Embed_0.word_embeddings.embedding", 2)
    positions, _ = checkpoint.shape("Embed_0.position_embeddings.embedding", 2)
    _, heads, _ = checkpoint.shape("TransformerLayer_0.Attention_0.self_attention.query.kernel", 3)
    _, mlp_width = checkpoint.shape("TransformerLayer_0.Mlp_0.intermediate_output.kernel", 2)
    if not 1 <= codebook_size <= vocabulary - 2:  # the rest is at least one class, and the mask
        raise InputError(
            f"codebook_size is {codebook_size}; {checkpoint.file} has {vocabulary} words for codes, classes and the mask: "
            f"give the tokenizer's, from 1 to {vocabulary - 2}"
        )
    return {
        "num_tokens": positions - 1,
        "codebook_size": codebook_size,
        "num_classes": vocabulary - codebook_size - 1,
        "width": width,
        "layers": checkpoint.count(r"TransformerLayer_(\d+)\."),
        "heads": heads,
        "mlp_width": mlp_width,
    }


def _generator_origins(generator: Generator) -> dict[str, Origin]:
    config = generator.config
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


def _tokenizer_sizes(checkpoint: Checkpoint, image_size: int | None) -> dict[str, Any]:
    codes, code_width = checkpoint.shape("quantizer.codebook", 2)
    _, _, channels, filters = checkpoint.shape("encoder.Conv_0.kernel", 4)
    levels = checkpoint.count(r"decoder\.Conv_(\d+)\.") - 1  # one at either end and one between two levels
    blocks = checkpoint.count(r"encoder\.ResBlock_(\d+)\.")
    if levels < 1 or blocks % (levels + 1) or not blocks:
        uneven = f"{blocks} encoder blocks, which do not fill {levels} levels and the middle evenly"
        raise InputError(f"{checkpoint.file} has {uneven}")
    blocks //= levels + 1
    widths = [checkpoint.shape(f"encoder.ResBlock_{i * blocks}.Conv_0.kernel", 4)[3] for i in range(levels)]
    sizes = {"channels": channels, "blocks": blocks, "codebook_size": codes, "code_width": code_width}
    return sizes | checkpoint.levels(filters, widths, image_size)


def _tokenizer_origins(tokenizer: VQGAN) -> dict[str, Origin]:
    config, widths, levels = tokenizer.config, tokenizer.config.widths, len(tokenizer.config.widths)
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
