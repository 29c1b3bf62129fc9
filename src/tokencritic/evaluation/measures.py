"""Measures of generated images: pure functions of features, in float64."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tokencritic.errors import InputError, check_range
from tokencritic.evaluation.moments import Statistics, check_comparable


class Estimate(NamedTuple):
    """A measured value, and its spread: a standard deviation; what over, the function that made it says."""

    value: float
    spread: float


def fid(mean1: Tensor, covariance1: Tensor, mean2: Tensor, covariance2: Tensor) -> float:
    """The Frechet distance of two Gaussians, squared (Heusel et al., 2017).

    means: (d,); covariances: (d, d), symmetric. With A = F F', the product A B has the eigenvalues of F' B F, which is
    symmetric: they are real, and the trace of the root is the sum of their roots. No root of a matrix is formed.
    """
    mean1, covariance1, mean2, covariance2 = (x.double() for x in (mean1, covariance1, mean2, covariance2))
    if not (mean1.shape == mean2.shape and covariance1.shape == covariance2.shape == (*mean1.shape, *mean1.shape)):
        shapes = [tuple(x.shape) for x in (mean1, covariance1, mean2, covariance2)]
        raise InputError(f"means and covariances of shapes {shapes}; expected (d,), (d, d), (d,), (d, d) of one d")
    factor = _factor(covariance1)
    inner = torch.linalg.eigvalsh(factor.T @ covariance2 @ factor)
    overlap = inner.clamp(min=0).sqrt().sum()
    distance = (mean1 - mean2).square().sum() + covariance1.trace() + covariance2.trace() - 2 * overlap
    return float(distance.clamp(min=0))


def _factor(covariance: Tensor) -> Tensor:
    """F with F F' = covariance. By Cholesky, or where the matrix is singular, by the eigenvectors that are not rounding."""
    rounding = len(covariance) * torch.finfo(covariance.dtype).eps
    lower, failed = torch.linalg.cholesky_ex(covariance)
    if not bool(failed) and bool(lower.diagonal().min() ** 2 > rounding * covariance.diagonal().max()):
        return lower
    values, vectors = torch.linalg.eigh(covariance)
    kept = values > rounding * values[-1]
    return vectors[:, kept] * values[kept].sqrt()


def statistics_fid(real: Statistics, fake: Statistics, *, spatial: bool = False, few_samples: bool = False) -> float:
    """FID, or sFID with `spatial`, of two sets of images, once it is certain that they may be compared.

    few_samples: allow fewer samples than the features have dimensions.
    """
    if real.provenance is not None and fake.provenance is not None:
        check_comparable(fake.provenance, real.provenance, "fake")
    pair = (real.spatial, fake.spatial) if spatial else (real.features, fake.features)
    gaussians = [gaussian for gaussian in pair if gaussian is not None]
    if len(gaussians) < 2:
        raise InputError("sFID needs spatial features of both sets; one has none")
    for what, gaussian in zip(("real samples", "fake samples"), gaussians, strict=True):
        if not few_samples:
            check_count(what, gaussian.count, len(gaussian.mean))
    first, second = gaussians
    return fid(first.mean, first.covariance, second.mean, second.covariance)


def check_count(what: str, count: int | None, dimension: int) -> None:
    """A covariance of d dimensions from d samples or fewer is singular: its FID says more of the count than of the images.

    what: what there are so many of. count: None where it is not known.
    """
    if count is not None and count <= dimension:
        raise InputError(
            f"{count} {what} are too few for FID with features of {dimension} dimensions: it needs more of them than "
            "dimensions; few_samples=True (--few_samples true) allows it all the same"
        )


def kid(
    real: Tensor, fake: Tensor, *, subsets: int = 100, subset_size: int = 1000, rng: torch.Generator | None = None
) -> Estimate:
    """Kernel Inception Distance (Binkowski et al., 2018): the squared MMD with the kernel (xy / d + 1)^3, unbiased.

    real: (n, d), fake: (m, d). Returns the mean over random subsets of both and the standard deviation over the subsets.
    rng: what the subsets are drawn with, on the CPU; without one they are the same at every call.
    """
    _check_pair(real, fake)
    fewest = min(len(real), len(fake))
    if not 2 <= subset_size <= fewest:
        raise InputError(f"subset_size is {subset_size}; with {fewest} samples it must lie between 2 and {fewest}")
    if subsets < 1:
        raise InputError(f"subsets is {subsets}; it must be at least 1")
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    values = torch.empty(subsets, dtype=torch.float64)
    for number in range(subsets):
        picked = [x[torch.randperm(len(x), generator=rng)[:subset_size].to(x.device)].double() for x in (real, fake)]
        values[number] = _squared_mmd(*picked)
    return Estimate(float(values.mean()), float(values.std(correction=0)))


