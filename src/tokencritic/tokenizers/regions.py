"""Parts of an image: which tokens a box of pixels touches, and what becomes empty when the image is moved.

Pixels are those of the image as a tokenizer takes it. A region of pixels is (h, w) bool, one of tokens (n,) bool, row-major.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tokencritic.contracts import ImageTokenizer
from tokencritic.errors import InputError

Box = tuple[int, int, int, int]


def grid_of(tokenizer: ImageTokenizer) -> tuple[int, int]:
    """(height, width) of the tokens; raises InputError for a tokenizer whose tokens have no grid."""
    if tokenizer.grid is None:
        raise InputError("the tokens of this model's tokenizer have no grid; a region of an image cannot be edited")
    return tokenizer.grid


def place_grid(tokenizer: ImageTokenizer) -> tuple[int, int]:
    """(height, width) of the places: squares of the image, each with one token or, side by side, `splits` tokens."""
    rows, columns = grid_of(tokenizer)
    return rows, columns // tokenizer.splits


def whole_places(tokens: Tensor, tokenizer: ImageTokenizer) -> Tensor:
    """All tokens of the places that have one of these tokens: (n,) bool -> (n,) bool."""
    return tokens.view(-1, tokenizer.splits).any(1).repeat_interleave(tokenizer.splits)


def place_side(tokenizer: ImageTokenizer) -> int:
    """How many pixels a place has along each side."""
    return (tokenizer.image_size + 2 * tokenizer.margin) // place_grid(tokenizer)[0]


def pixels_in(boxes: Sequence[Box], size: int) -> Tensor:
    """The pixels in any of some boxes: (size, size) bool.

    boxes: (left, top, right, bottom) each; as in Pillow, the right column and the bottom row are no more part of it.
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
    """The tokens of the places that have at least one of the pixels (h, w): (n,) bool."""
    rows, columns = place_grid(tokenizer)
    whole = F.pad(pixels, (tokenizer.margin,) * 4)
    cells = whole.unflatten(0, (rows, -1)).unflatten(2, (columns, -1))  # rows, pixels, columns, pixels
    return cells.any(3).any(1).flatten().repeat_interleave(tokenizer.splits)


def move(images: Tensor, right: int, down: int) -> tuple[Tensor, Tensor]:
    """Images moved by so many pixels, negative to the left and up; and the pixels that became empty, (h, w) bool.

    images: (b, c, h, w). What becomes empty repeats the image's edge: encoded, the tokens beside it then see no border
    that is not there.
    """
    height, width = images.shape[2:]
    if abs(right) >= width or abs(down) >= height:
        raise InputError(f"shift is {right},{down}; nothing is left of {width} x {height} pixels")
    from_row, from_column = torch.arange(height) - down, torch.arange(width) - right
    rows, columns = from_row.clamp(0, height - 1), from_column.clamp(0, width - 1)
    empty = (rows != from_row)[:, None] | (columns != from_column)[None]
    return images[:, :, rows][..., columns], empty
