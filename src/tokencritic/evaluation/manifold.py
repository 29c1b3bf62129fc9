"""Improved precision and recall (Kynkaanniemi et al., 2019): two sets of points compared by their neighbourhoods.

A set of points is described by balls: around each point, with the distance to its k-th nearest neighbour as radius.
Distances come from float32 matrix products, a block at a time, so that memory does not grow with the number of pairs. Their
rounding error has a bound. Where it could decide a comparison, the pair is computed again in float64 from the differences.
So the answers are those of a float64 computation over all pairs, also for points exactly on a ball, as duplicates are.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.evaluation.metrics import check_pair

_BLOCK = 2048  # points on each side of a block of distances
_SPARE = 5  # neighbours kept beyond the k-th; more than that within the rounding error, and a row is looked at again
_ROUNDING = 2.0**-24  # of float32
_CROWDED = 64  # such rows at a time
_EXACT_VALUES = 1 << 20  # numbers worked on at a time in float64


class Hits(NamedTuple):
    """For each point, 1 if it lies in a ball of the other set, else 0: fake (m,), real (n,), float64.

    Precision is the mean of `fake`, recall that of `real`.
    """

    fake: Tensor
    real: Tensor


def precision_recall(real: Tensor, fake: Tensor, k: int = 3) -> Hits:
    """Which fake points lie in a ball around a real one, and which real points in a ball around a fake one.

    real: (n, d), fake: (m, d), any floating type. A point on the surface lies in the ball.
    """
    reals, fakes = _prepare(real, fake, k)
    with _full_precision():
        real_radii, fake_radii = _radii(reals, k), _radii(fakes, k)
        fake_hit, real_hit = (torch.zeros(len(x), dtype=torch.bool, device=x.device) for x in (fake, real))
        for rows, columns, products in _product_blocks(reals, fakes):
            fake_hit[columns] |= _hit(products, reals, real_radii, rows, fakes, columns, fake_hit[columns])
            real_hit[rows] |= _hit(products.T, fakes, fake_radii, columns, reals, rows, real_hit[rows])
    return Hits(fake_hit.double(), real_hit.double())


@dataclass(frozen=True)
class _Points:
    """features: as they came. norms: squared, of the rows of `block`. slack: each row's part in the error of a distance."""

    features: Tensor
    centre: Tensor
    scale: float
    norms: Tensor
    slack: Tensor

    def __len__(self) -> int:
        return len(self.features)

    def block(self, rows: slice | Tensor) -> Tensor:
        """Rows around a centre common to all, in float32: smaller numbers, so smaller errors."""
        return ((self.features[rows] - self.centre) * self.scale).float()


def _prepare(real: Tensor, fake: Tensor, k: int) -> tuple[_Points, _Points]:
    if k < 1:
        raise InputError(f"k is {k}; it must be at least 1")
    check_pair(real, fake)
    for name, features in (("real", real), ("fake", fake)):
        if len(features) <= k:
            raise InputError(f"{name} holds {len(features)} points; {k} neighbours of each need at least {k + 1}")
    centre = real.mean(0, dtype=torch.float64).to(real.dtype)
    # The extremes of each dimension tell as much as all values would, without a copy of them.
    extremes = torch.stack([extreme for features in (real, fake) for extreme in features.aminmax(dim=0)])
    largest = (extremes - centre).abs().max()
    # A power of two rounds nothing; with it, squares neither overflow nor vanish.
    scale = 2.0 ** -math.frexp(float(largest))[1]
    dimension = real.shape[1]
    # |a - b|^2 = |a|^2 + |b|^2 - 2 ab. A sum of d products errs by d roundings of |a||b| at most, in whatever order it is
    # taken; centring, the norms and the subtractions add less than 16 roundings of |a|^2 + |b|^2.
    share = (dimension / (1 - dimension * _ROUNDING) + 16) * _ROUNDING
    return _points(real, centre, scale, share), _points(fake, centre, scale, share)


def _points(features: Tensor, centre: Tensor, scale: float, share: float) -> _Points:
    bare = _Points(features, centre, scale, centre, centre)
    norms = torch.cat([bare.block(rows).double().square().sum(1) for rows in _slices(len(features))])
    return _Points(features, centre, scale, norms, share * norms)


