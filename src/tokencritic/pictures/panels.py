"""One image as a panel: its pixels, what the critic thinks of its tokens, and which of them are hidden.

Panels are uint8 arrays (..., h, w, 3); what stands before the last three axes is any number of steps and images at once.
A `grid` is (height, width) in tokens, row-major, as a tokenizer has it.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.pictures.colours import FAINT_INK, HIDDEN, NOT_SCORED, TAKEN_BACK, colours
from tokencritic.pictures.text import font, text_width
from tokencritic.sampling.inputs import device_of
from tokencritic.sampling.trace import TraceStep

Scale = Literal["probability", "rank"]
Grid = tuple[int, int]

_EMPTY, _EMPTY_SIZE = "not scored", 12
_PIXELS_AT_ONCE, _SMALL_BATCH = 2**18, 16  # decoding 256 x 256 pixels takes some hundred MB an image


def score_map(scores: Any, grid: Grid, size: tuple[int, int], scale: Scale = "probability") -> Image.Image:
    """What the critic sees of one image: a coloured square for each token, light = distrusted, dark = trusted.

    scores: (n,) numbers, higher = more real. grid: (height, width) in tokens. size: (height, width) in pixels.
    scale: see `trust`.
    """
    values = np.asarray(torch.as_tensor(scores).detach().cpu(), dtype=np.float64)
    if values.ndim != 1:
        raise InputError(f"scores has shape {values.shape}; expected ({math.prod(grid)},), one for each token")
    if min(size) < 1:
        raise InputError(f"size is {size}; expected a height and width of at least 1 pixel")
    cells = colours(trust(values, scale)).reshape(*_checked_grid(grid, len(values)), 3)
    return Image.fromarray(cells).resize((size[1], size[0]), Image.Resampling.NEAREST)


def trust(scores: np.ndarray, scale: Scale = "probability") -> np.ndarray:
    """Scores (..., n) as shares in [0, 1]: 0 = distrusted, 1 = trusted.

    scale: "probability" takes scores as they are and cuts off what lies beyond 0 or 1: the critic's.
    "rank" counts how many tokens of the image score lower, for scores in any unit, such as log probabilities. Tokens that
    cannot be hidden (infinite, or the largest float) are trusted wholly on both scales.
    """
    if scale not in get_args(Scale):
        raise InputError(f"scale is {scale!r}; choose {' or '.join(get_args(Scale))}")
    scores = np.asarray(scores, dtype=np.float64)
    if np.isnan(scores).any():
        raise InputError("scores holds nan; expected numbers, higher = more real")
    if scale == "probability":
        return np.clip(scores, 0, 1)
    ranks = scores.argsort(-1, kind="stable").argsort(-1, kind="stable")
    fixed = scores >= np.finfo(np.float32).max
    return np.where(fixed, 1.0, ranks / max(1, scores.shape[-1] - 1))


def decode_steps(steps: Sequence[TraceStep], tokenizer: Any, images: Sequence[int]) -> np.ndarray:
    """The proposals of some images at all the steps given, decoded in few batches: (steps, images, h, w, 3) uint8."""
    tokens = torch.stack([step.proposal[list(images)] for step in steps])
    size = getattr(tokenizer, "image_size", None)
    batch_size = _SMALL_BATCH if size is None else max(1, _PIXELS_AT_ONCE // size**2)
    pixels = decode(tokens.flatten(0, 1), tokenizer, batch_size)
    return pixels.reshape(*tokens.shape[:2], *pixels.shape[1:])


@torch.no_grad()
def decode(tokens: Tensor, tokenizer: Any, batch_size: int) -> np.ndarray:
    """tokens (b, n) as images (b, h, w, 3) uint8; those of one channel in greys.

    A tokenizer's margin is shown too, in black: its tokens reach over it, and each then has whole pixels.
    """
    device, parts = device_of(tokenizer), []
    for part in tokens.split(batch_size):
        images = tokenizer.decode(part.to(device)).float().clamp(0, 1)
        parts.append((images * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy())
    edge = (getattr(tokenizer, "margin", 0),) * 2
    pixels = np.pad(np.concatenate(parts), ((0, 0), edge, edge, (0, 0)))
    return np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:3], 3)))


def grid_of(tokenizer: Any, num_tokens: int) -> Grid:
    """The tokenizer's own grid, a square for one that has none."""
    side = math.isqrt(num_tokens)
    height, width = getattr(tokenizer, "grid", (side, side))
    return _checked_grid((height, width), num_tokens)


