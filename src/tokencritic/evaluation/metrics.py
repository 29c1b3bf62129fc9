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
_BLOCK = 2048  # points on each side of a block of distances


class MetricValue(NamedTuple):
    """A metric's value and its standard deviation over what `std_over` says; NaN and "" where none is known."""

    value: float
    std: float = math.nan
    std_over: str = ""


@dataclass(frozen=True)
class Gaussian:
    """mean (d,), covariance (d, d), both float64; count: of how many samples, None if a file does not say."""

    mean: Tensor
    covariance: Tensor
    count: int | None = None


def fit_gaussian(batches: Iterable[Tensor]) -> Gaussian:
    """The mean and the unbiased covariance of rows that come in batches, (b, d) of any floating type and any b.

    Batch sizes change only the last rounding. `scatter` is the sum of outer products of the deviations from the mean: sums
    of squares, from which a covariance would be a small difference, are never formed.
    """
    count = 0
    mean = scatter = torch.empty(0)
    for batch in batches:
        rows = batch.detach().to("cpu", torch.float64)
        if rows.ndim != 2 or not rows.isfinite().all():
            raise InputError(f"features are {tuple(rows.shape)} or hold NaN or infinity; expected finite (b, d)")
        if len(rows) == 0:
            continue
        if count == 0:
            mean, scatter = rows.new_zeros(rows.shape[1]), rows.new_zeros(rows.shape[1], rows.shape[1])
        rows_mean = rows.mean(0)
        rows = rows - rows_mean
        scatter.addmm_(rows.T, rows)
        # Chan, Golub and LeVeque (1979): what the distance between two parts' means adds to their scatters.
        difference, total = rows_mean - mean, count + len(rows)
        scatter.addr_(difference, difference, alpha=count * len(rows) / total)
        mean, count = mean + difference * (len(rows) / total), total
    if count < 2:
        raise InputError(f"a covariance of {count} samples was asked for; it needs at least 2")
    return Gaussian(mean, scatter / (count - 1), count)


def fid(real: Gaussian, fake: Gaussian) -> float:
    """The squared Frechet distance of two Gaussians (Heusel et al., 2017).

    With A = F F', the product A B has the eigenvalues of F' B F, which is symmetric: they are real, and the trace of the
    root is the sum of their roots. No root of a matrix is formed.
    """
    if real.mean.shape != fake.mean.shape:
        raise InputError(f"Gaussians have {len(real.mean)} and {len(fake.mean)} dimensions; expected equal ones")
    factor = _factor(real.covariance)
    inner = torch.linalg.eigvalsh(factor.T @ fake.covariance @ factor)
    overlap = inner.clamp(min=0).sqrt().sum()
    distance = (real.mean - fake.mean).square().sum()
    distance = distance + real.covariance.trace() + fake.covariance.trace() - 2 * overlap
    return float(distance.clamp(min=0))


def _factor(covariance: Tensor) -> Tensor:
    """F with F F' = covariance: by Cholesky or, if the matrix is singular, by the eigenvectors that are not rounding."""
    rounding = len(covariance) * torch.finfo(covariance.dtype).eps
    lower, failed = torch.linalg.cholesky_ex(covariance)
    if not bool(failed) and bool(lower.diagonal().min() ** 2 > rounding * covariance.diagonal().max()):
        return lower
    values, vectors = torch.linalg.eigh(covariance)
    kept = values > rounding * values[-1]
    return vectors[:, kept] * values[kept].sqrt()


def kid(real: Tensor, fake: Tensor, *, subset_size: int = 1000, rng: torch.Generator | None = None) -> MetricValue:
    """Kernel Inception Distance (Binkowski et al., 2018): the unbiased squared MMD with the kernel (xy / d + 1)^3.

    real: (n, d), fake: (m, d). The value is the mean over random subsets of both, the deviation that over the subsets.
    rng: of the subsets, on the CPU; without one they are the same at every call.
    """
    check_pair(real, fake)
    fewest = min(len(real), len(fake))
    if not 2 <= subset_size <= fewest:
        raise InputError(f"subset_size is {subset_size}; with {fewest} samples it must lie between 2 and {fewest}")
    rng = torch_rng(0) if rng is None else rng
    values = torch.empty(KID_SUBSETS, dtype=torch.float64)
    for number in range(KID_SUBSETS):
        picked = [x[torch.randperm(len(x), generator=rng)[:subset_size].to(x.device)].double() for x in (real, fake)]
        values[number] = _squared_mmd(*picked)
    return MetricValue(float(values.mean()), float(values.std(correction=0)), f"{KID_SUBSETS} subsets of {subset_size}")


def _squared_mmd(x: Tensor, y: Tensor) -> Tensor:
    """x, y: (n, d) both. Pairs of a sample with itself are left out."""
    count = len(x)
    own, other, across = ((a @ b.T / a.shape[1] + 1) ** 3 for a, b in ((x, x), (y, y), (x, y)))
    within = sum(kernel.sum() - kernel.trace() for kernel in (own, other))
    return within / (count * (count - 1)) - 2 * across.mean()


def inception_score(probabilities: Tensor, split_size: int = 5000) -> float:
    """The Inception Score (Salimans et al., 2016): the mean over splits in the given order, as in ADM's evaluator.

    probabilities: (n, classes), each row a distribution. A smaller last split counts as much as the others.
    """
    if probabilities.ndim != 2 or len(probabilities) == 0:
        raise InputError(f"probabilities are {tuple(probabilities.shape)}; expected (n, classes), n at least 1")
    error = (probabilities.double().sum(1) - 1).abs().max()
    if not (bool((probabilities >= 0).all()) and error < 1e-3):  # also true of NaN
        raise InputError(f"probabilities are negative, or have rows that do not sum to 1 (off by {float(error):.3g})")
    scores = [
        (torch.special.entr(part.mean(0)).sum() - torch.special.entr(part).sum(1).mean()).exp()
        for part in probabilities.double().split(split_size)
    ]
    return float(torch.stack(scores).mean())