def _slices(count: int) -> list[slice]:
    return [slice(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]


@contextmanager
def _full_precision() -> Iterator[None]:
    """Products in float32 proper, whatever the session allows: the error bound counts on it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _product_blocks(left: _Points, right: _Points) -> Iterator[tuple[slice, slice, Tensor]]:
    for rows in _slices(len(left)):
        block = left.block(rows)
        for columns in _slices(len(right)):
            yield rows, columns, block @ right.block(columns).T


def _hit(
    products: Tensor, balls: _Points, radii: Tensor, rows: slice, points: _Points, columns: slice, known: Tensor
) -> Tensor:
    """Which points lie in any of the balls: (points,) bool. Those `known` to be hit are not computed again in float64.

    products: (balls, points). radii: squared, exact.
    """
    scaled = radii[rows] * balls.scale**2
    # fmt: off
    margin = products - ((balls.norms[rows] - scaled) / 2).float()[:, None]       # balls points
    margin -= (points.norms[columns] / 2).float()                                 # half of radius^2 - distance^2
    inside = margin >= 0                                                          # balls points
    doubt = ((balls.slack[rows] + 4 * _ROUNDING * scaled) / 2).float()[:, None]   # balls 1
    unsure = margin.abs_().sub_(doubt) < (points.slack[columns] / 2).float()      # balls points
    # fmt: on
    if not bool(unsure.any()):
        return inside.any(0)
    hit = (inside & ~unsure).any(0) | known
    point, ball = (unsure & ~hit).T.nonzero(as_tuple=True)
    distances = _exact(balls.features, ball + rows.start, points.features, point + columns.start)
    hit[point[distances <= radii[ball + rows.start]]] = True
    return hit


def _exact(left: Tensor, rows: Tensor, right: Tensor, columns: Tensor) -> Tensor:
    """Squared distances of pairs, float64. A pair's value depends on the two points alone, so equal pairs compare equal.

    NumPy sums each row of a matrix in one fixed order; a sum that is split over threads would not promise that.
    """
    step = max(1, _EXACT_VALUES // left.shape[1])
    found = [np.empty(0)]
    for one, other in zip(rows.split(step), columns.split(step), strict=True):
        difference = left[one].double().sub_(right[other]).cpu().numpy()
        found.append(np.square(difference, out=difference).sum(axis=1))
    return torch.from_numpy(np.concatenate(found)).to(left.device)


def _radii(points: _Points, k: int) -> Tensor:
    """The squared distance of each point to its k-th nearest other one, exact: (n,) float64, in the features' own scale."""
    kept = min(k + _SPARE, len(points) - 1)
    bounds, neighbours = _nearest(points, kept)
    low = bounds.double() + points.norms[:, None] - points.slack[:, None]
    high = low + 2 * (points.slack[:, None] + points.slack[neighbours])
    # The k-th distance lies between the k-th lowest lower bound and the k-th lowest upper bound.
    least, most = (values.kthvalue(k, dim=1, keepdim=True).values for values in (low, high))
    nearer = high < least
    open_ = (low <= most) & ~nearer
    row, place = open_.nonzero(as_tuple=True)
    exact = torch.full_like(low, math.inf)
    exact[row, place] = _exact(points.features, row, points.features, neighbours[row, place])
    rank = k - 1 - nearer.sum(1, keepdim=True)
    radii = exact.sort(dim=1).values.gather(1, rank)[:, 0]
    if kept < len(points) - 1:  # a row whose last kept neighbour is still within reach may have lost some
        crowded = (low.amax(1) <= most[:, 0]).nonzero()[:, 0]
        for rows in crowded.split(_CROWDED) if len(crowded) else ():
            radii[rows] = _crowded_radii(points, rows, k, most[rows])
    return radii


def _nearest(points: _Points, kept: int) -> tuple[Tensor, Tensor]:
    """The `kept` others of the smallest lower bounds on |b|^2 - 2ab, and their indices: (n, kept) each."""
    device = points.features.device
    bounds = torch.full((len(points), kept), math.inf, device=device)
    neighbours = torch.zeros(len(points), kept, dtype=torch.int64, device=device)
    lower = ((points.norms - points.slack) / 2).float()

    def take(rows: slice, columns: slice, halves: Tensor) -> None:
        values, at = halves.topk(min(kept, halves.shape[1]), dim=1, largest=False, sorted=False)
        values = torch.cat([bounds[rows], values * 2], dim=1)
        at = torch.cat([neighbours[rows], at + columns.start], dim=1)
        bounds[rows], order = values.topk(kept, dim=1, largest=False)
        neighbours[rows] = at.gather(1, order)

    slices = _slices(len(points))
    for number, rows in enumerate(slices):
        block = points.block(rows)
        for columns in slices[number:]:  # distances are symmetric: half of the products are enough
            products = block @ points.block(columns).T
            if rows == columns:
                products.fill_diagonal_(-math.inf)
            else:
                take(columns, rows, lower[rows] - products.T)
            take(rows, columns, lower[columns] - products)
    return bounds, neighbours


def _crowded_radii(points: _Points, rows: Tensor, k: int, most: Tensor) -> Tensor:
    """The k-th distances of points with many neighbours at nearly the same one: from all that could be it, in float64."""
    block = points.block(rows)
    found: list[tuple[Tensor, Tensor]] = []
    for columns in _slices(len(points)):
        low = (points.norms - points.slack)[columns] - 2 * (block @ points.block(columns).T).double()
        low += (points.norms - points.slack)[rows, None]
        row, column = (low <= most).nonzero(as_tuple=True)
        found.append((row, column + columns.start))
    row, column = (torch.cat(parts) for parts in zip(*found, strict=True))
    row, column = row[rows[row] != column], column[rows[row] != column]
    distances = _exact(points.features, rows[row], points.features, column)
    return torch.stack([distances[row == number].kthvalue(k).values for number in range(len(rows))])
