"""Improved precision and recall (Kynkaanniemi et al., 2019): two sets of points compared by their neighbourhoods.

A set of points is described by balls: around each point, with the distance to its k-th nearest neighbour as radius.
Squared distances come from float64 matrix products, a block at a time, so that memory does not grow with the number of pairs.
Where their rounding error could decide a comparison, the pair is computed again from the differences. So a point exactly on
the surface of a ball, as duplicates are, lies in it.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.evaluation.metrics import check_pair

_BLOCK = 2048  # points on each side of a block of distances
_SPARE = 5  # neighbours kept beyond the k-th, whose order the rounding error may have changed
_EXACT_VALUES = 1 << 20  # numbers worked on at a time where differences are formed


class Hits(NamedTuple):
    """For each point, 1 if it lies in a ball of the other set, else 0: fake (m,), real (n,), float64.

    Precision is the mean of `fake`, recall that of `real`.
    """

    fake: Tensor
    real: Tensor


class _Points(NamedTuple):
    """features: (n, d), as they came. centre: (d,), common to all sets, so that numbers and their rounding errors are small.

    norms: (n,), squared, of the centred points.
    """

    features: Tensor
    centre: Tensor
    norms: Tensor

    @classmethod
    def make(cls, features: Tensor, centre: Tensor) -> "_Points":
        norms = [(features[rows].double() - centre).square().sum(1) for rows in _slices(len(features))]
        return cls(features, centre, torch.cat(norms))

    def block(self, rows: slice) -> Tensor:
        return self.features[rows].double() - self.centre


def precision_recall(real: Tensor, fake: Tensor, k: int = 3) -> Hits:
    """Which fake points lie in a ball around a real one, and which real points in a ball around a fake one.

    real: (n, d), fake: (m, d), any floating type.
    """
    if k < 1:
        raise InputError(f"k is {k}; it must be at least 1")
    check_pair(real, fake)
    for name, features in (("real", real), ("fake", fake)):
        if len(features) <= k:
            raise InputError(f"{name} holds {len(features)} points; {k} neighbours of each need at least {k + 1}")
    centre = real.mean(0, dtype=torch.float64)
    reals, fakes = _Points.make(real, centre), _Points.make(fake, centre)
    real_radii, fake_radii = _radii(reals, k), _radii(fakes, k)
    real_hit, fake_hit = (torch.zeros(len(x), dtype=torch.bool) for x in (real, fake))
    for rows, columns, distances in _distance_blocks(reals, fakes):
        fake_hit[columns] |= _hit(distances, reals, real_radii, rows, fakes, columns, fake_hit[columns])
        real_hit[rows] |= _hit(distances.T, fakes, fake_radii, columns, reals, rows, real_hit[rows])
    return Hits(fake_hit.double(), real_hit.double())


def _slices(count: int) -> list[slice]:
    return [slice(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]


def _distance_blocks(left: _Points, right: _Points) -> Iterator[tuple[slice, slice, Tensor]]:
    """Squared distances |a|^2 + |b|^2 - 2ab, block by block; within one set each pair of blocks once."""
    for rows in _slices(len(left.norms)):
        block, norms = left.block(rows), left.norms[rows, None]
        for columns in _slices(len(right.norms)):
            if left is not right or rows.start <= columns.start:
                yield rows, columns, norms + right.norms[columns] - 2 * (block @ right.block(columns).T)


def _hit(
    distances: Tensor, balls: _Points, radii: Tensor, rows: slice, points: _Points, columns: slice, known: Tensor
) -> Tensor:
    """Which points lie in any of the balls: (points,) bool. Those `known` to be hit are not computed again.

    distances: (balls, points). radii: squared, exact.
    """
    # A sum of d products errs by d roundings of |a||b| at most, in any order; the rest adds less than 16 roundings.
    share = 2 * (balls.features.shape[1] + 16) * 2.0**-53
    margin = radii[rows, None] - distances
    slack = share * (balls.norms[rows, None] + points.norms[columns])
    hit = (margin > slack).any(0) | known
    point, ball = ((margin.abs() <= slack) & ~hit).T.nonzero(as_tuple=True)
    exact = _exact(balls.features, ball + rows.start, points.features, point + columns.start)
    hit[point[exact <= radii[ball + rows.start]]] = True
    return hit


def _exact(left: Tensor, rows: Tensor, right: Tensor, columns: Tensor) -> Tensor:
    """Squared distances of pairs from differences. A pair's value depends on the two points alone, so equal pairs are equal.

    NumPy sums each row of a matrix in one fixed order; a sum that is split over threads would not promise that.
    """
    step = max(1, _EXACT_VALUES // left.shape[1])
    found = [np.empty(0)]
    for one, other in zip(rows.split(step), columns.split(step), strict=True):
        difference = left[one].double().sub_(right[other]).numpy()
        found.append(np.square(difference, out=difference).sum(axis=1))
    return torch.from_numpy(np.concatenate(found))


def _radii(points: _Points, k: int) -> Tensor:
    """The squared distance of each point to its k-th nearest other one, exact: (n,)."""
    count = len(points.norms)
    kept = min(k + _SPARE, count - 1)
    nearest = torch.full((count, kept), math.inf, dtype=torch.float64)
    neighbours = torch.zeros(count, kept, dtype=torch.int64)

    def keep(rows: slice, columns: slice, distances: Tensor) -> None:
        values, at = distances.topk(min(kept, distances.shape[1]), dim=1, largest=False, sorted=False)
        values, at = torch.cat([nearest[rows], values], 1), torch.cat([neighbours[rows], at + columns.start], 1)
        nearest[rows], order = values.topk(kept, dim=1, largest=False)
        neighbours[rows] = at.gather(1, order)

    for rows, columns, distances in _distance_blocks(points, points):
        if rows == columns:
            distances.fill_diagonal_(math.inf)
        else:
            keep(columns, rows, distances.T)
        keep(rows, columns, distances)
    each = torch.arange(count).repeat_interleave(kept)
    exact = _exact(points.features, each, points.features, neighbours.flatten())
    return exact.view(count, kept).kthvalue(k, dim=1).values
