import dataclasses
from fractions import Fraction

import pytest
import torch

from tokencritic.adapters import as_critic
from tokencritic.contracts import FeatureCritic
from tokencritic.errors import InputError
from tokencritic.plan import Step
from tokencritic.randomness import Use, uniforms
from tokencritic.sampling.halton_order import halton_ranks
from tokencritic.sampling.samplers import SAMPLERS
from tokencritic.sampling.scorers import (
    ConfidenceScorer,
    CriticScorer,
    HaltonScorer,
    Judges,
    NamedScorer,
    RandomOrderScorer,
    RandomRemaskScorer,
    WindowScorer,
    make_scorer,
)
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.scoring import Proposal

SEEDS = torch.tensor([3, 4])
MASK = torch.tensor([[True, False, True, True], [True, True, False, False]])


def proposal(time=0.5, steps=14, num_tokens=4):
    mask = MASK if num_tokens == 4 else torch.ones(2, num_tokens, dtype=torch.bool)
    step = Step(index=7, time=time, time_after=(steps - 7) / steps, steps=steps)
    logits = torch.randn(*mask.shape, 5, generator=torch.Generator().manual_seed(0))
    positions = torch.arange(mask.shape[1]).expand(mask.shape)
    return Proposal(torch.ones(mask.shape, dtype=torch.int64), mask, None, SEEDS, step, positions, logits)


def test_the_critics_noise_is_uniform_on_the_probability_and_annealed_with_t():
    logits = torch.tensor([[0.0, 1.0, -1.0, 9.0], [2.0, -3.0, 0.5, 0.0]])
    u = uniforms(SEEDS, 4, Use.SELECT, step=7)
    for time in (1.0, 0.5, 0.1):
        scorer = CriticScorer(lambda *_: logits, selection_noise=0.4)
        assert scorer.score(proposal(time=time)).equal(logits.sigmoid())
        assert scorer.noise(proposal(time=time)).allclose(0.4 * time * (u - 0.5))
    assert CriticScorer(lambda *_: logits, 0.0).noise(proposal()) == 0


def test_with_gumbel_noise_a_token_is_the_last_to_go_in_proportion_to_its_odds():
    seeds, logits = torch.arange(40_000), torch.tensor([0.0, 1.0, -1.0, 2.0])
    mask = torch.ones(40_000, 4, dtype=torch.bool)
    for power in (1.0, 2.0):
        for time in (1.0, 0.1):  # the noise is the same at all steps
            made = Proposal(torch.ones_like(mask, dtype=torch.int64), mask, None, seeds, Step(3, time, 0.0))
            scorer = CriticScorer(lambda *_: logits.expand(40_000, 4), selection_noise=power, noise_kind="gumbel")
            shares = (scorer.score(made) + scorer.noise(made)).argmax(1).bincount(minlength=4) / 40_000
            assert shares.allclose((logits / power).softmax(0), atol=0.01)


def assert_alike(scorer, other, made):
    """Two scorers score and disturb a proposal alike."""
    assert scorer.score(made).equal(other.score(made))
    assert torch.as_tensor(scorer.noise(made)).equal(torch.as_tensor(other.noise(made)))
    assert scorer.revokes(made.step) == other.revokes(made.step)


def test_a_window_is_open_at_its_start_and_closed_at_its_end():
    inside, before, after = RandomRemaskScorer(), ConfidenceScorer(1.0), ConfidenceScorer(2.0)
    scorer = WindowScorer((0.5, 0.2), inside, before, after)
    for time, chosen in ((0.6, before), (0.51, before), (0.5, inside), (0.21, inside), (0.2, after), (0.1, after)):
        assert scorer.at(Step(time=time)) is chosen
        assert_alike(scorer, chosen, proposal(time=time))


@pytest.mark.parametrize("sampler", ["critic", "random-remask"])
def test_confidence_chooses_around_the_critic_window(sampler):
    logits = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    settings = SamplingSettings(sampler, critic_window=(0.5, 0.2), selection_noise=0.4, early_noise=7.0)
    scorer = make_scorer(settings, Judges(as_critic(lambda *_: logits)))
    inside = CriticScorer(lambda *_: logits, 0.4) if sampler == "critic" else RandomRemaskScorer()
    # Before the window confidence has the settings' early noise, after it MaskGIT's own.
    for time, chosen in ((0.6, ConfidenceScorer(7.0)), (0.4, inside), (0.2, ConfidenceScorer())):
        assert_alike(scorer, chosen, proposal(time=time))
    assert SamplingSettings().early_noise == 12
    whole = make_scorer(SamplingSettings(sampler), Judges(as_critic(lambda *_: logits)))
    assert type(whole) is type(inside)  # without a window there is nothing to compose


def test_random_remasking_is_one_uniform_per_token_whether_visible_or_not():
    scorer, made = RandomRemaskScorer(), proposal()
    assert scorer.revokes(made.step)
    assert scorer.score(made).equal(uniforms(SEEDS, 4, Use.SELECT, step=7))
    assert scorer.noise(made) == 0


@pytest.mark.parametrize("window", [(0.2, 0.3), (0.3, 0.3), (1.1, 0.3), (1.0, -0.1), (float("nan"), 0.0), (1.0,)])
def test_an_impossible_window_is_named(window):
    inner = RandomRemaskScorer()
    with pytest.raises(
        InputError, match=r"critic_window is .*; it must be a start and an end with 0 <= end < start <= 1"
    ):
        WindowScorer(window, inner, inner, inner)
    with pytest.raises(InputError, match="critic_window is"):
        SamplingSettings(critic_window=window)


