"""The best candidate is kept, whatever the batch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokencritic.adapters import as_classifier
from tokencritic.errors import InputError
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.randomness import candidate_seeds, resampling_seeds
from tokencritic.sampling.rejection import ClassifierRanker, CriticRanker, best_of, choose_ranker
from tokencritic.sampling.settings import SamplingSettings

NUM_TOKENS = 5
SIZES = TransformerConfig(num_tokens=16, codebook_size=12, num_classes=3, null_class=True, width=16, layers=1, heads=2)


def digits(seeds):
    """Tokens that are a plain function of the seed: its base-7 digits."""
    return torch.stack([seeds // 7**place % 7 for place in range(NUM_TOKENS)], dim=1)


def make(rows, numbers):
    """Tokens of candidates of images whose seeds are their numbers."""
    return digits(torch.cat([candidate_seeds(rows[i : i + 1], int(numbers[i])) for i in range(len(rows))]))


def rank_by(labels):
    """The label of an image says which token counts."""
    return lambda tokens, rows: tokens.gather(1, labels[rows][:, None])[:, 0].float()


rank = rank_by(torch.zeros(10, dtype=torch.int64))


def best(*arguments, **options):
    return torch.cat(list(best_of(*arguments, **options)))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, NUM_TOKENS - 1)), min_size=1, max_size=7),
    st.integers(1, 6),
    st.integers(1, 20),
)
def test_the_first_of_the_best_candidates_is_kept_whatever_the_batch(images, candidates, batch_size):
    seeds, labels = (torch.tensor(values) for values in zip(*images, strict=True))
    there = torch.stack([digits(candidate_seeds(seeds, j)) for j in range(candidates)])
    kept = best(lambda rows, numbers: there[numbers, rows], rank_by(labels), len(labels), candidates, batch_size)
    for number, (seed, label) in enumerate(images):
        tried = [digits(candidate_seeds(torch.tensor([seed]), j))[0].tolist() for j in range(candidates)]
        assert kept[number].tolist() == max(tried, key=lambda tokens: tokens[label])  # max gives the first of equals


def test_no_more_candidates_are_in_memory_than_asked_for():
    sizes = []

    def watched(rows, numbers):
        sizes.append(len(rows))
        return make(rows, numbers)

    best(watched, rank, 10, candidates=3, batch_size=7)
    assert sizes == [6] * 5
    sizes.clear()
    best(watched, rank, 2, candidates=5, batch_size=2)
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


def test_batches_are_made_when_they_are_asked_for():
    made = []

    def watched(rows, numbers):
        made.extend(rows.tolist())
        return make(rows, numbers)

    batches = best_of(watched, None, 5, 1, 2)
    assert next(batches).shape == (2, NUM_TOKENS)
    assert made == [0, 1]
    assert [len(batch) for batch in batches] == [2, 1]


def test_the_classifier_ranks_by_the_probability_of_the_images_own_class():
    logits = torch.tensor([[2.0, 1.0], [3.0, 3.0], [40.0, 0.0], [41.0, 0.0]])
    ranker = ClassifierRanker(as_classifier(lambda images: images), lambda tokens: logits[tokens[:, 0]])
    tokens = torch.arange(4)[:, None]
    zeros = ranker(tokens, torch.zeros(4, dtype=torch.int64))
    torch.testing.assert_close(zeros, logits.double().log_softmax(1)[:, 0])
    assert zeros.argsort().tolist() == [1, 0, 2, 3]  # in float32 the last two would both be certain
    assert ranker(tokens, torch.ones(4, dtype=torch.int64)).argsort().tolist() == [3, 2, 0, 1]


@pytest.mark.parametrize("reads_mask", [False, True])
def test_the_critic_ranks_by_its_mean_probability(reads_mask):
    torch.manual_seed(0)
    critic = Generator(SIZES).start_critic(reads_mask=reads_mask).train()
    tokens, labels = torch.randint(0, 12, (4, 16)), torch.tensor([0, 1, 2, 0])
    ranks = CriticRanker(critic)(tokens, labels)
    assert critic.training  # put back, but dropout had been off
    critic.eval()
    logits = critic(tokens, labels, torch.ones(4, 16, dtype=torch.bool)) if reads_mask else critic(tokens, labels)
    torch.testing.assert_close(ranks, logits.sigmoid().double().mean(1))


def test_a_network_ranks_in_its_own_precision_and_without_dropout():
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.9), torch.nn.Linear(16, 2, bias=False))
    ranker = ClassifierRanker(as_classifier(network.train()), lambda tokens: torch.full((len(tokens), 1, 4, 4), 0.5))
    tokens, labels = torch.zeros(3, 1, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    assert len(ranker(tokens, labels).unique()) == 1
    assert network[1].training
    network.double()
    assert ranker(tokens, labels).isfinite().all()


def test_the_ranker_is_the_one_that_settings_name():
    critic, classifier = Generator(SIZES).start_critic(), as_classifier(torch.clone)
    parts = critic, classifier, torch.clone
    assert choose_ranker(SamplingSettings(), *parts) is None
    assert choose_ranker(SamplingSettings(candidates=2), *parts) == ClassifierRanker(classifier, torch.clone)
    assert choose_ranker(SamplingSettings(candidates=2, reject_by="critic"), *parts) == CriticRanker(critic)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SamplingSettings(candidates=0), "candidates is 0; it must be an integer, at least 1"),
        (lambda: SamplingSettings(candidates=2.5), "candidates is 2.5"),
        (lambda: SamplingSettings(reject_by="taste"), "reject_by is 'taste'; choose one of classifier, critic"),
        (lambda: best(make, None, 1, 2, 64), "candidates is 2"),
        (lambda: best(make, rank, 1, 2, 0), "batch_size is 0"),
        (lambda: ranked(lambda tokens, labels: labels[:, None].float()), r"returned shape \(2, 1\) for 2 candidates"),
        (lambda: ranked(lambda tokens, labels: labels * torch.nan), "returned NaN for 2 candidates"),
        (
            lambda: ranked(ClassifierRanker(as_classifier(lambda images: torch.zeros(len(images), 1)), torch.clone)),
            r"logits of shape \(2, 1\); expected \(2, classes\), with more than 1 classes",
        ),
        (
            lambda: ClassifierRanker(as_classifier(torch.clone), torch.clone)(torch.zeros(1, 1), None),
            "reject_by is classifier, which needs classes, and the model has none",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


def ranked(ranker):
    return best(make, lambda tokens, rows: ranker(tokens, torch.ones_like(rows)), 1, 2, 64)
