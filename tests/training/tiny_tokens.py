"""Tiny token arrays, and models that fit them."""

import numpy as np
import torch

from tokencritic.data.tokens import TokenArrays
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer

NAMES = ("cat", "dog", "owl")
SIZES = {"num_tokens": 4, "codebook_size": 16, "num_classes": 3, "width": 16, "layers": 2, "heads": 2, "mlp_width": 32}


def make_tokenizer(seed=0):
    torch.manual_seed(seed)
    return CompactTokenizer(CompactConfig(image_size=8, width=16, codebook_size=16)).eval()


def make_arrays(rows=64, passes=1, repeat=1, **facts):
    """Tokens that are determined by the label, except for every fourth, which is random."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, rows).astype(np.int32)
    tokens = np.stack([labels, labels + 3, labels + 6, rng.integers(0, 16, rows)], axis=1).astype(np.uint16)
    tokens, facts = np.tile(tokens, repeat), {"passes": passes, "rows": rows, **facts}
    return TokenArrays(tokens, labels, make_tokenizer().fingerprint(), 16, (2 * repeat, 2), NAMES, facts)