class Hits(NamedTuple):
    """For each point, 1 if it lies in a ball of the other set, else 0: fake (m,), real (n,), float64.

    Precision is the mean of `fake`, recall that of `real`.
    """

    fake: Tensor
    real: Tensor


def precision_recall(real: Tensor, fake: Tensor, k: int = 3) -> Hits:
    """Improved precision and recall (Kynkaanniemi et al., 2019): which points lie in a ball around one of the other set.

    real: (n, d), fake: (m, d), any floating type. A ball's radius is the distance to the k-th nearest point of its own set.
    Distances come in blocks, so that memory does not grow with the number of pairs. A point within rounding error of the
    surface of a ball, as duplicates are, lies in it.
    """
    check_pair(real, fake)
    for name, features in (("real", real), ("fake", fake)):
        if len(features) <= k:
            raise InputError(f"{name} holds {len(features)} points; {k} neighbours of each need at least {k + 1}")
    centre = real.mean(0, dtype=torch.float64)
    real_radii, fake_radii = _radii(real, centre, k), _radii(fake, centre, k)
    real_hit, fake_hit = (torch.zeros(len(x), dtype=torch.bool) for x in (real, fake))
    for rows in _slices(real):
        for columns in _slices(fake):
            distances, error = _distances(real[rows], fake[columns], centre)
            least = distances - error
            fake_hit[columns] |= (least <= real_radii[rows, None]).any(0)
            real_hit[rows] |= (least <= fake_radii[columns]).any(1)
    return Hits(fake_hit.double(), real_hit.double())


def _slices(points: Tensor) -> list[slice]:
    return [slice(start, start + _BLOCK) for start in range(0, len(points), _BLOCK)]


def _distances(left: Tensor, right: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances |a|^2 + |b|^2 - 2ab of all pairs, and how much they may be off: (left, right) both.

    centre: (d,), taken from all points, so that numbers and their rounding errors are small.
    """
    left, right = left.double() - centre, right.double() - centre
    norms = left.square().sum(1)[:, None] + right.square().sum(1)
    # A sum of d products errs by d roundings of |a||b| at most, in any order; the rest adds less than 16 roundings.
    return norms - 2 * (left @ right.T), 2 * (left.shape[1] + 16) * 2.0**-53 * norms


def _radii(points: Tensor, centre: Tensor, k: int) -> Tensor:
    """The squared distance of each point to its k-th nearest other one, at the upper end of its rounding error: (n,)."""
    found = []
    for rows in _slices(points):
        nearest = torch.empty(len(points[rows]), 0, dtype=torch.float64)
        for columns in _slices(points):
            distances, error = _distances(points[rows], points[columns], centre)
            nearest = torch.cat([nearest, distances + error], 1)
            nearest = nearest.topk(min(k + 1, nearest.shape[1]), largest=False).values
        found.append(nearest[:, k])  # the nearest of all is the point itself
    return torch.cat(found)


def correctly_classified(probabilities: Tensor, labels: np.ndarray) -> Tensor:
    """Whether each image's likeliest class is its label: (n,) float64, 1 or 0. probabilities: (n, classes)."""
    classes = probabilities.shape[1]
    if labels.min() < 0 or labels.max() >= classes:
        raise InputError(f"labels go from {labels.min()} to {labels.max()}; the classifier has {classes} classes")
    return (probabilities.argmax(1) == torch.from_numpy(labels)).double()


def bootstrap(metric: Callable[[Tensor], float], count: int, resamples: int) -> MetricValue:
    """A metric of `count` samples and its standard deviation (n - 1) over resamples with replacement.

    metric: takes the numbers of the samples, (count,) int64. resamples: 0 for no standard deviation.
    """
    rng = torch_rng(0)
    values = [metric(torch.randint(count, (count,), generator=rng)) for _ in range(resamples)]
    over = f"{resamples} bootstrap resamples" if resamples else ""
    return MetricValue(metric(torch.arange(count)), standard_deviation(values), over)


def mean_over_images(values: Tensor, resamples: int) -> MetricValue:
    """The mean of one value per image, (n,). Its bootstrap has the deviation sigma / sqrt(n), in closed form."""
    if not resamples:
        return MetricValue(float(values.mean()))
    std = float(values.std(correction=0)) / math.sqrt(len(values))
    return MetricValue(float(values.mean()), std, "bootstrap, in closed form")


def over_seed_sets(found: Sequence[MetricValue]) -> MetricValue:
    """Mean and standard deviation (n - 1) of a metric over seed sets."""
    values = [one.value for one in found]
    return MetricValue(math.fsum(values) / len(values), standard_deviation(values), f"{len(values)} seed sets")


def standard_deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def check_pair(real: Tensor, fake: Tensor) -> None:
    """Raise InputError unless both are finite floats, (n, d) and (m, d)."""
    for name, features in (("real", real), ("fake", fake)):
        if features.ndim != 2 or features.shape[1] != real.shape[-1] or not features.is_floating_point():
            got = f"{features.dtype} {tuple(features.shape)}"
            raise InputError(f"{name} is {got}; expected floats (n, {real.shape[-1]})")
        if not bool(features.isfinite().all()):
            raise InputError(f"{name} holds NaN or infinity")
