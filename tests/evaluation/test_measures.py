"""Measures against closed forms, SciPy and torchmetrics."""

import math
import warnings

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import nn

from tokencritic.errors import InputError
from tokencritic.evaluation.features import Provenance
from tokencritic.evaluation.measures import (
    bootstrap,
    class_accuracy,
    fid,
    inception_score,
    kid,
    statistics_fid,
)
from tokencritic.evaluation.moments import Gaussian, Moments, Statistics


def samples(count: int, dimension: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    mixing = torch.randn(dimension, dimension, generator=rng, dtype=torch.float64) / dimension**0.5
    return torch.randn(count, dimension, generator=rng, dtype=torch.float64) @ mixing * scale + 0.1 * seed


def moments(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    gathered = Moments(rows.shape[1])
    gathered.update(rows)
    return gathered.mean, gathered.covariance


def test_fid_of_gaussians_in_one_dimension_is_the_textbook_formula():
    one, other = torch.tensor([1.0]), torch.tensor([4.0])
    assert fid(one, torch.tensor([[4.0]]), other, torch.tensor([[9.0]])) == pytest.approx(3**2 + (2 - 3) ** 2)


def test_fid_equals_scipys_matrix_square_root():
    (mean1, cov1), (mean2, cov2) = (moments(samples(300, 40, seed)) for seed in (1, 2))
    root = scipy.linalg.sqrtm((cov1 @ cov2).numpy()).real
    expected = float((mean1 - mean2).square().sum()) + np.trace(cov1 + cov2) - 2 * np.trace(root)
    assert fid(mean1, cov1, mean2, cov2) == pytest.approx(expected, rel=1e-10)


def test_fid_of_a_set_with_itself_is_zero_and_order_does_not_matter():
    (mean1, cov1), (mean2, cov2) = (moments(samples(300, 40, seed)) for seed in (1, 2))
    assert fid(mean1, cov1, mean1, cov1) == pytest.approx(0, abs=1e-10)
    assert fid(mean1, cov1, mean2, cov2) == pytest.approx(fid(mean2, cov2, mean1, cov1), rel=1e-10)


def test_fid_of_singular_covariances_is_exact():
    """Two planes in 50 dimensions that share one axis: root of 4 * 9 on it, nothing elsewhere."""
    turn = torch.linalg.qr(samples(50, 50, 3)).Q
    spectra = torch.zeros(2, 50, dtype=torch.float64)
    spectra[0, :2] = torch.tensor([4.0, 1.0])
    spectra[1, [0, 2]] = torch.tensor([9.0, 1.0], dtype=torch.float64)
    cov1, cov2 = ((turn * spectrum) @ turn.T for spectrum in spectra)
    zero = torch.zeros(50)
    assert fid(zero, cov1, zero, cov2) == pytest.approx(5 + 10 - 2 * 6, abs=1e-6)


def test_too_few_samples_and_sets_that_do_not_compare_are_refused():
    rows = samples(6, 6, 1)
    few = Statistics(Gaussian(*moments(rows), 6))
    with pytest.raises(InputError, match="6 real samples are too few for FID with features of 6 dimensions"):
        statistics_fid(few, few)
    assert statistics_fid(few, few, few_samples=True) == pytest.approx(0, abs=1e-6)
    enough = Statistics(Gaussian(*moments(samples(7, 6, 1)), 7), provenance=Provenance("a", "tf1", "1", (8, 8)))
    assert statistics_fid(enough, enough) == pytest.approx(0, abs=1e-6)
    other = Statistics(enough.features, provenance=Provenance("a", "clean", "1", (8, 8)))
    with pytest.raises(InputError, match="resize clean instead of tf1"):
        statistics_fid(enough, other)
    with pytest.raises(InputError, match="sFID needs spatial"):
        statistics_fid(enough, enough, spatial=True)
    with pytest.raises(InputError, match="shapes"):
        fid(torch.zeros(2), torch.eye(2), torch.zeros(3), torch.eye(3))


def test_sfid_is_the_fid_of_the_spatial_features():
    features, spatial = (
        Gaussian(*moments(samples(20, 3, 1)), 20),
        [Gaussian(*moments(samples(20, 4, s)), 20) for s in (1, 2)],
    )
    real, fake = (Statistics(features, one) for one in spatial)
    expected = fid(spatial[0].mean, spatial[0].covariance, spatial[1].mean, spatial[1].covariance)
    assert statistics_fid(real, fake, spatial=True) == expected > 0.1


def test_kid_of_all_samples_is_the_unbiased_estimate_pair_by_pair():
    x, y = (samples(12, 5, seed) for seed in (1, 2))

    def kernel(a, b):
        return (float(a @ b) / 5 + 1) ** 3

    same = [kernel(z[i], z[j]) for z in (x, y) for i in range(12) for j in range(12) if i != j]
    cross = [kernel(a, b) for a in x for b in y]
    estimate = kid(x, y, subsets=3, subset_size=12)
    assert estimate.value == pytest.approx(sum(same) / (12 * 11) - 2 * sum(cross) / 144, rel=1e-10)
    assert estimate.spread == pytest.approx(0, abs=1e-12)


def test_kid_is_the_same_at_every_call_and_refuses_subsets_it_cannot_draw():
    x, y = samples(50, 5, 1), samples(60, 5, 2)
    assert kid(x, y, subset_size=20) == kid(x, y, subset_size=20)
    with pytest.raises(InputError, match="subset_size is 1000; with 50 samples"):
        kid(x, y)
    with pytest.raises(InputError, match="NaN"):
        kid(x, y * math.nan, subset_size=10)
    with pytest.raises(InputError, match="one d"):
        kid(x, y[:, :3], subset_size=10)


def test_inception_score_is_the_number_of_classes_at_best_and_one_at_worst():
    sure = torch.eye(10).repeat(30, 1)
    assert inception_score(sure).value == pytest.approx(10)
    assert inception_score(torch.full((20, 10), 0.1)).value == pytest.approx(1)
    assert math.isnan(inception_score(sure).spread)


def test_inception_score_averages_over_splits_in_order():
    """The first split holds one class only, the second two: (1 + 2) / 2."""
    rows = torch.eye(4)[[0, 0, 0, 0, 1, 2, 1, 2]]
    score = inception_score(rows, split_size=4)
    assert score.value == pytest.approx(1.5)
    assert score.spread == pytest.approx(0.5**0.5)


@pytest.mark.parametrize(
    "bad", [torch.ones(3, 4), torch.tensor([[1.5, -0.5]]), torch.full((2, 2), math.nan), torch.ones(0, 2)]
)
def test_what_is_no_distribution_has_no_inception_score(bad):
    with pytest.raises(InputError, match="probabilities"):
        inception_score(bad)


def test_class_accuracy_counts_the_highest_classes():
    probabilities = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5]])
    labels = torch.tensor([1, 2, 2, 0])
    assert class_accuracy(probabilities, labels) == 0.5
    assert class_accuracy(probabilities, labels, top=2) == 0.75
    assert class_accuracy(probabilities, labels, top=3) == 1
    for wrong in (torch.tensor([1, 2, 2]), torch.tensor([1, 2, 2, 3]), torch.tensor([-1, 2, 2, 0])):
        with pytest.raises(InputError, match="labels"):
            class_accuracy(probabilities, wrong)