def test_a_windows_networks_are_those_of_all_its_scorers():
    networks = [torch.nn.Linear(1, 1) for _ in range(3)]
    scorer = WindowScorer((0.5, 0.2), *(CriticScorer(network) for network in networks))
    assert scorer.networks == tuple(networks)


def test_every_sampler_of_the_table_has_a_scorer_that_does_what_its_row_says():
    assert NamedScorer.named.keys() == SAMPLERS.keys()
    calls = []

    def critic(tokens, labels):
        calls.append(1)
        return torch.zeros(tokens.shape)

    class Head(FeatureCritic):
        def __call__(self, features):
            return features[0][..., 0]

    features = (torch.ones(2, 4, 1),)
    for name, row in SAMPLERS.items():
        calls.clear()
        scorer = make_scorer(SamplingSettings(name), Judges(as_critic(critic), Head(), (2, 2)))
        assert type(scorer) is NamedScorer.named[name]
        assert scorer.revokes(Step()) == row.revokes
        assert scorer.needs_features(Step()) == row.uses_inline_critic
        scorer.score(dataclasses.replace(proposal(), features=features))
        assert bool(calls) == row.uses_critic
        given = Proposal.given(torch.ones(2, 4, dtype=torch.int64), None, features=features)
        if row.refines:
            assert scorer.score(given).isfinite().all()
        else:
            with pytest.raises(InputError, match="only defined for sampled tokens"):
                scorer.score(given)
    assert type(make_scorer(SamplingSettings(), Judges(as_critic(critic)))) is CriticScorer
    assert make_scorer(SamplingSettings(), Judges()) == ConfidenceScorer(4.5)
    assert make_scorer(SamplingSettings(selection_noise=0.0), Judges()) == ConfidenceScorer(0.0)
    with pytest.raises(InputError, match="sampler is critic but the model has none"):
        make_scorer(SamplingSettings("critic"), Judges())
    with pytest.raises(InputError, match="sampler is inline but the model has no inline critic"):
        make_scorer(SamplingSettings("inline"), Judges())


def test_a_critic_that_reads_the_mask_is_given_it():
    class Reader:
        reads_mask = True

        def __call__(self, tokens, labels, mask):
            return mask.float()

    assert CriticScorer(Reader(), 0.0).score(proposal()).equal(MASK.float().sigmoid())


def test_confidence_is_log_p_plus_gumbel_noise_annealed_to_nothing():
    gumbel = -(-uniforms(SEEDS, 4, Use.SELECT, step=7).double().log()).log()
    log_p = proposal().logits.double().log_softmax(-1)[..., 1]
    for steps, after in ((28, 0.75), (14, 0.5), (7, 0.0)):
        scorer, made = ConfidenceScorer(4.5), proposal(steps=steps)
        assert scorer.score(made)[MASK].double().allclose(log_p[MASK], atol=1e-5)
        assert scorer.noise(made).double().allclose(4.5 * after * gumbel, atol=1e-5)
        assert (scorer.score(made)[~MASK] == torch.inf).all()


@pytest.mark.parametrize("scorer", [ConfidenceScorer(), RandomOrderScorer(), HaltonScorer()])
def test_scorers_that_do_not_revoke_never_rank_a_kept_token_last(scorer):
    assert not scorer.revokes(proposal().step)
    assert (scorer.score(proposal())[~MASK] == torch.inf).all()


def mirrored(index, base):
    """The radical inverse as a fraction."""
    value, scale = Fraction(0), Fraction(1)
    while index:
        index, digit = divmod(index, base)
        scale /= base
        value += digit * scale
    return value


def test_halton_order_visits_every_position_once_and_spreads_out():
    for height, width in ((7, 7), (16, 16), (8, 4), (1, 5)):
        assert sorted(halton_ranks(height, width)) == list(range(height * width))
    # Base 2 in rows, base 3 in columns: 1/2 1/3, 1/4 2/3, 3/4 1/9, 1/8 4/9, ... of a 4 x 4 grid.
    ranks = torch.tensor(halton_ranks(4, 4)).reshape(4, 4)
    assert [ranks[2, 1], ranks[1, 2], ranks[3, 0], ranks[0, 1]] == [0, 1, 2, 3]
    for size in (9, 27):  # where floats would round across a cell's edge
        exact = {}
        index = 0
        while len(exact) < size * size:
            index += 1
            row, column = (int(mirrored(index, base) * size) for base in (2, 3))
            exact.setdefault(row * size + column, len(exact))
        assert halton_ranks(size, size) == tuple(exact[place] for place in range(size * size))
    first = torch.tensor(halton_ranks(16, 16)).reshape(16, 16) < 64
    assert first.reshape(2, 8, 2, 8).sum((1, 3)).sub(16).abs().max() <= 2  # a quarter of them in each quarter
    scores = HaltonScorer().score(proposal(num_tokens=16))[0]
    assert scores.argmax() == ranks.flatten().argmin()


def test_bad_settings_are_named():
    with pytest.raises(InputError, match=r"selection_noise is -0\.1"):
        CriticScorer(lambda *_: None, -0.1)
    with pytest.raises(InputError, match="selection_noise is nan"):
        ConfidenceScorer(float("nan"))
    with pytest.raises(InputError, match=r"grid is \(2, 3\); expected"):
        HaltonScorer((2, 3)).score(proposal())
