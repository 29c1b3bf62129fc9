"""Panels of one image: its pixels, the scores of its tokens, and its hidden tokens.

Panels are uint8 arrays (..., h, w, 3). The leading dimensions are any number of steps and images. A grid is the
tokenizer's (height, width) in tokens; tokens are in row-major order. Tokens without a grid are shown as a row of cells,
which wraps into lines where it is too long.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from tokencritic.contracts import ImageTokenizer
from tokencritic.errors import InputError
from tokencritic.pictures.look import (
    FAINT_INK,
    GROUND,
    HIDDEN,
    INK,
    NOT_SCORED,
    REMASKED,
    Scale,
    colour_scale,
    font,
    text_width,
)
from tokencritic.sampling.trace import TraceStep

_EMPTY, _EMPTY_SIZE = "not scored", 12
_COLOUR_SHARE = 0.75  # opacity of the score's colour over the grey image
_CELL, _TALL = 4, 4  # least width of a cell in a row of tokens, in pixels; its height in widths
_PIXELS_AT_ONCE = 2**18  # decoding 256 x 256 pixels takes some hundred MB an image


def trust(scores: np.ndarray, scale: Scale = "probability") -> np.ndarray:
    """Map scores (..., n) to [0, 1]: 0 = distrusted, 1 = trusted.

    scale: "probability" clips scores to [0, 1]. "rank" uses the rank of a token within its image, for scores in any
    unit. Tokens that cannot be hidden have an infinite score or the largest float, and map to 1.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if np.isnan(scores).any():
        raise InputError("scores holds nan; expected numbers, higher = more real")
    if scale == "probability":
        return np.clip(scores, 0, 1)
    ranks = scores.argsort(-1, kind="stable").argsort(-1, kind="stable")
    fixed = scores >= np.finfo(np.float32).max
    return np.where(fixed, 1.0, ranks / max(1, scores.shape[-1] - 1))


