"""The best candidate is kept, whatever the batch; the passes that settings announce are those that are run."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokencritic.errors import InputError
from tokencritic.models.critic import Critic
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.randomness import candidate_seeds, resampling_seeds
from tokencritic.sampling import refine, sample
from tokencritic.sampling.propose import Step
from tokencritic.sampling.rejection import (
    AdaptedClassifier,
    ClassifierRanker,
    CriticRanker,
    best_of,
)
from tokencritic.sampling.settings import SamplingSettings

NUM_TOKENS = 5
SIZES = TransformerConfig(num_tokens=16, codebook_size=12, num_classes=3, null_class=True, width=16, layers=1, heads=2)


def draw(rows, seeds):
    """Tokens that are a plain function of the seed: its base-7 digits."""
    return torch.stack([seeds // 7**place % 7 for place in range(NUM_TOKENS)], dim=1)


def rank(tokens, labels):
    """The label says which token counts."""
    return tokens.gather(1, labels[:, None])[:, 0].float()


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, NUM_TOKENS - 1)), min_size=1, max_size=7),
    st.integers(1, 6),
    st.integers(1, 20),
)
def test_the_first_of_the_best_candidates_is_kept_whatever_the_batch(images, candidates, batch_size):
    seeds, labels = (torch.tensor(values) for values in zip(*images, strict=True))
    kept = best_of(draw, rank, labels, seeds, candidates, batch_size)
    for number, (seed, label) in enumerate(images):
        own = [candidate_seeds(torch.tensor([seed]), j) for j in range(candidates)]
        tried = [draw(None, seed)[0].tolist() for seed in own]
        assert kept[number].tolist() == max(tried, key=lambda tokens: tokens[label])  # max gives the first of equals


def test_no_more_candidates_are_in_memory_than_asked_for():
    sizes = []

    def watched(rows, seeds):
        sizes.append(len(rows))
        return draw(rows, seeds)

    best_of(watched, rank, torch.zeros(10, dtype=torch.int64), torch.arange(10), candidates=3, batch_size=7)
    assert sizes == [6] * 5
    sizes.clear()
    best_of(watched, rank, torch.zeros(2, dtype=torch.int64), torch.arange(2), candidates=5, batch_size=2)
    assert sizes == [2, 2, 1] * 2


def test_candidate_seeds_are_apart_and_do_not_move():
    seeds = torch.arange(1000)
    assert candidate_seeds(seeds, 0).equal(seeds)
    every = torch.cat([*(candidate_seeds(seeds, j) for j in range(20)), resampling_seeds(seeds)])
    assert len(every.unique()) == len(every)
    assert (every >= 0).all()
    assert candidate_seeds(torch.tensor([0, 1, 2**63 - 1]), 1).tolist() == [
        6722859696763848915,  # worked out with big integers
        1608485156471429079,
        4238971870153718348,
    ]
    assert resampling_seeds(torch.tensor([0])).tolist() == [6782835587654999262]


def counted(model, rows):
    """The trunk is where the work is: guidance goes through it with twice the rows."""
    model.trunk.register_forward_hook(lambda _, args, __: rows.append(len(args[0])))
    return model.eval()


GIVEN = [
    SamplingSettings(),
    SamplingSettings(steps=3, candidates=4, reject_by="critic"),
    SamplingSettings("confidence", steps=20),
    SamplingSettings("confidence", steps=5, candidates=2, reject_by="classifier"),
    SamplingSettings("halton", steps=12, guidance=2.0),
    SamplingSettings("random", steps=2, candidates=3, reject_by="critic", guidance=0.5),
    SamplingSettings("critic", steps=6, passes_per_level=3, schedule="linear"),
    SamplingSettings("critic", steps=1),
    SamplingSettings("critic", steps=11, critic_until=0.6),
    SamplingSettings("critic", steps=11, critic_from=0.6),
    SamplingSettings("chance", steps=11, critic_from=0.6),
    SamplingSettings("chance", steps=7, critic_until=0.3, guidance=2.0, candidates=2, reject_by="critic"),
    SamplingSettings("critic", steps=40, critic_from=0.9, critic_until=0.2, candidates=2, reject_by="critic"),
]


@pytest.mark.parametrize("given", GIVEN)
def test_passes_are_the_rows_that_go_through_the_networks_for_one_image(given):
    rows = []
    generator = counted(Generator(SIZES), rows)
    critic = counted(Critic.from_generator(generator), rows)
    guided, scorer, loop = generator.guided(given.guidance), given.scorer(critic), given.loop_arguments()

    def classify(images):
        rows.append(len(images))
        return torch.zeros(len(images), 3)

    ranker = CriticRanker(critic) if given.reject_by == "critic" else ClassifierRanker(classify, torch.clone)
    labels, seeds = torch.tensor([1]), torch.tensor([5])

    def run(method):
        rows.clear()
        best_of(method, ranker, labels, seeds, given.candidates, batch_size=1)
        return sum(rows)

    assert run(lambda _, seeds: sample(guided, scorer, labels, seeds, **loop)) == given.passes(16)
    if given.sampler not in ("confidence", None):
        given = dataclasses.replace(given, critic_from=1.0)  # refining begins with the critic
        scorer = given.scorer(critic)
        tokens = torch.zeros(1, 16, dtype=torch.int64)
        passes = given.passes(16, refine_ratio=0.6)
        assert run(lambda _, seeds: refine(guided, scorer, tokens, labels, seeds, ratio=0.6, **loop)) == passes


@pytest.mark.parametrize("steps", [2, 3, 5, 18])
def test_a_critic_that_comes_late_has_at_least_the_last_choice(steps):
    late = SamplingSettings("critic", steps=steps, critic_from=0.01)
    assert late.passes(196) == SamplingSettings("confidence", steps=steps).passes(196) + 1
    assert late.by_chance().scorer(None).revokes(Step(time=2 / steps))


def test_passes_by_hand():
    # 256 tokens, 18 steps: the first step hides all again; 17 generator passes, and 16 of the critic, none after the last.
    assert SamplingSettings(steps=18).passes(256) == 33
    assert SamplingSettings(steps=18).passes(256, has_critic=False) == 17
    assert SamplingSettings("confidence", steps=18).passes(256) == 17
    assert SamplingSettings("confidence", steps=18, guidance=3.0).passes(256) == 34
    assert SamplingSettings(steps=18, candidates=10).passes(256) == 10 * 33 + 10
    # Chance needs no network.
    assert SamplingSettings("chance", steps=18).passes(256) == 17
    # 9 steps from 60 %: the critic looks first, and after all but the last of 9 generator passes.
    assert SamplingSettings(steps=9).passes(256, refine_ratio=0.6) == 1 + 9 + 8


def test_the_classifier_ranks_by_the_probability_of_the_images_own_class():
    logits = torch.tensor([[2.0, 1.0], [3.0, 3.0], [40.0, 0.0], [41.0, 0.0]])
    ranker = ClassifierRanker(lambda images: images, lambda tokens: logits[tokens[:, 0]])
    tokens = torch.arange(4)[:, None]
    zeros = ranker(tokens, torch.zeros(4, dtype=torch.int64))
    torch.testing.assert_close(zeros, logits.double().log_softmax(1)[:, 0])
    assert zeros.argsort().tolist() == [1, 0, 2, 3]  # in float32 the last two would both be certain
    assert ranker(tokens, torch.ones(4, dtype=torch.int64)).argsort().tolist() == [3, 2, 0, 1]


@pytest.mark.parametrize("reads_mask", [False, True])
def test_the_critic_ranks_by_its_mean_probability(reads_mask):
    torch.manual_seed(0)
    critic = Critic.from_generator(Generator(SIZES), reads_mask=reads_mask).train()
    tokens, labels = torch.randint(0, 12, (4, 16)), torch.tensor([0, 1, 2, 0])
    ranks = CriticRanker(critic)(tokens, labels)
    assert critic.training  # put back, but dropout had been off
    critic.eval()
    logits = critic(tokens, labels, torch.ones(4, 16, dtype=torch.bool)) if reads_mask else critic(tokens, labels)
    torch.testing.assert_close(ranks, logits.sigmoid().double().mean(1))


def test_an_adapted_classifier_sees_what_it_was_made_for():
    seen = []

    def lite0(images):
        seen.append(images)
        return images.mean((2, 3))

    images = torch.rand(2, 3, 8, 8)
    AdaptedClassifier(lite0, 8, mean=127 / 255, std=128 / 255)(images)
    torch.testing.assert_close(seen[-1], (255 * images - 127) / 128)
    adapted = AdaptedClassifier(lite0, 4, mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0), class_map=(2, 0))
    logits = adapted(torch.full((1, 1, 16, 16), 0.5))  # grey becomes colour, flat stays flat
    torch.testing.assert_close(logits, torch.tensor([[0.2 / 4, 0.4]]))
    assert seen[-1].shape == (1, 3, 4, 4)
    stripes = (torch.arange(64) % 8 == 0).float().expand(1, 3, 64, 64)
    AdaptedClassifier(lite0, 8)(stripes)
    assert (seen[-1] - 1 / 8).abs().max() < 0.05  # antialiased: single pixels would miss the stripes


def test_an_adapted_network_is_moved_and_put_in_eval_mode_as_a_whole():
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.9), torch.nn.Linear(12, 2, bias=False))
    adapted = AdaptedClassifier(network, 2).train()
    ranker = ClassifierRanker(adapted, lambda tokens: torch.full((len(tokens), 1, 4, 4), 0.5))
    tokens, labels = torch.zeros(3, 1, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    assert len(ranker(tokens, labels).unique()) == 1
    assert network[1].training
    assert ClassifierRanker(adapted.double(), ranker.decode)(tokens, labels).isfinite().all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SamplingSettings(candidates=0), "candidates is 0; it must be an integer, at least 1"),
        (lambda: SamplingSettings(candidates=2.5), "candidates is 2.5"),
        (lambda: SamplingSettings(reject_by="taste"), "reject_by is 'taste'; choose one of classifier, critic"),
        (lambda: best_of(draw, None, torch.zeros(1), torch.zeros(1), 2), "candidates is 2"),
        (lambda: best_of(draw, rank, torch.zeros(1), torch.zeros(1), 2, 0), "batch_size is 0"),
        (lambda: ranked(lambda tokens, labels: labels[:, None].float()), r"returned shape \(2, 1\) for 2 candidates"),
        (lambda: ranked(lambda tokens, labels: labels * torch.nan), "returned NaN for 2 candidates"),
        (
            lambda: ranked(ClassifierRanker(lambda images: torch.zeros(len(images), 1), torch.clone)),
            r"logits of shape \(2, 1\); expected \(2, classes\), with more than 1 classes",
        ),
        (lambda: AdaptedClassifier(torch.clone, 0), "size is 0"),
        (lambda: AdaptedClassifier(torch.clone, 8, std=0.0), r"std is \[0.0\]; expected one number"),
        (lambda: AdaptedClassifier(torch.clone, 8, mean=(1.0, 2.0)), r"mean is \[1.0, 2.0\]"),
        (lambda: AdaptedClassifier(torch.clone, 8, resize="lanczos"), "resize is 'lanczos'"),
        (lambda: AdaptedClassifier(torch.clone, 8)(torch.zeros(1, 2, 8, 8)), r"images has shape \(1, 2, 8, 8\)"),
        (
            lambda: AdaptedClassifier(lambda images: images.mean((2, 3)), 8, class_map=[3])(torch.zeros(1, 3, 8, 8)),
            "class_map holds 3; expected integers from 0 to 2",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


def ranked(ranker):
    return best_of(draw, ranker, torch.ones(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), 2)
