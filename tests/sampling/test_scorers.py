from fractions import Fraction

import pytest
import torch

from tokencritic.errors import InputError
from tokencritic.randomness import Use, uniforms
from tokencritic.sampling.propose import Proposal, Step
from tokencritic.sampling.scorers import (
    ChanceScorer,
    ConfidenceScorer,
    CriticScorer,
    HaltonScorer,
    RandomScorer,
    halton_ranks,
)

SEEDS = torch.tensor([3, 4])
MASK = torch.tensor([[True, False, True, True], [True, True, False, False]])


def proposal(time=0.5, time_after=0.25, num_tokens=4):
    mask = MASK if num_tokens == 4 else torch.ones(2, num_tokens, dtype=torch.bool)
    step = Step(index=7, time=time, time_after=time_after)
    logits = torch.randn(*mask.shape, 5, generator=torch.Generator().manual_seed(0))
    positions = torch.arange(mask.shape[1]).expand(mask.shape)
    return Proposal(torch.ones(mask.shape, dtype=torch.int64), mask, None, SEEDS, step, positions, logits)


def test_the_critics_noise_is_uniform_on_the_probability_and_annealed_with_t():
    logits = torch.tensor([[0.0, 1.0, -1.0, 9.0], [2.0, -3.0, 0.5, 0.0]])
    u = uniforms(SEEDS, 4, Use.SELECT, step=7)
    for time in (1.0, 0.5, 0.1):
        on_probability = CriticScorer(lambda *_: logits, selection_noise=0.4)
        on_logit = CriticScorer(lambda *_: logits, selection_noise=0.4, noise_on="logit")
        assert on_probability(proposal(time=time)).equal(logits.sigmoid())
        assert on_logit(proposal(time=time)).equal(logits)
        for scorer in (on_probability, on_logit):
            assert scorer.noise(proposal(time=time)).allclose(0.4 * time * (u - 0.5))
    assert CriticScorer(lambda *_: logits, 0.0).noise(proposal()) == 0


def test_by_the_odds_a_token_is_the_last_to_go_in_proportion_to_its_odds():
    seeds, logits = torch.arange(40_000), torch.tensor([0.0, 1.0, -1.0, 2.0])
    mask = torch.ones(40_000, 4, dtype=torch.bool)
    for power in (1.0, 2.0):
        for time in (1.0, 0.1):  # the noise is the same at all steps
            drawn = Proposal(torch.ones_like(mask, dtype=torch.int64), mask, None, seeds, Step(3, time, 0.0))
            scorer = CriticScorer(lambda *_: logits.expand(40_000, 4), selection_noise=power, noise_on="odds")
            shares = (scorer(drawn) + scorer.noise(drawn)).argmax(1).bincount(minlength=4) / 40_000
            assert shares.allclose((logits / power).softmax(0), atol=0.01)


def test_from_its_time_on_the_critic_leaves_the_choice_to_confidence():
    logits = torch.randn(2, 4)
    scorer = CriticScorer(lambda *_: logits, selection_noise=0.0, critic_until=0.5)
    assert scorer(proposal(time=0.6)).equal(logits.sigmoid())
    for time in (0.5, 0.1):
        late = proposal(time=time)
        assert scorer(late).equal(ConfidenceScorer()(late))
        assert scorer.noise(late).equal(ConfidenceScorer().noise(late))


def test_before_its_time_confidence_chooses_almost_at_random_and_keeps_what_is_kept():
    logits = torch.randn(2, 4)
    scorer = CriticScorer(lambda *_: logits, selection_noise=0.0, critic_from=0.5)
    for time in (0.5, 0.1):
        late = proposal(time=time)
        assert scorer.revokes(late.step)
        assert scorer(late).equal(logits.sigmoid())
    early = proposal(time=0.6)
    assert not scorer.revokes(early.step)
    assert scorer(early).equal(ConfidenceScorer()(early))
    assert scorer.noise(early).equal(ConfidenceScorer(12.0).noise(early))


def test_chance_stands_in_for_the_critic_and_only_while_the_critic_would_choose():
    scorer = ChanceScorer(critic_from=0.5, critic_until=0.2)
    critic = CriticScorer(lambda *_: torch.zeros(2, 4), critic_from=0.5, critic_until=0.2)
    drawn = proposal(time=0.4)
    assert scorer.revokes(drawn.step)
    assert scorer(drawn).equal(uniforms(SEEDS, 4, Use.SELECT, step=7))
    assert scorer.noise(drawn) == 0
    for time in (0.6, 0.2):
        drawn = proposal(time=time)
        assert not scorer.revokes(drawn.step)
        assert scorer(drawn).equal(critic(drawn))
        assert scorer.noise(drawn).equal(critic.noise(drawn))
    with pytest.raises(InputError, match=r"critic_from is 0\.1 and critic_until 0\.3"):
        ChanceScorer(critic_from=0.1, critic_until=0.3)


@pytest.mark.parametrize("since", [0.2, 0.3, 1.1, float("nan")])
def test_a_critic_must_begin_before_it_ends(since):
    with pytest.raises(
        InputError, match=r"critic_from is .* and critic_until 0\.3; the first must be the larger, and 1 at most"
    ):
        CriticScorer(lambda *_: torch.zeros(2, 4), critic_from=since, critic_until=0.3)


@pytest.mark.parametrize("until", [-0.1, 1.0, float("nan")])
def test_a_critic_must_choose_at_least_once(until):
    with pytest.raises(InputError, match=r"critic_until is .*; it must be 0 or more, and less than 1"):
        CriticScorer(lambda *_: torch.zeros(2, 4), critic_until=until)


def test_a_critic_that_reads_the_mask_is_given_it():
    class Reader:
        reads_mask = True

        def __call__(self, tokens, labels, mask):
            return mask.float()

    assert CriticScorer(Reader(), 0.0)(proposal()).equal(MASK.float().sigmoid())


def test_confidence_is_log_p_plus_gumbel_noise_annealed_to_nothing():
    gumbel = -(-uniforms(SEEDS, 4, Use.SELECT, step=7).double().log()).log()
    log_p = proposal().logits.double().log_softmax(-1)[..., 1]
    for after in (0.75, 0.25, 0.0):
        scorer, drawn = ConfidenceScorer(4.5), proposal(time_after=after)
        assert scorer(drawn)[MASK].double().allclose(log_p[MASK], atol=1e-5)
        assert scorer.noise(drawn).double().allclose(4.5 * after * gumbel, atol=1e-5)
        assert (scorer(drawn)[~MASK] == torch.inf).all()


@pytest.mark.parametrize("scorer", [ConfidenceScorer(), RandomScorer(), HaltonScorer()])
def test_scorers_that_do_not_revoke_never_rank_a_kept_token_last(scorer):
    assert not scorer.revokes
    assert (scorer(proposal())[~MASK] == torch.inf).all()


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
    scores = HaltonScorer()(proposal(num_tokens=16))[0]
    assert scores.argmax() == ranks.flatten().argmin()


def test_bad_settings_are_named():
    with pytest.raises(InputError, match=r"selection_noise is -0\.1"):
        CriticScorer(lambda *_: None, -0.1)
    with pytest.raises(InputError, match="selection_noise is nan"):
        ConfidenceScorer(float("nan"))
    with pytest.raises(InputError, match="noise_on is 'rank'; choose one of probability, logit, odds"):
        CriticScorer(lambda *_: None, noise_on="rank")
    with pytest.raises(InputError, match=r"grid is \(2, 3\) for 4 tokens"):
        HaltonScorer((2, 3))(proposal())
