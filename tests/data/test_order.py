"""The order of examples: a permutation each epoch, the same for any number of ranks, resumable anywhere."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from tokencritic.data import ExampleOrder, Position, TokenArrays, TokenReader
from tokencritic.errors import InputError


def arrays(rows: int = 23, num_tokens: int = 4) -> TokenArrays:
    tokens = np.random.default_rng(0).integers(0, 65536, (rows, num_tokens), np.uint16)
    labels = np.arange(rows, dtype=np.int32) % 5
    return TokenArrays(tokens, labels, "x", 65536, (2, 2), tuple("abcde"), {})


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


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_ranks_share_the_examples_of_each_step(world_size: int) -> None:
    data = arrays()
    readers = [TokenReader(data, 8, seed=3, rank=rank, world_size=world_size) for rank in range(world_size)]
    order = ExampleOrder(len(data), 8, seed=3)
    for step in range(9):
        parts = [next(reader)[2] for reader in readers]
        assert all(len(part) == 8 // world_size for part in parts)
        assert sorted(torch.cat(parts).tolist()) == sorted(order.batch(step).tolist())
        # Strided: laid side by side the ranks give the very order of one.
        assert torch.stack(parts, dim=1).flatten().tolist() == order.batch(step).tolist()


def test_rows_are_those_of_the_indices() -> None:
    data = arrays()
    for tokens, labels, indices in itertools.islice(TokenReader(data, 6), 8):
        assert tokens.dtype == labels.dtype == indices.dtype == torch.int64
        np.testing.assert_array_equal(tokens, data.tokens[indices])  # values above 32767 too
        np.testing.assert_array_equal(labels, data.labels[indices])


def test_resume_from_three_integers() -> None:
    data = arrays()
    reader = TokenReader(data, 6, seed=9)
    positions, batches = [], []
    for _ in range(12):
        positions.append(reader.position)
        batches.append(next(reader)[2].tolist())
    assert positions[0] == Position(9, 0, 0)
    assert positions[4] == Position(9, 1, 1)
    for start in (1, 4, 11):
        resumed = TokenReader(data, 6, seed=0, position=Position(*positions[start]))
        assert [next(resumed)[2].tolist() for _ in batches[start:]] == batches[start:]
    # From the same place with another batch size, the line goes on where it was.
    other = TokenReader(data, 4, position=positions[2])
    line = [index for batch in batches[2:] for index in batch]
    assert next(other)[2].tolist() + next(other)[2].tolist() == line[:8]


def test_a_batch_may_be_changed_without_changing_the_next(tmp_path: Path) -> None:
    reader = TokenReader(arrays(), 23)
    before = reader.position
    _, _, indices = next(reader)
    expected = indices.tolist()
    indices.zero_()
    reader.position = before
    assert next(reader)[2].tolist() == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 5, "world_size": 2}, "batch_size is 5; it must be a multiple of the 2 ranks"),
        ({"batch_size": 4, "rank": 2, "world_size": 2}, "rank is 2"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 4, "seed": -1}, "seed is -1"),
        ({"batch_size": 4, "position": Position(0, 0, 23)}, "offset must lie below the 23 rows"),
        ({"batch_size": 4, "position": Position(0, -1, 0)}, "position is"),
    ],
)
def test_wrong_arguments(arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TokenReader(arrays(), **arguments)
