"""Metrics of generated images: pure functions of features, in float64."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.randomness import torch_rng

KID_SUBSETS = 100
_BLOCK = 2048  # rows and columns of a block of pairwise distances


class MetricValue(NamedTuple):
    """The value of a metric and its standard deviation.

    std: NaN if unknown.
    std_over: what the standard deviation is taken over, in words; "" if unknown.
    """

    value: float
    std: float = math.nan
    std_over: str = ""


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian fitted to features.

    mean: (d,) float64.
    covariance: (d, d) float64.
    count: the number of samples, None if a file does not state it.
    """

    mean: Tensor
    covariance: Tensor
    count: int | None = None


def fit_gaussian(batches: Iterable[Tensor]) -> Gaussian:
    """Compute the mean and the unbiased covariance of features that arrive in batches.

    batches: (b, d) of any floating type; b may vary.

    The result depends on the batch sizes only up to rounding. Deviations from the running mean are accumulated, because
    a difference of large sums of squares would lose precision.
    """
    count = 0
    mean = scatter = torch.empty(0)
    for batch in batches:
        rows = batch.detach().to("cpu", torch.float64)
        if rows.ndim != 2 or not rows.isfinite().all():
            raise InputError(f"features are {tuple(rows.shape)} or contain NaN or infinity; expected finite (b, d)")
        if len(rows) == 0:
            continue
        if count == 0:
            mean, scatter = rows.new_zeros(rows.shape[1]), rows.new_zeros(rows.shape[1], rows.shape[1])
        rows_mean = rows.mean(0)
        rows = rows - rows_mean
        scatter.addmm_(rows.T, rows)
        # Chan, Golub and LeVeque (1979): merging two parts adds a term for the distance between their means.
        difference, total = rows_mean - mean, count + len(rows)
        scatter.addr_(difference, difference, alpha=count * len(rows) / total)
        mean, count = mean + difference * (len(rows) / total), total
    if count < 2:
        raise InputError(f"features have {count} rows; a covariance needs at least 2")
    return Gaussian(mean, scatter / (count - 1), count)


def fid(real: Gaussian, fake: Gaussian) -> float:
    """Compute the squared Frechet distance of two Gaussians (Heusel et al., 2017).

    For A = F F', the product A B has the same eigenvalues as the symmetric matrix F' B F. The trace of its square root
    is the sum of the roots of these eigenvalues, so no matrix square root is needed.
    """
    if real.mean.shape != fake.mean.shape:
        raise InputError(f"Gaussians have {len(real.mean)} and {len(fake.mean)} dimensions; expected the same number")
    factor = _factor(real.covariance)
    inner = torch.linalg.eigvalsh(factor.T @ fake.covariance @ factor)
    overlap = inner.clamp(min=0).sqrt().sum()
    distance = (real.mean - fake.mean).square().sum()
    distance = distance + real.covariance.trace() + fake.covariance.trace() - 2 * overlap
    return float(distance.clamp(min=0))


def _factor(covariance: Tensor) -> Tensor:
    """Return F with F F' = covariance: the Cholesky factor or, for a singular matrix, one from its eigenvectors.

    Eigenvectors whose eigenvalue is within rounding error of 0 are dropped.
    """
    rounding = len(covariance) * torch.finfo(covariance.dtype).eps
    lower, failed = torch.linalg.cholesky_ex(covariance)
    if not bool(failed) and bool(lower.diagonal().min() ** 2 > rounding * covariance.diagonal().max()):
        return lower
    values, vectors = torch.linalg.eigh(covariance)
    kept = values > rounding * values[-1]
    return vectors[:, kept] * values[kept].sqrt()


