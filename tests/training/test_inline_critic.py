"""Training of the inline critic, which must not change the generator."""

import math
from itertools import pairwise

import pytest
import torch

from tokencritic.contracts import MaskedGenerator
from tokencritic.errors import InputError
from tokencritic.randomness import Use, uniforms
from tokencritic.training.losses import critic_auc_within_image, inline_critic_loss, training_mask

SEEDS, LABELS = torch.arange(200), torch.arange(200) % 3
TOKENS = torch.randint(0, 20, (200, 9), generator=torch.Generator().manual_seed(0))


class FillsIn(MaskedGenerator):
    """A generator that fills in the number of the call, from 20. Its features are its input tokens."""

    num_tokens, codebook_size, mask_id, num_classes, num_features, feature_width = 9, 30, 30, 3, 1, 1

    def __init__(self):
        self.shown = []

    def __call__(self, masked_tokens, labels):
        self.shown.append(masked_tokens)
        return 99.0 * torch.nn.functional.one_hot(torch.full_like(masked_tokens, 19 + len(self.shown)), 30)

    def logits_with_features(self, masked_tokens, labels, positions):
        return self(masked_tokens, labels), (masked_tokens[..., None].float(),)


def says(value):
    return lambda features: torch.full(features[0].shape[:2], value)


def test_the_critic_sees_originals_fillings_and_tokens_hidden_again():
    seen = []

    def critic(features):
        seen.append(features[0][..., 0].long())
        return torch.zeros(seen[0].shape)

    loss = inline_critic_loss(critic, FillsIn(), TOKENS, LABELS, SEEDS)
    first = training_mask(SEEDS, 9)
    assert loss.originals.equal(~first)
    assert seen[0].equal(TOKENS.masked_fill(first, 20).masked_fill(~loss.visible, 30))
    hidden = (~loss.visible).sum(1)
    assert (hidden <= first.sum(1)).all()  # a later progress hides fewer tokens
    assert (hidden == 1).any()  # down to one
    assert ((~loss.visible) & ~first).any()  # originals are hidden too
    assert (first & loss.visible).any()


def test_several_fills_hide_fewer_and_fewer_of_the_same_tokens():
    generator = FillsIn()
    loss = inline_critic_loss(says(0.0), generator, TOKENS, LABELS, SEEDS, fills=3)
    hidden = [shown == 30 for shown in generator.shown[:3]]
    assert hidden[0].equal(training_mask(SEEDS, 9))
    for before, after in pairwise(hidden):
        assert not (after & ~before).any()
        assert after.sum() < before.sum()
    assert loss.originals.equal(~hidden[0])
    final = generator.shown[3]
    assert (final[loss.visible & hidden[2]] == 22).all()
    assert (final[loss.visible & hidden[0] & ~hidden[1]] == 20).all()


def test_the_loss_is_of_visible_tokens_with_the_odds_of_originals_among_them():
    for value in (0.0, 2.0):
        loss = inline_critic_loss(says(value), FillsIn(), TOKENS, LABELS, SEEDS)
        assert not loss.values[~loss.visible].any()
        expected = []
        for visible, original in zip(loss.visible.tolist(), loss.originals.tolist(), strict=True):
            kinds = [kind for kind, shown in zip(original, visible, strict=True) if shown]
            logit = value + math.log((sum(kinds) + 0.5) / (len(kinds) - sum(kinds) + 0.5))
            expected += [math.log1p(math.exp(-logit if kind else logit)) for kind in kinds]
        assert loss.values[loss.visible].tolist() == pytest.approx(expected, rel=1e-4)
        assert loss.mean.item() == pytest.approx(sum(expected) / len(expected), rel=1e-4)


def test_fillings_have_the_temperature_of_a_sampler_at_that_time():
    class Even(FillsIn):
        def __call__(self, masked_tokens, labels):
            return torch.arange(30.0).expand(*masked_tokens.shape, 30)

    seeds, tokens = torch.arange(4000), torch.zeros(4000, 9, dtype=torch.int64)
    seen = []

    def critic(features):
        seen.append(features[0][..., 0].long())
        return torch.zeros(seen[-1].shape)

    loss = inline_critic_loss(critic, Even(), tokens, None, seeds, temperature=(20.0, 0.0))
    early = uniforms(seeds, 1, Use.RATIO)[:, 0] < 0.2
    filled = ~loss.originals & loss.visible
    late_codes, early_codes = (seen[0][filled & rows[:, None]].float() for rows in (~early, early))
    assert late_codes.mean() > early_codes.mean() + 3  # the most likely code is the last; low temperatures prefer it


def test_an_image_that_was_never_filled_in_is_refused():
    with pytest.raises(InputError, match="fills is 0"):
        inline_critic_loss(says(0.0), FillsIn(), TOKENS, LABELS, SEEDS, fills=0)


def test_the_auc_counts_visible_tokens_alone():
    logits = torch.tensor([[0.0, 1.0, 2.0, 9.0, -9.0], [3.0, 1.0, 2.0, 0.0, 5.0]])
    originals = torch.tensor([[False, True, True, False, True], [True, False, False, False, False]])
    among = torch.tensor([[True, True, True, False, False], [True, True, True, True, False]])
    assert critic_auc_within_image(logits, originals, among).item() == 1.0
    assert critic_auc_within_image(logits, originals).item() == pytest.approx((2 / 6 + 3 / 4) / 2)
    one_kind = torch.tensor([[True, True, True, False, False], [False, False, False, True, True]])
    assert critic_auc_within_image(logits, originals | one_kind, one_kind).isnan()