def test_bootstrap_finds_the_standard_error_of_a_mean():
    rows = samples(400, 1, 1)
    estimate = bootstrap(lambda x: float(x.mean()), rows, resamples=400)
    assert estimate.value == float(rows.mean())
    assert estimate.spread == pytest.approx(float(rows.std()) / 20, rel=0.15)
    assert estimate == bootstrap(lambda x: float(x.mean()), rows, resamples=400)


class Same(nn.Module):
    """Hands features to torchmetrics as if they were images."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.num_features = dimension

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features


def torchmetric(module: str, name: str, **arguments):
    imported = pytest.importorskip(f"torchmetrics.image.{module}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of the memory it takes
        return getattr(imported, name)(**arguments)


@pytest.mark.filterwarnings("ignore")
def test_fid_agrees_with_torchmetrics():
    real, fake = samples(200, 32, 1), samples(300, 32, 2)
    metric = torchmetric("fid", "FrechetInceptionDistance", feature=Same(32)).set_dtype(torch.float64)
    metric.update(real, real=True)
    metric.update(fake, real=False)
    assert fid(*moments(real), *moments(fake)) == pytest.approx(float(metric.compute()), rel=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_kid_agrees_with_torchmetrics():
    real, fake = samples(90, 32, 1), samples(80, 32, 2)
    metric = torchmetric("kid", "KernelInceptionDistance", feature=Same(32), subsets=10, subset_size=40)
    metric.set_dtype(torch.float64)
    metric.update(real, real=True)
    metric.update(fake, real=False)
    torch.manual_seed(5)
    value, spread = (float(x) for x in metric.compute())
    ours = kid(real, fake, subsets=10, subset_size=40, rng=torch.Generator().manual_seed(5))
    assert ours.value == pytest.approx(value, rel=1e-6)
    assert ours.spread == pytest.approx(spread, rel=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_inception_score_agrees_with_torchmetrics():
    logits = samples(205, 12, 1)
    metric = torchmetric("inception", "InceptionScore", feature=Same(12), splits=10).set_dtype(torch.float64)
    metric.update(logits)
    torch.manual_seed(5)
    value, spread = (float(x) for x in metric.compute())
    torch.manual_seed(5)
    ours = inception_score(logits[torch.randperm(205)].softmax(1), split_size=21)
    assert ours.value == pytest.approx(value, rel=1e-6)
    assert ours.spread == pytest.approx(spread, rel=1e-6)
