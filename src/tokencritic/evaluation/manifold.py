"""Improved precision and recall (Kynkaanniemi et al., 2019): two sets of points compared by their neighbourhoods.

A set of points is described by balls: around each point, with the distance to its k-th nearest neighbour as radius.
Squared distances come from float64 matrix products, a block at a time, so that memory does not grow with the number of pairs.
A point that lies within rounding error of the surface of a ball, as duplicates do, lies in it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.evaluation.metrics import check_pair

_BLOCK = 2048  # points on each side of a block of distances


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