def _squared_mmd(x: Tensor, y: Tensor) -> Tensor:
    """x, y: (n, d) both. Pairs of a sample with itself are left out."""
    count = len(x)
    within = sum(kernel.sum() - kernel.trace() for kernel in (_kernel(x, x), _kernel(y, y)))
    return within / (count * (count - 1)) - 2 * _kernel(x, y).mean()


def _kernel(x: Tensor, y: Tensor) -> Tensor:
    return (x @ y.T / x.shape[1] + 1) ** 3


def inception_score(probabilities: Tensor, split_size: int = 5000) -> Estimate:
    """exp of the mutual information of image and class (Salimans et al., 2016), over splits as in ADM's evaluator.

    probabilities: (n, classes), each row a distribution, in the order in which the images came; a last split that is
    smaller counts as much as the others. Returns the mean over the splits and the standard deviation over them (n - 1), NaN
    for a single one.
    """
    _check_probabilities(probabilities)
    if split_size < 1:
        raise InputError(f"split_size is {split_size}; it must be at least 1")
    scores = torch.stack(
        [
            (torch.special.entr(part.mean(0)).sum() - torch.special.entr(part).sum(1).mean()).exp()
            for part in probabilities.double().split(split_size)
        ]
    )
    return Estimate(float(scores.mean()), float(scores.std()) if len(scores) > 1 else math.nan)


def class_accuracy(probabilities: Tensor, labels: Tensor, top: int = 1) -> float:
    """The share of images whose label is among the `top` classes of the highest probability.

    probabilities: (n, classes) or logits; labels: (n,) integers.
    """
    if probabilities.ndim != 2 or len(probabilities) == 0 or labels.shape != probabilities.shape[:1]:
        raise InputError(
            f"probabilities are {tuple(probabilities.shape)} and labels {tuple(labels.shape)}; expected (n, classes), (n,)"
        )
    if not 1 <= top <= probabilities.shape[1]:
        raise InputError(f"top is {top}; with {probabilities.shape[1]} classes it must lie between 1 and that")
    check_range("labels", labels, probabilities.shape[1])
    return float((probabilities.topk(top, dim=1).indices == labels[:, None]).any(1).double().mean())


def bootstrap(
    measure: Callable[..., float], *sets: Tensor, resamples: int = 100, rng: torch.Generator | None = None
) -> Estimate:
    """A measure of sets of samples, with the standard deviation (n - 1) it has when each set is drawn again from itself.

    measure: takes the sets, (n, ...) each, and gives a number. rng: as in `kid`.
    """
    if resamples < 2:
        raise InputError(f"resamples is {resamples}; a spread needs at least 2")
    rng = torch.Generator().manual_seed(0) if rng is None else rng
    values = torch.empty(resamples, dtype=torch.float64)
    for number in range(resamples):
        drawn = [x[torch.randint(len(x), (len(x),), generator=rng).to(x.device)] for x in sets]
        values[number] = measure(*drawn)
    return Estimate(float(measure(*sets)), float(values.std()))


def _check_pair(real: Tensor, fake: Tensor) -> None:
    if real.ndim != 2 or fake.ndim != 2 or real.shape[1] != fake.shape[1]:
        raise InputError(f"real is {tuple(real.shape)}, fake {tuple(fake.shape)}; expected (n, d) and (m, d) of one d")
    for name, features in (("real", real), ("fake", fake)):
        if not bool(features.isfinite().all()):
            raise InputError(f"{name} holds NaN or infinity")


def _check_probabilities(probabilities: Tensor) -> None:
    if probabilities.ndim != 2 or len(probabilities) == 0:
        raise InputError(f"probabilities are {tuple(probabilities.shape)}; expected (n, classes), n at least 1")
    error = (probabilities.double().sum(1) - 1).abs().max()
    if not (bool((probabilities >= 0).all()) and error < 1e-3):  # also true of NaN
        raise InputError(
            f"probabilities hold negative numbers or rows that do not sum to 1 (off by {float(error):.3g})"
        )
