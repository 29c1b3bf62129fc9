"""The order of examples: a permutation each epoch, a pure function of the step."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokencritic.data.order import ExampleOrder
from tokencritic.distribution import Ranks
from tokencritic.errors import InputError


def test_every_epoch_is_a_permutation_and_another_one() -> None:
    order = ExampleOrder(23, 5, seed=1)
    line = np.concatenate([order.batch(step) for step in range(23)])
    epochs = line.reshape(5, 23)
    assert (np.sort(epochs, axis=1) == np.arange(23)).all()
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 5
    assert tuple(ExampleOrder(23, 23, seed=2).batch(0)) != tuple(epochs[0])


def test_a_step_is_a_pure_function() -> None:
    order = ExampleOrder(23, 7, seed=1)
    forward = [order.batch(step).tolist() for step in range(12)]
    backward = [order.batch(step).tolist() for step in reversed(range(12))]
    assert forward == backward[::-1]


def test_a_batch_may_be_larger_than_an_epoch() -> None:
    assert np.bincount(ExampleOrder(3, 10).batch(0)).tolist() in ([4, 3, 3], [3, 4, 3], [3, 3, 4])


def test_shuffle_is_pinned() -> None:
    """A run must resume to the same examples after an upgrade of numpy or of this package."""
    assert ExampleOrder(10, 10, seed=7).batch(3).tolist() == [2, 5, 9, 7, 3, 0, 6, 8, 4, 1]


def test_every_place_gets_every_example() -> None:
    first = [int(ExampleOrder(4, 1, seed=seed).batch(0)[0]) for seed in range(800)]
    assert all(150 < count < 250 for count in np.bincount(first))


@pytest.mark.parametrize(
    ("arguments", "message"), [({"batch_size": 0}, "batch_size is 0"), ({"batch_size": 4, "seed": -1}, "seed is -1")]
)
def test_wrong_arguments(arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ExampleOrder(23, **arguments)


RANKS = [Ranks(rank, 64, torch.device("cpu")) for rank in range(64)]


@given(num_examples=st.integers(1, 200), per_rank=st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_64_ranks_see_every_example_equally_often(num_examples: int, per_rank: int) -> None:
    order = ExampleOrder(num_examples, 64 * per_rank)
    steps = num_examples // math.gcd(num_examples, 64 * per_rank)  # until an epoch and a step end together
    seen = np.zeros((steps, 64 * per_rank), np.int64)
    shares = [ranks.share(64 * per_rank) for ranks in RANKS]
    assert {len(places) for places in shares} == {per_rank}
    for step in range(steps):
        batch = order.batch(step)
        for places in shares:
            seen[step, places] += 1 + batch[places]
    epochs = seen.reshape(-1, num_examples) - 1
    assert (np.sort(epochs, axis=1) == np.arange(num_examples)).all()


@given(count=st.integers(1, 1000), group=st.integers(1, 70))
def test_64_ranks_make_every_image_once_in_whole_batches(count: int, group: int) -> None:
    shares = [ranks.share(count, group) for ranks in RANKS]
    assert sorted(number for share in shares for number in share) == list(range(count))
    for share in shares:
        batches = [share[start : start + group] for start in range(0, len(share), group)]
        assert all(batch == list(range(batch[0], min(batch[0] + group, count))) for batch in batches)
