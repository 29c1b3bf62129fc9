"""The look of every picture: its colours and its text."""

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from PIL import ImageFont

# How scores become colours: as probabilities, or by their rank within the image.
Scale = Literal["probability", "rank"]

GROUND = (255, 255, 255)
INK = (31, 35, 40)
FAINT_INK = (101, 109, 118)
LINE = (208, 215, 222)
HIDDEN = (190, 194, 199)
NOT_SCORED = (240, 242, 244)
# Vermilion of Okabe and Ito's palette stands out from greys and from the whole scale, for colour-blind eyes too.
REMASKED = (213, 94, 0)
FLAT_COLOURS = (GROUND, INK, FAINT_INK, LINE, HIDDEN, NOT_SCORED, REMASKED)


@lru_cache(maxsize=1)
def colour_scale() -> np.ndarray:
    """(256, 3) uint8, from distrusted to trusted. Lightness falls evenly, so that the order survives a grey print."""
    from matplotlib import colormaps

    scale = (colormaps["viridis"](np.arange(255, -1, -1), bytes=True)[:, :3]).astype(np.uint8)
    scale.setflags(write=False)
    return scale


@lru_cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font, which needs no file. size: in pixels."""
    return ImageFont.load_default(size)


def text_width(text: str, size: int) -> int:
    """The width of a line in pixels, rounded up."""
    return math.ceil(font(size).getlength(text))


def shorten(text: str, size: int, width: int) -> str:
    """Text in one line of at most `width` pixels: the end of a longer text is replaced by three dots."""
    text = " ".join(text.split())
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "...", size) > width:
        text = text[:-1]
    return text.rstrip() + "..."
