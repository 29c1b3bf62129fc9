"""Metrics against closed forms, SciPy and torchmetrics."""

import math
import warnings

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import nn

from tokencritic.errors import InputError
from tokencritic.evaluation.metrics import (
    Gaussian,
    bootstrap,
    correctly_classified,
    fid,
    fit_gaussian,
    inception_score,
    kid,
)


def samples(count: int, dimension: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    mixing = torch.randn(dimension, dimension, generator=rng, dtype=torch.float64) / dimension**0.5
    return torch.randn(count, dimension, generator=rng, dtype=torch.float64) @ mixing * scale + 0.1 * seed


def gaussians() -> list[Gaussian]:
    return [fit_gaussian([samples(300, 40, seed)]) for seed in (1, 2)]


def centred(covariance: torch.Tensor) -> Gaussian:
    return Gaussian(torch.zeros(len(covariance), dtype=torch.float64), covariance)


def test_fid_of_gaussians_in_one_dimension_is_the_textbook_formula():
    one = Gaussian(torch.tensor([1.0]).double(), torch.tensor([[4.0]]).double())
    other = Gaussian(torch.tensor([4.0]).double(), torch.tensor([[9.0]]).double())
    assert fid(one, other) == pytest.approx(3**2 + (2 - 3) ** 2)


def test_fid_equals_scipys_matrix_square_root():
    one, other = gaussians()
    root = scipy.linalg.sqrtm((one.covariance @ other.covariance).numpy()).real
    expected = float((one.mean - other.mean).square().sum())
    expected += np.trace(one.covariance + other.covariance) - 2 * np.trace(root)
    assert fid(one, other) == pytest.approx(expected, rel=1e-10)


def test_fid_of_a_set_with_itself_is_zero_and_order_does_not_matter():
    one, other = gaussians()
    assert fid(one, one) == pytest.approx(0, abs=1e-10)
    assert fid(one, other) == pytest.approx(fid(other, one), rel=1e-10)


def test_fid_of_singular_covariances_is_exact():
    """Two planes in 50 dimensions that share one axis: root of 4 * 9 on it, nothing elsewhere."""
    turn = torch.linalg.qr(samples(50, 50, 3)).Q
    spectra = torch.zeros(2, 50, dtype=torch.float64)
    spectra[0, :2] = torch.tensor([4.0, 1.0])
    spectra[1, [0, 2]] = torch.tensor([9.0, 1.0], dtype=torch.float64)
    cov1, cov2 = ((turn * spectrum) @ turn.T for spectrum in spectra)
    assert fid(centred(cov1), centred(cov2)) == pytest.approx(5 + 10 - 2 * 6, abs=1e-6)
    with pytest.raises(InputError, match="50 and 2 dimensions"):
        fid(centred(cov1), centred(torch.eye(2).double()))


def test_kid_of_all_samples_is_the_unbiased_estimate_pair_by_pair():
    x, y = (samples(12, 5, seed) for seed in (1, 2))

    def kernel(a, b):
        return (float(a @ b) / 5 + 1) ** 3

    same = [kernel(z[i], z[j]) for z in (x, y) for i in range(12) for j in range(12) if i != j]
    cross = [kernel(a, b) for a in x for b in y]
    estimate = kid(x, y, subset_size=12)
    assert estimate.value == pytest.approx(sum(same) / (12 * 11) - 2 * sum(cross) / 144, rel=1e-10)
    assert estimate.std == pytest.approx(0, abs=1e-12)


def test_kid_is_the_same_at_every_call_and_refuses_subsets_it_cannot_draw():
    x, y = samples(50, 5, 1), samples(60, 5, 2)
    assert kid(x, y, subset_size=20) == kid(x, y, subset_size=20)
    with pytest.raises(InputError, match="subset_size is 1000; expected 2 to 50"):
        kid(x, y)
    with pytest.raises(InputError, match="NaN"):
        kid(x, y * math.nan, subset_size=10)
    with pytest.raises(InputError, match="fake is"):
        kid(x, y[:, :3], subset_size=10)


def test_inception_score_is_the_number_of_classes_at_best_and_one_at_worst():
    sure = torch.eye(10).repeat(30, 1)
    assert inception_score(sure) == pytest.approx(10)
    assert inception_score(torch.full((20, 10), 0.1)) == pytest.approx(1)


def test_inception_score_averages_over_splits_in_order():
    """The first split holds one class only, the second two: (1 + 2) / 2."""
    rows = torch.eye(4)[[0, 0, 0, 0, 1, 2, 1, 2]]
    assert inception_score(rows, split_size=4) == pytest.approx(1.5)


@pytest.mark.parametrize(
    "bad", [torch.ones(3, 4), torch.tensor([[1.5, -0.5]]), torch.full((2, 2), math.nan), torch.ones(0, 2)]
)
def test_what_is_no_distribution_has_no_inception_score(bad):
    with pytest.raises(InputError, match="probabilities"):
        inception_score(bad)


def test_images_whose_likeliest_class_is_their_label_are_right():
    probabilities = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5]])
    assert correctly_classified(probabilities, np.array([1, 2, 2, 0])).tolist() == [1, 0, 1, 0]
    for wrong in ([1, 2, 2, 3], [-1, 2, 2, 0]):
        with pytest.raises(InputError, match="labels range from"):
            correctly_classified(probabilities, np.array(wrong))


