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
    real_radii, fake_radii = _radii(real, centre, k), _radii(fake, centre, k)
    real_hit, fake_hit = (torch.zeros(len(x), dtype=torch.bool) for x in (real, fake))
    for rows, columns, distances, slack in _distance_blocks(real, fake, centre):
        fake_hit[columns] |= _hit(distances, slack, real, real_radii, rows, fake, columns, fake_hit[columns])
        real_hit[rows] |= _hit(distances.T, slack.T, fake, fake_radii, columns, real, rows, real_hit[rows])
    return Hits(fake_hit.double(), real_hit.double())


def _slices(count: int) -> list[slice]:
    return [slice(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]


def _distance_blocks(left: Tensor, right: Tensor, centre: Tensor) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """Squared distances |a|^2 + |b|^2 - 2ab and how much they may be off, by blocks; within one set each pair of blocks once.

    centre: (d,), taken from all points, so that numbers and their rounding errors are small.
    """
    # A sum of d products errs by d roundings of |a||b| at most, in any order; the rest adds less than 16 roundings.
    share = 2 * (left.shape[1] + 16) * 2.0**-53
    for rows in _slices(len(left)):
        block = left[rows].double() - centre
        for columns in _slices(len(right)):
            if left is not right or rows.start <= columns.start:
                other = right[columns].double() - centre
                norms = block.square().sum(1)[:, None] + other.square().sum(1)
                yield rows, columns, norms - 2 * (block @ other.T), share * norms


def _hit(
    distances: Tensor,
    slack: Tensor,
    balls: Tensor,
    radii: Tensor,
    rows: slice,
    points: Tensor,
    columns: slice,
    known: Tensor,
) -> Tensor:
    """Which points lie in any of the balls: (points,) bool. Those `known` to be hit are not computed again.

    distances, slack: (balls, points). radii: squared, exact.
    """
    margin = radii[rows, None] - distances
    hit = (margin > slack).any(0) | known
    point, ball = ((margin.abs() <= slack) & ~hit).T.nonzero(as_tuple=True)
    exact = _exact(balls, ball + rows.start, points, point + columns.start)
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


def _radii(points: Tensor, centre: Tensor, k: int) -> Tensor:
    """The squared distance of each point to its k-th nearest other one, exact: (n,)."""
    count, kept = len(points), min(k + _SPARE, len(points) - 1)
    nearest = torch.full((count, kept), math.inf, dtype=torch.float64)
    neighbours = torch.zeros(count, kept, dtype=torch.int64)

    def keep(rows: slice, columns: slice, distances: Tensor) -> None:
        values, at = distances.topk(min(kept, distances.shape[1]), dim=1, largest=False, sorted=False)
        values, at = torch.cat([nearest[rows], values], 1), torch.cat([neighbours[rows], at + columns.start], 1)
        nearest[rows], order = values.topk(kept, dim=1, largest=False)
        neighbours[rows] = at.gather(1, order)

    for rows, columns, distances, _ in _distance_blocks(points, points, centre):
        if rows == columns:
            distances.fill_diagonal_(math.inf)
        else:
            keep(columns, rows, distances.T)
        keep(rows, columns, distances)
    each = torch.arange(count).repeat_interleave(kept)
    exact = _exact(points, each, points, neighbours.flatten())
    return exact.view(count, kept).kthvalue(k, dim=1).values
