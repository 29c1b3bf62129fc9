"""Precision and recall against all pairs in float64, in cases where plain matrix products fail."""

import numpy as np
import pytest
import torch

from tokencritic.errors import InputError
from tokencritic.evaluation import metrics
from tokencritic.evaluation.metrics import precision_recall


def all_pairs(one: torch.Tensor, other: torch.Tensor) -> np.ndarray:
    columns = other.double().numpy()
    return np.stack([np.square(row - columns).sum(1) for row in one.double().numpy()])


def oracle(real: torch.Tensor, fake: torch.Tensor, k: int) -> dict[str, float]:
    real_radii, fake_radii = (np.sort(all_pairs(x, x), axis=1)[:, k] for x in (real, fake))
    distances = all_pairs(real, fake)
    precision = (distances <= real_radii[:, None]).any(0).mean()
    return {"precision": precision, "recall": (distances <= fake_radii).any(1).mean()}


def ours(real: torch.Tensor, fake: torch.Tensor, k: int) -> dict[str, float]:
    hits = precision_recall(real, fake, k)
    return {"precision": float(hits.fake.mean()), "recall": float(hits.real.mean())}


def points(count: int, dimension: int, seed: int, spread: float = 1.0, shift: float = 3.0) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(count, dimension, generator=rng) * spread + shift


def with_duplicates(real: torch.Tensor, fake: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sets with more copies of a point than neighbours, within and across: distances equal radii exactly."""
    real, fake = real.clone(), fake.clone()
    fake[: len(fake) // 4] = real[: len(fake) // 4]
    real[-20:] = real[1]
    fake[-25:] = real[2]
    fake[-40:-25] = fake[-50]
    return real, fake


def test_two_thousand_points_with_duplicates_are_judged_as_by_the_oracle(monkeypatch):
    monkeypatch.setattr(metrics, "_BLOCK", 700)  # several blocks, the last ones smaller
    real, fake = with_duplicates(points(2000, 24, 1), points(2000, 24, 2, 0.9))
    found = ours(real, fake, 3)
    assert found == oracle(real, fake, 3)
    assert 0.2 < found["precision"] < 1
    assert 0.2 < found["recall"] < 1


def clusters(count: int, seed: int) -> torch.Tensor:
    """Clusters of six close points far from all others, which float32 products could not separate."""
    return points(count, 8, seed, 100, 0).repeat(6, 1) + points(6 * count, 8, seed + 1, 1e-3, 0)


CASES = {
    "small clusters far apart": (clusters(30, 1), torch.cat([clusters(30, 1)[::2], clusters(20, 3)])),
    "a grid, where most distances are tied": (points(300, 3, 1).round(), points(350, 3, 2).round()),
    "far from the origin, where products cancel": with_duplicates(
        points(300, 8, 1, shift=1e4), points(200, 8, 2, shift=1e4)
    ),
    "float64 finer than float32": with_duplicates(
        1 + 1e-9 * points(200, 8, 1).double(), 1 + 0.9e-9 * points(150, 8, 2).double()
    ),
    "one point far away": (torch.cat([points(200, 8, 1), torch.full((1, 8), 1e6)]), points(200, 8, 2)),
    "tiny numbers, whose squares vanish": with_duplicates(points(200, 8, 1) * 1e-30, points(200, 8, 2) * 1e-30),
    "many dimensions": with_duplicates(points(120, 2048, 1), points(150, 2048, 2, 0.95)),
    "one set twice": (points(200, 8, 1), points(200, 8, 1)),
    "all points the same": (torch.ones(30, 4), torch.ones(40, 4)),
    "two places only": (torch.eye(2).repeat(50, 1), torch.eye(2).repeat(40, 1)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("k", [1, 3])
def test_hard_cases_are_judged_as_by_the_oracle(monkeypatch, case, k):
    monkeypatch.setattr(metrics, "_BLOCK", 64)
    real, fake = CASES[case]
    assert ours(real, fake, k) == oracle(real, fake, k)


def test_precision_and_recall_are_not_swapped():
    """Fakes in a corner of the real points have high precision and low recall."""
    real = torch.cat([points(100, 2, 1), points(100, 2, 2, shift=100.0)])
    found = ours(real, points(100, 2, 3, 0.5), 3)
    assert found["precision"] > 0.95
    assert found["recall"] < 0.5


def test_the_matrix_of_all_distances_never_exists(monkeypatch):
    """The largest tensor made is a block, whatever the number of points."""
    monkeypatch.setattr(metrics, "_BLOCK", 100)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            made = func(*args, **(kwargs or {}))
            for one in made if isinstance(made, (tuple, list)) else (made,):
                if isinstance(one, torch.Tensor):
                    largest = max(largest, one.numel())
            return made

    real, fake = points(900, 4, 1), points(800, 4, 2)
    with Watch():
        precision_recall(real, fake)
    assert largest < 900 * 20  # 8 neighbours a point, against 720,000 pairs


def test_bad_input_is_refused():
    good = points(10, 4, 1)
    for real, fake, k, said in (
        (good, good[:, :3], 3, "fake is"),
        (good, good[:3], 3, "fake has 3 points"),
        (good, good.long(), 3, "expected floats"),
        (good, good * float("nan"), 3, "NaN"),
        (good * float("inf"), good, 3, "NaN or infinity"),
    ):
        with pytest.raises(InputError, match=said):
            precision_recall(real, fake, k)