def panel_size(image_size: tuple[int, int], grid: Grid, room: int) -> tuple[int, int]:
    """(height, width) of a panel no wider than about `room` pixels.

    A small image is magnified a whole number of times; a large one is made smaller so that each token still has a whole
    number of pixels.
    """
    height, width = image_size
    if width <= room:
        return height * (room // width), width * (room // width)
    cell = max(1, room // grid[1])
    return cell * grid[0], cell * grid[1]


def shrink(images: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """images (..., h, w, 3) at `size`, by averaging; those that are not larger stay as they are."""
    height, width = images.shape[-3:-1]
    if width <= size[1]:
        return images
    flat = images.reshape(-1, height, width, 3)
    small = [np.asarray(Image.fromarray(x).resize((size[1], size[0]), Image.Resampling.BOX)) for x in flat]
    return np.stack(small).reshape(*images.shape[:-3], *size, 3)


def magnify(images: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """images (..., h, w, 3) at `size`, a whole multiple of theirs, by repeating pixels."""
    height, width = images.shape[-3:-1]
    return images.repeat(size[0] // height, axis=-3).repeat(size[1] // width, axis=-2)


def score_panels(
    images: np.ndarray, scores: np.ndarray, grid: Grid, scale: Scale = "probability", strength: float = 0.75
) -> np.ndarray:
    """The score of each token as a colour over the image, whose greys still show through.

    images: (..., h, w, 3) uint8. scores: (..., n). strength: the share of the colour, in [0, 1].
    """
    heat = spread(colours(trust(scores, scale)), grid, images.shape[-3:-1])
    greys = (images @ np.array([0.299, 0.587, 0.114]))[..., None]
    return (strength * heat + (1 - strength) * greys).round().astype(np.uint8)


@lru_cache
def empty_panel(size: tuple[int, int]) -> np.ndarray:
    """In place of scores where there are none: (h, w, 3) uint8."""
    height, width = size
    panel = Image.new("RGB", (width, height), NOT_SCORED)
    if text_width(_EMPTY, _EMPTY_SIZE) < width:
        ImageDraw.Draw(panel).text((width // 2, height // 2), _EMPTY, FAINT_INK, font(_EMPTY_SIZE), anchor="mm")
    return np.asarray(panel)


def hidden_panels(images: np.ndarray, hidden: np.ndarray, taken_back: np.ndarray, grid: Grid) -> np.ndarray:
    """What is left of the image: hidden tokens grey, those of them that had been kept before outlined.

    images: (..., h, w, 3) uint8. hidden, taken_back: (..., n) bool.
    """
    size = images.shape[-3:-1]
    panels = np.where(spread(hidden[..., None], grid, size), np.array(HIDDEN, np.uint8), images)
    cell = size[0] // grid[0], size[1] // grid[1]
    edge = np.ones(cell, bool)
    thick = max(1, min(cell) // 6)
    edge[thick : cell[0] - thick, thick : cell[1] - thick] = False
    outline = spread(taken_back[..., None], grid, size) & np.tile(edge, grid)[..., None]
    return np.where(outline, np.array(TAKEN_BACK, np.uint8), panels)


def spread(values: np.ndarray, grid: Grid, size: tuple[int, int]) -> np.ndarray:
    """One value for each token (..., n, c) as one for each pixel (..., h, w, c)."""
    height, width = _checked_grid(grid, values.shape[-2])
    if size[0] % height or size[1] % width:
        raise InputError(f"images of {size[0]} x {size[1]} pixels do not divide into {height} x {width} tokens")
    return magnify(values.reshape(*values.shape[:-2], height, width, values.shape[-1]), size)


def _checked_grid(grid: Grid, num_tokens: int) -> Grid:
    if len(grid) != 2 or min(grid) < 1 or math.prod(grid) != num_tokens:
        raise InputError(f"grid is {grid} for {num_tokens} tokens; give a height and width whose product that is")
    return grid
