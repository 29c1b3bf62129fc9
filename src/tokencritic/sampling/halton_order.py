"""The Halton order of a grid of tokens."""

from functools import lru_cache

import torch
from torch import Tensor

Grid = tuple[int, int]


@lru_cache
def halton_ranks_on(grid: Grid, device: torch.device) -> Tensor:
    """Return the Halton ranks (n,) int64 on a device. They are cached, because a copy stalls the device's queue."""
    return torch.tensor(halton_ranks(*grid), device=device)


@lru_cache
def halton_ranks(height: int, width: int) -> tuple[int, ...]:
    """Return the rank of each grid position (row-major) in the Halton order with bases 2 (rows) and 3 (columns)."""
    ranks: dict[int, int] = {}
    index = 0
    while len(ranks) < height * width:
        index += 1
        position = _place(index, 2, height) * width + _place(index, 3, width)
        ranks.setdefault(position, len(ranks))
    return tuple(ranks[position] for position in range(height * width))


def _place(index: int, base: int, size: int) -> int:
    """Return the cell, of `size`, that contains the radical inverse of `index`. Integer arithmetic keeps it exact."""
    mirrored, scale = 0, 1
    while index:
        index, digit = divmod(index, base)
        mirrored, scale = mirrored * base + digit, scale * base
    return mirrored * size // scale
