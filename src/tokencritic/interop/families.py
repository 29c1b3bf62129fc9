"""The table of importers, one row for each kind of published model. Importable without torch.

To add a family of generators, add a file with its `FAMILY`, named like the kind, and one line in `GENERATORS`.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokencritic.interop.family import Family, TokenizerFamily

# kind -> title
GENERATORS: dict[str, str] = {
    "maskgit": "MaskGIT, the official flax checkpoints (google-research/maskgit)",
    "maskgit-torch": "MaskGIT, the official checkpoints converted to torch (hmorimitsu/maskgit-torch)",
    "halton": "Halton-MaskGIT (valeoai) with LlamaGen's tokenizer",
    "maskbit": "MaskBit (markweberdev/maskbit)",
    "titok": "TiTok L-32, B-64 and S-128 (bytedance/1d-tokenizer)",
}
TOKENIZERS: dict[str, str] = {
    "tokenizer-taming": "a VQGAN of taming-transformers, without a generator",
    "tokenizer-maskgit": "MaskGIT's VQGAN, the official flax file, without a generator",
    "tokenizer-muse": "MaskGIT's VQGAN as open-muse and TiTok publish it, without a generator",
}


def load_family(kind: str) -> "Family":
    """Return the importer of a kind of generator. kind: a key of `GENERATORS`."""
    return importlib.import_module(f"tokencritic.interop.{kind.replace('-', '_')}").FAMILY


def load_tokenizer_family(kind: str) -> "TokenizerFamily":
    """Return the importer of a kind of tokenizer that is published without a generator: a key of `TOKENIZERS`."""
    return importlib.import_module("tokencritic.interop.torch_tokenizers").FAMILIES[kind]
