"""Regions of an image: the tokens that boxes of pixels touch, and the pixels that a shift leaves empty.

Pixels are those of the tokenizer's input. A region of pixels is (h, w) bool. A region of tokens is (n,) bool in
row-major order.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tokencritic.contracts import ImageTokenizer
from tokencritic.errors import InputError

Box = tuple[int, int, int, int]


def grid_of(tokenizer: ImageTokenizer) -> tuple[int, int]:
    """Return the (height, width) of the token grid. Raises InputError for a tokenizer without a grid."""
    if tokenizer.grid is None:
        raise InputError("the tokens of this model's tokenizer have no grid; a region of an image cannot be edited")
    return tokenizer.grid


def place_grid(tokenizer: ImageTokenizer) -> tuple[int, int]:
    """Return the (height, width) of the places. A place is a square of the image with `splits` tokens side by side."""
    rows, columns = grid_of(tokenizer)
    return rows, columns // tokenizer.splits


def whole_places(tokens: Tensor, tokenizer: ImageTokenizer) -> Tensor:
    """Return all tokens of the places that contain one of these tokens: (n,) bool -> (n,) bool."""
    return tokens.view(-1, tokenizer.splits).any(1).repeat_interleave(tokenizer.splits)


def place_side(tokenizer: ImageTokenizer) -> int:
    """Return the number of pixels along each side of a place."""
    return (tokenizer.image_size + 2 * tokenizer.margin) // place_grid(tokenizer)[0]


def pixels_in(boxes: Sequence[Box], size: int) -> Tensor:
    """Return the union of boxes as a region of pixels: (size, size) bool.

    boxes: (left, top, right, bottom) of each box; right and bottom are exclusive, as in Pillow.
    """
    region = torch.zeros(size, size, dtype=torch.bool)
    for box in boxes:
        left, top, right, bottom = box
        if not (0 <= left < right <= size and 0 <= top < bottom <= size):
            right_ones = f"0 <= left < right <= {size} and 0 <= top < bottom <= {size}"
            raise InputError(f"region is {','.join(map(str, box))}; expected left,top,right,bottom with {right_ones}")
        region[top:bottom, left:right] = True
    return region


def tokens_touched(pixels: Tensor, tokenizer: ImageTokenizer) -> Tensor:
    """Return the tokens of the places that contain any pixel of a region: (h, w) bool -> (n,) bool."""
    rows, columns = place_grid(tokenizer)
    whole = F.pad(pixels, (tokenizer.margin,) * 4)
    cells = whole.unflatten(0, (rows, -1)).unflatten(2, (columns, -1))  # rows, pixels, columns, pixels
    return cells.any(3).any(1).flatten().repeat_interleave(tokenizer.splits)


def move(images: Tensor, right: int, down: int) -> tuple[Tensor, Tensor]:
    """Shift images, and return them with the region of pixels that became empty, (h, w) bool.

    images: (b, c, h, w).
    right, down: the shift in pixels; negative to the left and up.

    Empty pixels repeat the edge of the image, so that tokens next to them are not encoded with an artificial border.
    """
    height, width = images.shape[2:]
    if abs(right) >= width or abs(down) >= height:
        raise InputError(f"shift is {right},{down}; it must be smaller than the image of {width} x {height} pixels")
    from_row, from_column = torch.arange(height) - down, torch.arange(width) - right
    rows, columns = from_row.clamp(0, height - 1), from_column.clamp(0, width - 1)
    empty = (rows != from_row)[:, None] | (columns != from_column)[None]
    return images[:, :, rows][..., columns], empty
