"""Colours and text of all pictures."""

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from PIL import ImageFont

# How scores are mapped to colours: as probabilities, or by their rank within the image.
Scale = Literal["probability", "rank"]

GROUND = (255, 255, 255)
INK = (31, 35, 40)
FAINT_INK = (101, 109, 118)
LINE = (208, 215, 222)
HIDDEN = (190, 194, 199)
NOT_SCORED = (240, 242, 244)
# Vermilion of Okabe and Ito's palette differs from the greys and from the colour scale, also for colour-blind readers.
REMASKED = (213, 94, 0)
FLAT_COLOURS = (GROUND, INK, FAINT_INK, LINE, HIDDEN, NOT_SCORED, REMASKED)


@lru_cache(maxsize=1)
def colour_scale() -> np.ndarray:
    """Return the colour scale from distrusted to trusted, (256, 3) uint8.

    Its lightness decreases evenly, so that it remains readable in greyscale.
    """
    from matplotlib import colormaps

    scale = (colormaps["viridis"](np.arange(255, -1, -1), bytes=True)[:, :3]).astype(np.uint8)
    scale.setflags(write=False)
    return scale


@lru_cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return Pillow's default font, which needs no file. size: the height in pixels."""
    return ImageFont.load_default(size)


def text_width(text: str, size: int) -> int:
    """Return the width of a line of text in pixels, rounded up."""
    return math.ceil(font(size).getlength(text))


def shorten(text: str, size: int, width: int) -> str:
    """Shorten a text to one line of at most `width` pixels. Three dots replace what does not fit."""
    text = " ".join(text.split())
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "...", size) > width:
        text = text[:-1]
    return text.rstrip() + "..."
