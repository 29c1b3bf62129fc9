"""Importers of tokenizers: MaskGIT's VQGAN, also of open-muse and TiTok, and taming-transformers' VQGAN."""

import re
from pathlib import Path
from typing import Any

from tokencritic.foreign_weights import read_tensors
from tokencritic.interop import maskgit
from tokencritic.interop.checkpoint import Checkpoint, Origin
from tokencritic.interop.family import TokenizerFamily
from tokencritic.tokenizers.vqgan import VQGAN, TamingVQGAN

_CODEBOOK = "quantize.embedding.weight"


def import_muse_tokenizer(file: str | Path, image_size: int | None = None) -> VQGAN:
    """Read `maskgit-vqgan-imagenet-f16-256` of open-muse or TiTok (.safetensors, .bin or .pt), in evaluation mode.

    image_size: pixels along each side, which the file does not contain; 256 by default.
    """
    checkpoint = _read(file)
    return checkpoint.build(VQGAN, _sizes(checkpoint, image_size), _origin)


def import_taming_tokenizer(file: str | Path, image_size: int | None = None) -> TamingVQGAN:
    """Read a VQGAN of taming-transformers (Lightning .ckpt, or state dict as .safetensors), in evaluation mode.

    image_size: as in `import_muse_tokenizer`.

    Tensors of the training loss are ignored.
    """
    checkpoint = _read(file)
    sizes = _sizes(checkpoint, image_size) | {"latent_width": checkpoint.shape("quant_conv.weight", 4)[1]}
    matches = (re.match(r"encoder\.down\.(\d+)\.attn\.", name) for name in checkpoint.arrays)
    sizes["attention"] = tuple(sorted({int(match[1]) for match in matches if match}))
    return checkpoint.build(TamingVQGAN, sizes, _origin)


def _read(file: str | Path) -> Checkpoint:
    tensors = read_tensors(file, "a tokenizer")
    return Checkpoint(file, {name: value for name, value in tensors.items() if not name.startswith("loss.")})


def _sizes(checkpoint: Checkpoint, image_size: int | None) -> dict[str, Any]:
    """Return the sizes that both kinds of file contain."""
    codes, code_width = checkpoint.shape(_CODEBOOK, 2)
    filters, channels, _, _ = checkpoint.shape("encoder.conv_in.weight", 4)
    levels = checkpoint.count(r"encoder\.down\.(\d+)\.block\.\d+\.conv1\.")
    blocks = checkpoint.count(r"encoder\.down\.\d+\.block\.(\d+)\.conv1\.")
    widths = [checkpoint.shape(f"encoder.down.{i}.block.0.conv1.weight", 4)[0] for i in range(levels or 1)]
    sizes = {"channels": channels, "blocks": blocks, "codebook_size": codes, "code_width": code_width}
    return sizes | checkpoint.levels(filters, widths, image_size)


def _origin(ours: str, shape: tuple[int, ...]) -> Origin:
    return Origin({_CODEBOOK if ours == "quantizer.codebook" else ours: shape})


# taming-transformers comes first, because its files also have open-muse's marks.
_READERS = {
    "tokenizer-taming": (("quant_conv.weight",), import_taming_tokenizer),
    "tokenizer-maskgit": (maskgit.FAMILY.tokenizer_marks, maskgit.import_tokenizer),
    "tokenizer-muse": ((_CODEBOOK,), import_muse_tokenizer),
}
FAMILIES = {name: TokenizerFamily(*row) for name, row in _READERS.items()}
