"""Mask schedules, how many tokens to hide, and masks with an exact count per image.

A `mask` is boolean with True = hidden (the paper's m_t is the opposite, 1 = kept).
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from tokencritic.errors import InputError

Schedule = Literal["cosine", "linear", "square", "cubic", "sqrt"]

# gamma as a function of the share of steps already done; each falls from 1 to 0. The paper uses the cosine; the others
# are MaskGIT's ablations.
_MASK_RATIOS: dict[Schedule, Callable[[Tensor], Tensor]] = {
    "cosine": lambda progress: torch.cos(0.5 * math.pi * progress),
    "linear": lambda progress: 1 - progress,
    "square": lambda progress: 1 - progress**2,
    "cubic": lambda progress: 1 - progress**3,
    "sqrt": lambda progress: 1 - progress.sqrt(),
}

# cos(pi/3) comes out as 0.5 + 1e-16 in float64: without this slack 12 of 18 steps would hide 129 of 256 tokens, not 128.
_ROUNDING = 1e-9


def mask_ratio(progress: Tensor, schedule: Schedule = "cosine") -> Tensor:
    """The share of tokens to hide, gamma in the paper.

    progress: any shape, in [0, 1]: the share of steps done (or `t ~ U(0, 1)` in training, Algorithm 1 line 3).
    Returns float64 of the same shape, 1 at progress 0 and 0 at progress 1.
    """
    if schedule not in _MASK_RATIOS:
        raise InputError(f"schedule is {schedule!r}; choose one of {', '.join(get_args(Schedule))}")
    return _MASK_RATIOS[schedule](progress.double()).clamp(0, 1)


def count_masked(num_tokens: int | Tensor, ratio: Tensor) -> Tensor:
    """ceil(gamma N) in the paper: how many of `num_tokens` to hide at each `ratio`. Returns int64, shape of `ratio`."""
    return torch.ceil(num_tokens * (ratio.double() - _ROUNDING)).clamp(min=0).long()


def num_masked_table(num_tokens: int, steps: int, schedule: Schedule = "cosine", first_ratio: float = 1.0) -> list[int]:
    """How many tokens are hidden before step 0, 1, ... and after the last: `steps + 1` integers, the last one 0.

    Algorithm 2 line 3, made before the loop so that the loop needs no number from the device.
    first_ratio: the share hidden at the start, in (0, 1]; 1 to sample, 0.6 in the paper's refinement.
    """
    if steps < 1:
        raise InputError(f"steps is {steps}; it must be at least 1")
    if not 0 < first_ratio <= 1:
        raise InputError(f"first_ratio is {first_ratio}; it must lie in (0, 1]")
    ratio = first_ratio * mask_ratio(torch.linspace(0, 1, steps + 1, dtype=torch.float64), schedule)
    return count_masked(num_tokens, ratio).tolist()


def hide_lowest(scores: Tensor, num_masked: int | Sequence[int] | Tensor) -> Tensor:
    """Algorithm 2 lines 6-7: the mask that hides, in each image, exactly the `num_masked` tokens of lowest score.

    scores: (b, n), higher = more real. num_masked: one count for all, or one per image (b,).
    Equal scores are told apart by position, the earlier one is hidden; the count is exact whatever the values.
    """
    order = scores.argsort(dim=1, stable=True)
    counts = torch.as_tensor(num_masked, device=scores.device).reshape(-1, 1)
    chosen = (torch.arange(scores.shape[1], device=scores.device) < counts).expand_as(order)
    return torch.zeros_like(order, dtype=torch.bool).scatter(1, order, chosen)


def random_mask(num_masked: int | Sequence[int] | Tensor, uniforms: Tensor) -> Tensor:
    """Algorithm 1 line 4: a uniformly random mask with exactly `num_masked` hidden tokens in each image.

    uniforms: (b, n), independent draws in (0, 1), one per token. Returns (b, n) bool.
    """
    return hide_lowest(uniforms, num_masked)


def take(values: Tensor, positions: Tensor) -> Tensor:
    """values (b, n, ...) at (b, k) indices -> (b, k, ...), or at a (b, n) bool mask -> (mask.sum(), ...)."""
    if positions.dtype is torch.bool:
        return values[positions]
    return values[torch.arange(len(values), device=values.device)[:, None], positions]


def put(values: Tensor, positions: Tensor, new: Tensor) -> Tensor:
    """A copy of values (b, n) with `new` at the positions: the inverse of `take`."""
    if positions.dtype is torch.bool:
        return values.masked_scatter(positions, new)
    return values.scatter(1, positions, new)
