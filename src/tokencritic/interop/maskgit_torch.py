"""The importer of MaskGIT checkpoints that hmorimitsu/maskgit-torch converted to torch, each one file.

The weights are the official ones, and so are the logits and images of our networks. Those of that repository differ
slightly, because it uses the exact GELU and torch's epsilon in group norms.
"""

from functools import partial
from pathlib import Path
from typing import Any

from tokencritic.errors import InputError
from tokencritic.foreign_weights import read_tensors
from tokencritic.interop.checkpoint import Checkpoint, Origin
from tokencritic.interop.family import Family, Imported, Sources
from tokencritic.interop.maskgit import join, split_words
from tokencritic.models.generator import Generator
from tokencritic.tokenizers.vqgan import VQGAN

_HEADS = {768: 16}  # attention heads of the published generators by width, which no file contains
# Our tensors and layers -> theirs.
_TENSORS = {"trunk.words.weight": "tok_emb.weight", "trunk.positions.weight": "pos_emb"}
_ENDS = {
    "trunk.embedding_norm": "emb_ln",
    "trunk.readout": "Token_Prediction.0",
    "trunk.readout_norm": "Token_Prediction.2",
}
_IN_LAYER = {
    "out": "MultiHeadAttention.out_proj",
    "attention_norm": "AttentionLN",
    "up": "MLP.0",
    "down": "MLP.2",
    "mlp_norm": "MlpLN",
}
_IN_BLOCK = {"norm1": "norm0", "conv1": "conv0", "norm2": "norm1", "conv2": "conv1", "nin_shortcut": "conv_res"}


def read(sources: Sources) -> Imported:
    """Read generator and tokenizer, with the official sampling settings."""
    return join(sources, partial(import_generator, heads=sources.heads), import_tokenizer)


def import_generator(file: str | Path, codebook_size: int, heads: int | None = None) -> Generator:
    """Read the generator of a `maskgit_imagenet*.ckpt`, in evaluation mode.

    codebook_size: that of the tokenizer.
    heads: attention heads; by default those of the published generators.
    """
    checkpoint = Checkpoint(file, read_tensors(file, "a MaskGIT generator"))
    vocabulary, width = checkpoint.shape("tok_emb.weight", 2)
    positions, _ = checkpoint.shape("pos_emb", 2)
    mlp_width, _ = checkpoint.shape("blocks.0.MLP.0.weight", 2)
    heads = _HEADS.get(width) if heads is None else heads
    if heads is None:
        raise InputError(f"--heads is missing; {file} of width {width} does not contain the number of heads")
    sizes = split_words(file, vocabulary, codebook_size) | {
        "num_tokens": positions - 1,
        "width": width,
        "layers": checkpoint.count(r"blocks\.(\d+)\."),
        "heads": heads,
        "mlp_width": mlp_width,
    }
    return checkpoint.build(Generator, sizes, partial(_generator_origin, vocabulary))


def import_tokenizer(file: str | Path, image_size: int | None = None) -> VQGAN:
    """Read the tokenizer of a `tokenizer_imagenet*.ckpt`, in evaluation mode. image_size: 256 by default."""
    checkpoint = Checkpoint(file, read_tensors(file, "a MaskGIT tokenizer"))
    codes, code_width = checkpoint.shape("quantizer.codebook.weight", 2)
    filters, channels, _, _ = checkpoint.shape("encoder.conv_in.weight", 4)
    levels = checkpoint.count(r"encoder\.res_blocks\.(\d+)\.") - 1  # the last one is the middle
    blocks = checkpoint.count(r"encoder\.res_blocks\.0\.(\d+)\.")
    widths = [checkpoint.shape(f"encoder.res_blocks.{i}.0.conv0.weight", 4)[0] for i in range(max(levels, 1))]
    sizes: dict[str, Any] = {"channels": channels, "blocks": blocks, "codebook_size": codes, "code_width": code_width}
    sizes |= checkpoint.levels(filters, widths, image_size)
    return checkpoint.build(VQGAN, sizes, partial(_tokenizer_origin, len(widths), blocks))


def _generator_origin(vocabulary: int, ours: str, shape: tuple[int, ...]) -> Origin:
    if ours == "bias":
        return Origin({"bias": (vocabulary,)}, lambda bias: bias[: shape[0]])
    if ours in _TENSORS:
        return Origin({_TENSORS[ours]: shape})
    layer, _, tensor = ours.rpartition(".")
    if layer in _ENDS:
        return Origin({f"{_ENDS[layer]}.{tensor}": shape})
    _, _, index, name = layer.split(".")
    theirs = f"MultiHeadAttention.in_proj_{tensor}" if name == "qkv" else f"{_IN_LAYER[name]}.{tensor}"
    return Origin({f"blocks.{index}.{theirs}": shape})


def _tokenizer_origin(levels: int, blocks: int, ours: str, shape: tuple[int, ...]) -> Origin:
    if ours == "quantizer.codebook":
        return Origin({"quantizer.codebook.weight": shape})
    part, place, *rest, tensor = ours.split(".")
    if not rest:  # at either end
        return Origin({ours: shape})
    # Levels and middle are numbered in order of execution. An upsampling without weights follows the blocks of a level.
    middle = levels if part == "encoder" else 0
    level = {"down": int(rest[0]), "mid": middle, "up": levels - int(rest[0])}[place]
    layer = str(blocks + 1) if rest[-1] == "upsample_conv" else f"{rest[-2]}.{_IN_BLOCK[rest[-1]]}"
    return Origin({f"{part}.res_blocks.{level}.{layer}.{tensor}": shape})


FAMILY = Family(
    ("blocks.0.MultiHeadAttention.in_proj_weight", "Token_Prediction.0.weight"),
    ("encoder.res_blocks.0.0.conv0.weight",),
    read,
)