def test_bootstrap_finds_the_standard_error_of_a_mean():
    rows = samples(400, 1, 1)

    def mean(numbers):
        return float(rows[numbers].mean())

    estimate = bootstrap(mean, 400, 400)
    assert estimate.value == float(rows.mean())
    assert estimate.std == pytest.approx(float(rows.std()) / 20, rel=0.15)
    assert estimate == bootstrap(mean, 400, 400)
    assert estimate.std_over == "400 bootstrap resamples"
    assert math.isnan(bootstrap(mean, 400, 0).std)


class Same(nn.Module):
    """A feature extractor for torchmetrics that returns its input."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.num_features = dimension

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features


def torchmetric(module: str, name: str, **arguments):
    imported = pytest.importorskip(f"torchmetrics.image.{module}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about its memory
        return getattr(imported, name)(**arguments)


@pytest.mark.filterwarnings("ignore")
def test_fid_agrees_with_torchmetrics():
    real, fake = samples(200, 32, 1), samples(300, 32, 2)
    metric = torchmetric("fid", "FrechetInceptionDistance", feature=Same(32)).set_dtype(torch.float64)
    metric.update(real, real=True)
    metric.update(fake, real=False)
    assert fid(fit_gaussian([real]), fit_gaussian([fake])) == pytest.approx(float(metric.compute()), rel=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_kid_agrees_with_torchmetrics():
    real, fake = samples(90, 32, 1), samples(80, 32, 2)
    metric = torchmetric("kid", "KernelInceptionDistance", feature=Same(32), subsets=100, subset_size=40)
    metric.set_dtype(torch.float64)
    metric.update(real, real=True)
    metric.update(fake, real=False)
    torch.manual_seed(5)
    value, std = (float(x) for x in metric.compute())
    ours = kid(real, fake, subset_size=40, rng=torch.Generator().manual_seed(5))
    assert ours.value == pytest.approx(value, rel=1e-6)
    assert ours.std == pytest.approx(std, rel=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_inception_score_agrees_with_torchmetrics():
    logits = samples(205, 12, 1)
    metric = torchmetric("inception", "InceptionScore", feature=Same(12), splits=10).set_dtype(torch.float64)
    metric.update(logits)
    torch.manual_seed(5)
    value = float(metric.compute()[0])
    torch.manual_seed(5)
    ours = inception_score(logits[torch.randperm(205)].softmax(1), split_size=21)
    assert ours == pytest.approx(value, rel=1e-6)
