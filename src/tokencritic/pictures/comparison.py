"""Images of several samplers from the same seeds, one group below the other."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.pictures.panels import decode, grid_of, magnify, panel_size, shrink
from tokencritic.pictures.sheet import Group, Sheet, room_for

_AT_ONCE = 64


def samples_compared(
    tokens: Mapping[str, Tensor], tokenizer: Any, columns: Sequence[str], notes: Sequence[str] = ()
) -> Image.Image:
    """tokens: by the name of their sampler (rows * columns, n), row by row, all of the same seeds.

    columns: what to write above each, for instance its class. notes: one for each sampler, at the right of its name.
    """
    counts = {len(some) for some in tokens.values()}
    if len(counts) != 1 or 0 in counts or min(counts) % len(columns):
        raise InputError(f"there are {sorted(counts)} images for {len(columns)} columns; give each sampler whole rows")
    rows = counts.pop() // len(columns)
    images = np.stack([decode(some, tokenizer, _AT_ONCE) for some in tokens.values()])  # samplers b h w 3
    grid = grid_of(tokenizer, next(iter(tokens.values())).shape[1])
    size = panel_size(images.shape[2:4], grid, room_for(len(columns)))
    panels = magnify(shrink(images, size), size).reshape(len(tokens), rows, len(columns), *size, 3)
    groups = [Group(name, ("",) * rows) for name in tokens]
    return Sheet(groups, columns, size, legend=()).picture(panels, notes=notes)
