"""Masks: how many tokens training hides, and masks with an exact count per image.

A `mask` is boolean with True = hidden. The paper's m_t is the opposite, 1 = kept. The counts of a sampling run are in
`plan.py`.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tokencritic.schedules import ROUNDING


def mask_ratio(progress: Tensor) -> Tensor:
    """Return the share of tokens to hide, the paper's cosine gamma.

    progress: any shape, in [0, 1]. It is `t ~ U(0, 1)` in training (Algorithm 1, line 3) and the share of steps done in
    sampling.

    Returns float64 of the same shape, from 1 at progress 0 to 0 at progress 1.
    """
    return torch.cos(0.5 * math.pi * progress.double()).clamp(0, 1)


def count_masked(num_tokens: int | Tensor, ratio: Tensor) -> Tensor:
    """Return how many of `num_tokens` to hide at each mask ratio, ceil(gamma N) in the paper.

    ratio: any shape, in [0, 1]. Returns int64 of the same shape.
    """
    return torch.ceil(num_tokens * (ratio.double() - ROUNDING)).clamp(min=0).long()


def hide_lowest(scores: Tensor, num_masked: int | Sequence[int] | Tensor) -> Tensor:
    """Return the mask that hides the `num_masked` tokens of lowest score in each image (Algorithm 2, lines 6-7).

    scores: (b, n), higher = more real.
    num_masked: one count for all images, or one per image (b,).

    Returns (b, n) bool. The count is exact; of equal scores, the earlier position is hidden.
    """
    order = scores.argsort(dim=1, stable=True)
    counts = torch.as_tensor(num_masked, device=scores.device).reshape(-1, 1)
    chosen = (torch.arange(scores.shape[1], device=scores.device) < counts).expand_as(order)
    return torch.zeros_like(order, dtype=torch.bool).scatter(1, order, chosen)


def random_mask(num_masked: int | Sequence[int] | Tensor, uniforms: Tensor) -> Tensor:
    """Return a uniformly random mask with exactly `num_masked` hidden tokens in each image (Algorithm 1, line 4).

    uniforms: (b, n), independent, in (0, 1). Returns (b, n) bool.
    """
    return hide_lowest(uniforms, num_masked)


def hidden_positions(mask: Tensor, fixed_shapes: bool = False) -> Tensor | None:
    """Return the positions that need logits: the mask, or None for all positions.

    mask: (b, n) bool, whose number of hidden tokens the host does not know.

    Visible tokens are skipped only on the CPU. On another device the host would wait for their number at each step. The
    gain would be a third of the last block and of the head.
    """
    return None if fixed_shapes or mask.device.type != "cpu" else mask


def all_positions(mask: Tensor) -> Tensor:
    """Return all positions in order: (b, n) int64."""
    return torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)


def take(values: Tensor, positions: Tensor) -> Tensor:
    """Return values (b, n, ...) at (b, k) indices -> (b, k, ...), or at a (b, n) bool mask -> (mask.sum(), ...)."""
    if positions.dtype is torch.bool:
        return values[positions]
    return values[torch.arange(len(values), device=values.device)[:, None], positions]


def put(values: Tensor, positions: Tensor, new: Tensor) -> Tensor:
    """Return a copy of values (b, n) with `new` at the positions: the inverse of `take`."""
    if positions.dtype is torch.bool:
        return values.masked_scatter(positions, new)
    return values.scatter(1, positions, new)