def kid(real: Tensor, fake: Tensor, *, subset_size: int = 1000, rng: torch.Generator | None = None) -> MetricValue:
    """Compute the Kernel Inception Distance (Binkowski et al., 2018).

    KID is the unbiased squared MMD with the kernel (xy / d + 1)^3. Mean and standard deviation are taken over
    `KID_SUBSETS` random subsets.

    real, fake: features (n, d) and (m, d).
    rng: samples the subsets, on the CPU. By default every call uses the same subsets.
    """
    check_pair(real, fake)
    fewest = min(len(real), len(fake))
    if not 2 <= subset_size <= fewest:
        raise InputError(f"subset_size is {subset_size}; expected 2 to {fewest} for {fewest} samples")
    rng = torch_rng(0) if rng is None else rng
    values = torch.empty(KID_SUBSETS, dtype=torch.float64)
    for number in range(KID_SUBSETS):
        picked = [x[torch.randperm(len(x), generator=rng)[:subset_size].to(x.device)].double() for x in (real, fake)]
        values[number] = _squared_mmd(*picked)
    return MetricValue(float(values.mean()), float(values.std(correction=0)), f"{KID_SUBSETS} subsets of {subset_size}")


def _squared_mmd(x: Tensor, y: Tensor) -> Tensor:
    """Compute the unbiased squared MMD of x and y, both (n, d). Pairs of a sample with itself are left out."""
    count = len(x)
    own, other, across = ((a @ b.T / a.shape[1] + 1) ** 3 for a, b in ((x, x), (y, y), (x, y)))
    within = sum(kernel.sum() - kernel.trace() for kernel in (own, other))
    return within / (count * (count - 1)) - 2 * across.mean()


def inception_score(probabilities: Tensor, split_size: int = 5000) -> float:
    """Compute the Inception Score (Salimans et al., 2016) as the mean over consecutive splits, like ADM's evaluator.

    probabilities: (n, classes), each row a distribution.
    split_size: images per split. The last split may be smaller and has the same weight.
    """
    if probabilities.ndim != 2 or len(probabilities) == 0:
        raise InputError(f"probabilities are {tuple(probabilities.shape)}; expected (n, classes) with n at least 1")
    error = (probabilities.double().sum(1) - 1).abs().max()
    if not (bool((probabilities >= 0).all()) and error < 1e-3):  # also catches NaN
        raise InputError(
            f"probabilities are negative or do not sum to 1 (off by {float(error):.3g}); expected rows that do"
        )
    scores = [
        (torch.special.entr(part.mean(0)).sum() - torch.special.entr(part).sum(1).mean()).exp()
        for part in probabilities.double().split(split_size)
    ]
    return float(torch.stack(scores).mean())


class Hits(NamedTuple):
    """Membership of each point in the manifold of the other set: float64, 1 if inside, else 0.

    fake: (m,), whose mean is the precision.
    real: (n,), whose mean is the recall.
    """

    fake: Tensor
    real: Tensor


def precision_recall(real: Tensor, fake: Tensor, k: int = 3, real_radii: Tensor | None = None) -> Hits:
    """Compute improved precision and recall (Kynkaanniemi et al., 2019).

    The manifold of a set is the union of balls around its points. The radius of a ball is the distance to the k-th
    nearest point of the same set. A point within rounding error of a ball's surface, such as a duplicate, counts as
    inside.

    real, fake: features (n, d) and (m, d) of any floating type.
    real_radii: `manifold_radii(real, k)` if known.

    Distances are computed in blocks, so that memory does not grow with the number of pairs.
    """
    check_pair(real, fake)
    for name, features in (("real", real), ("fake", fake)):
        if len(features) <= k:
            raise InputError(f"{name} has {len(features)} points; expected at least {k + 1} for {k} neighbours of each")
    centre = real.mean(0, dtype=torch.float64)
    fake_radii = _radii(fake, centre, k)
    real_radii = manifold_radii(real, k) if real_radii is None else real_radii
    real_hit, fake_hit = (torch.zeros(len(x), dtype=torch.bool) for x in (real, fake))
    for rows in _slices(real):
        for columns in _slices(fake):
            distances, error = _distances(real[rows], fake[columns], centre)
            least = distances - error
            fake_hit[columns] |= (least <= real_radii[rows, None]).any(0)
            real_hit[rows] |= (least <= fake_radii[columns]).any(1)
    return Hits(fake_hit.double(), real_hit.double())


