"""The loop against the truth: every answer here is known by enumeration, and each test names its error rate.

The chi-square tests reject a correct sampler once in 10,000 choices of seed; the seeds are fixed.
"""

import pytest
import scipy.stats
import torch
from sampling import enumeration

from tokencritic.exact_world import MarkovWorld
from tokencritic.sampling import ChanceScorer, ConfidenceScorer, CriticScorer, RandomScorer, refine, sample

ERROR_RATE = 1e-4
SAMPLES = 100_000
SMALL = MarkovWorld.random(num_tokens=4, states=3, classes=2, seed=1)


def draw(world, scorer, *, label=0, samples=SAMPLES, **settings):
    labels = torch.full((samples,), label)
    return world.distribution(sample(world, scorer, labels, seeds=0, num_tokens=world.num_tokens, **settings))


def p_value(observed, expected, samples=SAMPLES):
    """Chi-square over images, those expected fewer than 10 times taken together."""
    if observed[expected == 0].any():
        return 0.0
    counts, expected = observed * samples, expected * samples
    rare = expected < 10
    counts, expected = (torch.cat([x[~rare], x[rare].sum()[None]]) for x in (counts, expected))
    counts, expected = counts[expected > 0], expected[expected > 0]
    return scipy.stats.chisquare(counts, expected).pvalue


def chain(world, label):
    truth = enumeration.joint(world.initial[label].tolist(), world.transition[label].tolist(), world.num_tokens)
    return truth, [tuple(row) for row in world.sequences[world.complete].tolist()]


def test_the_world_knows_its_own_distribution():
    for label in range(2):
        truth, images = chain(SMALL, label)
        assert SMALL.truth(label).tolist() == pytest.approx([truth[image] for image in images], rel=1e-12)
    assert sum(SMALL.mask_probabilities().values()) == pytest.approx(1)


def test_one_token_at_a_time_in_random_order_gives_the_true_joint():
    for label in range(2):
        observed = draw(SMALL, RandomScorer(), label=label, steps=4, schedule="linear")
        assert p_value(observed, SMALL.truth(label)) > ERROR_RATE


@pytest.mark.parametrize(("steps", "a", "b"), [(2, 0.0, 1.0), (4, 0.0, 1.0), (5, 0.6, 0.7)])
def test_the_critic_sampler_has_the_distribution_of_algorithm_2(steps, a, b):
    truth, images = chain(SMALL, 1)
    scores = {image: SMALL.critic(torch.tensor([image]), torch.tensor([1]))[0].tolist() for image in images}
    exact = enumeration.algorithm_2(truth, scores.__getitem__, 4, steps, a, b)
    observed = draw(SMALL, CriticScorer(SMALL.critic, 0.0), label=1, steps=steps, temperature=(a + b, b))
    assert p_value(observed, torch.tensor([exact.get(x, 0.0) for x in images], dtype=torch.float64)) > ERROR_RATE


@pytest.mark.parametrize("noise", [0.0, 0.7, 4.5])
@pytest.mark.parametrize("steps", [3, 6])
def test_the_confidence_sampler_has_the_distribution_of_maskgit(noise, steps):
    truth, images = chain(SMALL, 0)
    exact = enumeration.maskgit(truth, 4, steps, noise)
    observed = draw(SMALL, ConfidenceScorer(noise), steps=steps)
    assert p_value(observed, torch.tensor([exact.get(x, 0.0) for x in images], dtype=torch.float64)) > ERROR_RATE


def test_chance_is_the_critics_sampler_with_a_critic_that_knows_nothing():
    labels = torch.arange(300) % 2
    loop = {"seeds": 5, "steps": 6, "temperature": (1.2, 0.7)}
    for since, until in ((1.0, 0.0), (0.6, 0.0), (1.0, 0.4)):
        chance = ChanceScorer(since, until)
        nothing = CriticScorer(lambda tokens, _: torch.zeros(tokens.shape), 3.0, "odds", since, until)
        tokens = sample(SMALL, chance, labels, num_tokens=4, **loop)
        assert tokens.equal(sample(SMALL, nothing, labels, num_tokens=4, **loop))
    assert refine(SMALL, chance, tokens, labels, **loop).equal(refine(SMALL, nothing, tokens, labels, **loop))


def test_what_the_exact_critic_gains_it_gains_by_its_choice():
    """8 tokens in 8 steps, a generator that is 20 % wrong; the best of some settings of each: 0.11, 0.14 and 0.35."""
    world = MarkovWorld.random(num_tokens=8, states=3, seed=0, error=0.2)

    def distance(scorer):
        return 0.5 * (draw(world, scorer, samples=40_000, steps=8) - world.truth()).abs().sum().item()

    critic = min(distance(CriticScorer(world.critic, noise)) for noise in (0.4, 0.8, 1.2))
    confidence = min(distance(ConfidenceScorer(noise)) for noise in (3.0, 4.5, 6.0))
    chance = min(distance(ChanceScorer(since)) for since in (1.0, 0.5, 0.25))
    assert critic < confidence - 0.02
    assert chance > confidence + 0.1


@pytest.mark.parametrize("error", [0.0, 0.05])
def test_at_equal_steps_the_critic_comes_closer_to_the_truth(error):
    """Total variation at the best noise of each, 8 tokens in 4 steps; 0.02 is four standard errors at 40,000 samples."""
    world = MarkovWorld.random(num_tokens=8, states=3, seed=0, error=error)

    def distance(scorer):
        return 0.5 * (draw(world, scorer, samples=40_000, steps=4) - world.truth()).abs().sum().item()

    confidence = min(distance(ConfidenceScorer(noise)) for noise in (4.5, 10, 20, 40, 80))
    critic = min(distance(CriticScorer(world.critic, noise)) for noise in (0.0, 0.3, 0.6, 0.9, 1.2))
    assert critic < confidence - 0.02