@torch.no_grad()
def decode(tokens: Tensor, tokenizer: ImageTokenizer) -> np.ndarray:
    """Decode tokens (..., n) to images (..., h, w, 3) uint8. Images with one channel become grey.

    A tokenizer's margin is included in black, so that every token covers whole pixels.
    """
    decoded = []
    for some in tokens.flatten(0, -2).split(max(1, _PIXELS_AT_ONCE // tokenizer.image_size**2)):
        images = tokenizer.decode(some.to(tokenizer.device)).float().clamp(0, 1)
        decoded.append((images * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy())
    edge = (tokenizer.margin,) * 2
    pixels = np.pad(np.concatenate(decoded), ((0, 0), edge, edge, (0, 0)))
    return np.broadcast_to(pixels, (*pixels.shape[:3], 3)).reshape(*tokens.shape[:-1], *pixels.shape[1:3], 3)


def decode_for_panels(tokens: Tensor, tokenizer: ImageTokenizer, room: int) -> tuple[np.ndarray, tuple[int, int]]:
    """Decode tokens (..., n) to images (..., h, w, 3), and return them with the (height, width) of a panel.

    room: the approximate maximum width of a panel in pixels.

    Large images are reduced so that every token covers whole pixels. Small images are not magnified yet: the panel size
    is an integer multiple of theirs, see `magnify`.
    """
    pixels, (rows, columns) = decode(tokens, tokenizer), tokenizer.grid or (1, 1)
    height, width = pixels.shape[-3:-1]
    if width <= room:
        return pixels, (height * (room // width), width * (room // width))
    across = max(1, room // columns)
    down = max(1, across * columns * height // (width * rows))  # a token need not be square
    size = down * rows, across * columns
    flat = pixels.reshape(-1, height, width, 3)
    small = [np.asarray(Image.fromarray(image).resize((size[1], size[0]), Image.Resampling.BOX)) for image in flat]
    return np.stack(small).reshape(*pixels.shape[:-3], *size, 3), size


def magnify(images: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Magnify images (..., h, w, c) to `size`, an integer multiple of (h, w), by repeating pixels."""
    height, width = images.shape[-3:-1]
    return images.repeat(size[0] // height, axis=-3).repeat(size[1] // width, axis=-2)


def score_panels(
    images: np.ndarray, scores: np.ndarray, grid: tuple[int, int] | None, scale: Scale = "probability"
) -> np.ndarray:
    """Colour each token by its score, over the image in greys; without a grid, return a row of colours.

    images: (..., h, w, 3) uint8.
    scores: (..., n).
    """
    colours = colour_scale()[(trust(scores, scale) * 255).round().astype(np.uint8)]
    if grid is None:
        return _row_panels(colours, None, images.shape[-3:-1])
    greys = (images @ np.array([0.299, 0.587, 0.114]))[..., None]
    heat = _COLOUR_SHARE * _token_pixels(colours, grid, images.shape[-3:-1]) + (1 - _COLOUR_SHARE) * greys
    return heat.round().astype(np.uint8)


def hidden_panels(
    images: np.ndarray, hidden: np.ndarray, remasked: np.ndarray | None, grid: tuple[int, int] | None
) -> np.ndarray:
    """Paint hidden tokens grey and outline re-masked ones.

    Without a grid, the panel is a row of tokens with the kept ones dark.
    images: (..., h, w, 3) uint8.
    hidden: (..., n) bool.
    remasked: (..., n) bool, the hidden tokens that were visible before; None for no outlines.
    """
    size = images.shape[-3:-1]
    if grid is None:
        return _row_panels(np.where(hidden[..., None], HIDDEN, INK).astype(np.uint8), remasked, size)
    panels = np.where(_token_pixels(hidden[..., None], grid, size), np.array(HIDDEN, np.uint8), images)
    if remasked is None:
        return panels
    cell = size[0] // grid[0], size[1] // grid[1]
    edge = np.ones(cell, bool)
    thick = max(1, min(cell) // 6)
    edge[thick : cell[0] - thick, thick : cell[1] - thick] = False
    outline = _token_pixels(remasked[..., None], grid, size) & np.tile(edge, grid)[..., None]
    return np.where(outline, np.array(REMASKED, np.uint8), panels)


def step_panels(
    steps: Sequence[TraceStep], images: Sequence[int], tokenizer: ImageTokenizer, room: int, scale: Scale
) -> np.ndarray:
    """Return panels of proposal, scores and hidden tokens: (3, steps, images, h, w, 3) uint8.

    images: indices of the images to show.
    room: the approximate maximum width of a panel in pixels.
    """
    which, grid = list(images), tokenizer.grid
    pixels, size = decode_for_panels(torch.stack([step.proposal[which] for step in steps]), tokenizer, room)
    height, width = size
    empty = Image.new("RGB", (width, height), NOT_SCORED)
    if text_width(_EMPTY, _EMPTY_SIZE) < width:
        ImageDraw.Draw(empty).text((width // 2, height // 2), _EMPTY, FAINT_INK, font(_EMPTY_SIZE), anchor="mm")
    heat = np.tile(np.asarray(empty), (*pixels.shape[:2], 1, 1, 1))
    whole = magnify(pixels, size)
    coloured = whole if grid is None else pixels  # colouring before magnification touches fewer pixels
    for place, step in enumerate(steps):
        if step.scores is not None:
            heat[place] = magnify(score_panels(coloured[place], step.scores[which].numpy(), grid, scale), size)
    hidden = np.stack([step.hidden[which].numpy() for step in steps])
    remasked = np.stack([step.remasked[which].numpy() for step in steps])
    return np.stack([whole, heat, hidden_panels(whole, hidden, remasked, grid)])


def _token_pixels(values: np.ndarray, grid: tuple[int, int], size: tuple[int, int]) -> np.ndarray:
    """Expand values of tokens (..., n, c) to values of pixels (..., h, w, c)."""
    height, width = grid
    if size[0] % height or size[1] % width:
        raise InputError(f"images are {size[0]} x {size[1]} pixels; expected a multiple of {height} x {width} tokens")
    return magnify(values.reshape(*values.shape[:-2], height, width, values.shape[-1]), size)


def _row_panels(colours: np.ndarray, outlined: np.ndarray | None, size: tuple[int, int]) -> np.ndarray:
    """Draw a row of tokens: (..., h, w, 3) uint8.

    colours: (..., n, 3) uint8.
    outlined: (..., n) bool, True for tokens with an outline; None for no outlines.
    """
    owners, edges = _row_cells(colours.shape[-2], size)
    ground = np.broadcast_to(np.array(GROUND, np.uint8), (*colours.shape[:-2], 1, 3))
    panels = np.concatenate([colours, ground], axis=-2)[..., owners, :]
    if outlined is None:
        return panels
    around = np.pad(outlined, [(0, 0)] * (outlined.ndim - 1) + [(0, 1)])[..., owners] & edges
    return np.where(around[..., None], np.array(REMASKED, np.uint8), panels)


@lru_cache
def _row_cells(num_tokens: int, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the token of each pixel, -1 for none, and whether the pixel is on the edge of a cell: (h, w) each.

    The row has the fewest lines whose cells are at least `_CELL` pixels wide. If these do not fit, cells are narrower.
    """
    height, width = size
    for least in range(_CELL, 0, -1):
        lines = math.ceil(num_tokens / max(1, width // least))
        if 2 * lines <= height:
            break
    else:
        raise InputError(f"a panel of {height} x {width} pixels has no room for a row of {num_tokens} tokens")
    columns = math.ceil(num_tokens / lines)
    across = width // columns
    down = min(height // lines, _TALL * across)
    left, top = (width - across * columns) // 2, (height - down * lines) // 2
    tall, wide = max(1, down - max(1, down // 4)), max(1, across - 1)  # without the gap below and beside it
    thick = max(1, min(tall, wide) // 6)
    owners, edges = np.full(size, -1), np.zeros(size, bool)
    for token in range(num_tokens):
        line, column = divmod(token, columns)
        y, x = top + line * down, left + column * across
        owners[y : y + tall, x : x + wide], edges[y : y + tall, x : x + wide] = token, True
        edges[y + thick : y + tall - thick, x + thick : x + wide - thick] = False
    return owners, edges
