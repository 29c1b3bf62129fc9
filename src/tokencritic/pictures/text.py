"""Words in pictures."""

import math
from functools import lru_cache

from PIL import ImageFont


@lru_cache
def font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's own font, which needs no file. size: in pixels."""
    found = ImageFont.load_default(size)
    assert isinstance(found, ImageFont.FreeTypeFont)
    return found


def text_width(text: str, size: int) -> int:
    """In pixels, rounded up."""
    return math.ceil(font(size).getlength(text))


def shorten(text: str, size: int, width: int) -> str:
    """Text in one line of at most `width` pixels: where it is longer, its end is replaced by three dots."""
    text = " ".join(text.split())
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "...", size) > width:
        text = text[:-1]
    return text.rstrip() + "..."
