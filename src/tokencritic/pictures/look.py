"""The look of every picture: its colours, its words, and how each sampler is named and drawn."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

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
TAKEN_BACK = (213, 94, 0)
FLAT_COLOURS = (GROUND, INK, FAINT_INK, LINE, HIDDEN, NOT_SCORED, TAKEN_BACK)

# Of Okabe and Ito: told apart by all eyes, dark enough for white paper, and of different greys in print.
BLUE, VERMILION, GREEN, PURPLE, BLACK = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000"


@dataclass(frozen=True)
class SamplerLook:
    """How figures and pictures of steps show one sampler.

    title: in legends. colour, line: matplotlib's, of its curves. score_name, scale: of its scores at a step.
    """

    title: str
    colour: str
    line: Any
    score_name: str
    scale: Scale

    @property
    def heading(self) -> str:
        """The title with a capital letter."""
        return self.title[:1].upper() + self.title[1:]


SAMPLERS = {
    "critic": SamplerLook("Token-Critic", BLUE, "-", "critic's score", "probability"),
    "chance": SamplerLook("taken back by chance", PURPLE, (0, (5, 1, 1, 1, 1, 1)), "rank of score", "rank"),
    "confidence": SamplerLook("MaskGIT", VERMILION, "--", "confidence rank", "rank"),
    "random": SamplerLook("random order", GREEN, ":", "random score", "rank"),
    "halton": SamplerLook("Halton order", BLACK, "-.", "order", "rank"),
}


@lru_cache(maxsize=1)
def colour_scale() -> np.ndarray:
    """(256, 3) uint8, from distrusted to trusted. Lightness falls evenly, so that the order survives a grey print."""
    from matplotlib import colormaps

    scale = (colormaps["viridis"](np.arange(255, -1, -1), bytes=True)[:, :3]).astype(np.uint8)
    scale.setflags(write=False)
    return scale


@lru_cache
def font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's own font, which needs no file. size: in pixels."""
    found = ImageFont.load_default(size)
    assert isinstance(found, ImageFont.FreeTypeFont)
    return found


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
