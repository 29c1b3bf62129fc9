import numpy as np
import pytest
import scipy.stats
import torch

from tokencritic.errors import InputError
from tokencritic.randomness import Use, as_seeds, candidate_seeds, philox, uniforms


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # known answers of Random123 for philox4x32-10
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_published_answers(counter, key, expected):
    words = philox(tuple(map(torch.tensor, counter)), tuple(map(torch.tensor, key)))
    assert [int(word) for word in words] == expected


def test_an_image_has_the_same_noise_in_any_company():
    together = uniforms(torch.tensor([5, 6, 2**62 + 7]), 49, Use.DRAW, step=3)
    alone = uniforms(torch.tensor([2**62 + 7]), 49, Use.DRAW, step=3)
    assert together[2:].equal(alone)
    assert uniforms(torch.tensor([5]), 10, Use.DRAW, step=3).equal(together[:1, :10])


def test_seeds_uses_steps_and_positions_are_independent():
    seeds = torch.arange(200)
    values = [uniforms(seeds, 50, use, step).flatten() for use in (Use.DRAW, Use.SELECT) for step in (0, 1)]
    correlations = torch.stack(values).corrcoef()
    assert (correlations - torch.eye(4)).abs().max() < 0.05
    assert torch.cat(values).unique().numel() > 39_900  # of 40,000 samples of 23 bits about 95 collide
    neighbours = values[0].reshape(200, 50)
    assert torch.stack([neighbours[:, 1:].flatten(), neighbours[:, :-1].flatten()]).corrcoef()[0, 1].abs() < 0.05
    assert torch.stack([neighbours[1:].flatten(), neighbours[:-1].flatten()]).corrcoef()[0, 1].abs() < 0.05


def test_they_are_uniform_and_never_0_or_1():
    values = uniforms(torch.arange(1000), 1000, Use.SELECT)
    assert values.dtype == torch.float32
    assert values.min() > 0
    assert values.max() < 1
    assert scipy.stats.kstest(values.flatten().numpy(), "uniform").pvalue > 1e-3


def test_seeds_are_one_per_image():
    assert as_seeds(7, 3).tolist() == [7, 8, 9]
    assert as_seeds([3, 1], 2).tolist() == [3, 1]
    assert as_seeds(np.int64(7), 2).tolist() == as_seeds(np.array([7, 8]), 2).tolist() == [7, 8]
    for bad in ([1, 2], [1, 2, -1], [1, 2, 2**63], [1, 2, 0.5]):
        with pytest.raises(InputError, match="seeds"):
            as_seeds(bad, 3)


def test_candidates_have_the_same_seeds_together_and_alone():
    seeds = torch.tensor([5, 5, 5, 7])
    together = candidate_seeds(seeds, torch.tensor([0, 1, 2, 1]))
    assert together.tolist() == [
        5,
        *(candidate_seeds(torch.tensor([s]), n).item() for s, n in ((5, 1), (5, 2), (7, 1))),
    ]
    assert together.unique().numel() == 4
