"""Readers and samplers refuse what would go wrong in silence. `tests/fuzz` feeds the readers with spoilt files."""

import numpy as np
import pytest
import torch

from tokencritic import ConfidenceScorer, InputError, MaskedGenerator, sample
from tokencritic.data.sources import open_source


def test_large_labels_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros((1, 8, 8), np.uint8), labels=np.array([2**40]))
    with pytest.raises(InputError, match="labels holds 1099511627776"):
        open_source(tmp_path / "a.npz")


class _Own(MaskedGenerator):
    num_tokens, codebook_size, num_classes = 4, 5, 0

    def __init__(self, mask_id, columns):
        self.mask_id, self.columns = mask_id, columns

    def __call__(self, masked_tokens, labels):
        return torch.zeros(*masked_tokens.shape, self.columns)


@pytest.mark.parametrize(("mask_id", "columns", "match"), [(0, 5, "one of the codes"), (5, 6, "6 columns")])
def test_a_mask_token_is_never_sampled(mask_id, columns, match):
    with pytest.raises(InputError, match=match):
        sample(_Own(mask_id, columns), ConfidenceScorer(), None, [0], steps=2)