def manifold_radii(points: Tensor, k: int = 3) -> Tensor:
    """Return the squared radii of the balls around points (n, d), with their rounding error bounds: (n,) float64."""
    return _radii(points, points.mean(0, dtype=torch.float64), k)


def _slices(points: Tensor) -> list[slice]:
    return [slice(start, start + _BLOCK) for start in range(0, len(points), _BLOCK)]


def _distances(left: Tensor, right: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    """Return the squared distances |a|^2 + |b|^2 - 2ab of all pairs and bounds of their rounding errors.

    left, right: points (n, d) and (m, d). Both results are (n, m).
    centre: (d,), subtracted from all points to keep rounding errors small.
    """
    left, right = left.double() - centre, right.double() - centre
    norms = left.square().sum(1)[:, None] + right.square().sum(1)
    # A sum of d products has an error of at most d roundings of |a||b|, in any order. The rest adds less than 16.
    return norms - 2 * (left @ right.T), 2 * (left.shape[1] + 16) * 2.0**-53 * norms


def _radii(points: Tensor, centre: Tensor, k: int) -> Tensor:
    """Return the squared distance of each point to its k-th nearest neighbour, plus its rounding error bound: (n,)."""
    found = []
    for rows in _slices(points):
        nearest = torch.empty(len(points[rows]), 0, dtype=torch.float64)
        for columns in _slices(points):
            distances, error = _distances(points[rows], points[columns], centre)
            nearest = torch.cat([nearest, distances + error], 1)
            nearest = nearest.topk(min(k + 1, nearest.shape[1]), largest=False).values
        found.append(nearest[:, k])  # index 0 is the point itself
    return torch.cat(found)


def correctly_classified(probabilities: Tensor, labels: np.ndarray) -> Tensor:
    """Return 1 for each image whose most likely class is its label, else 0: (n,) float64.

    probabilities: (n, classes).
    labels: (n,) int64.
    """
    classes = probabilities.shape[1]
    if labels.min() < 0 or labels.max() >= classes:
        raise InputError(f"labels range from {labels.min()} to {labels.max()}; the classifier has {classes} classes")
    return (probabilities.argmax(1) == torch.from_numpy(labels)).double()


def bootstrap(metric: Callable[[Tensor], float], count: int, resamples: int) -> MetricValue:
    """Compute a metric of `count` samples and its standard deviation over bootstrap resamples.

    metric: a function of sample indices (count,) int64.
    resamples: how many resamples; 0 skips the standard deviation.
    """
    rng = torch_rng(0)
    values = [metric(torch.randint(count, (count,), generator=rng)) for _ in range(resamples)]
    over = f"{resamples} bootstrap resamples" if resamples else ""
    return MetricValue(metric(torch.arange(count)), standard_deviation(values), over)


def mean_over_images(values: Tensor, resamples: int) -> MetricValue:
    """Compute the mean of one value per image and its bootstrap standard deviation, sigma / sqrt(n) in closed form.

    values: (n,).
    resamples: 0 skips the standard deviation.
    """
    if not resamples:
        return MetricValue(float(values.mean()))
    std = float(values.std(correction=0)) / math.sqrt(len(values))
    return MetricValue(float(values.mean()), std, "bootstrap, in closed form")


def over_seed_sets(found: Sequence[MetricValue]) -> MetricValue:
    """Compute the mean and the standard deviation (n - 1) of a metric over seed sets."""
    values = [one.value for one in found]
    return MetricValue(math.fsum(values) / len(values), standard_deviation(values), f"{len(values)} seed sets")


def standard_deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def check_pair(real: Tensor, fake: Tensor) -> None:
    """Raise InputError unless real and fake are finite floats (n, d) and (m, d)."""
    for name, features in (("real", real), ("fake", fake)):
        if features.ndim != 2 or features.shape[1] != real.shape[-1] or not features.is_floating_point():
            got = f"{features.dtype} {tuple(features.shape)}"
            raise InputError(f"{name} is {got}; expected floats (n, {real.shape[-1]})")
        if not bool(features.isfinite().all()):
            raise InputError(f"{name} contains NaN or infinity; expected finite features")
