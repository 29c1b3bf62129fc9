"""Sheets: panels in rows and columns with headings and a legend. All pictures of steps use this layout."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from tokencritic.pictures import look
from tokencritic.pictures.look import font, shorten, text_width

LegendItem = Literal["trusted", "hidden", "re-masked"]
LEGEND: tuple[LegendItem, ...] = ("trusted", "hidden", "re-masked")

_FEW, _MOST_SIDE_BY_SIDE = 2, 8  # images
_WIDTH = 900  # the width in pixels that a web page shows without shrinking
_MARGIN, _GAP, _GROUP_GAP = 20, 6, 14
_SIDE_WIDTH = 112
_TITLE_HEIGHT, _GROUP_HEIGHT, _NAMES_HEIGHT, _LEGEND_HEIGHT = 40, 30, 22, 26
_HEADING, _TEXT, _SMALL, _SMALLEST = 17, 14, 13, 9
_BAR, _SWATCH, _SPACE, _ITEM_GAP = 140, 14, 8, 32  # sizes of the legend


class Group(NamedTuple):
    """A group of rows.

    name: the heading of the group, "" for none.
    rows: the name of each row.
    """

    name: str
    rows: tuple[str, ...]


def room_for(columns: int) -> int:
    """Return the width of a panel with which this many columns fill a sheet: 56 to 256 pixels."""
    return min(256, max(56, (_WIDTH - 2 * _MARGIN - _SIDE_WIDTH) // columns - _GAP))


def side_by_side(images: int, rows: int) -> int:
    """Return how many panels `image_sheet` places side by side, for this many images and rows per image."""
    return rows if images <= _FEW else math.ceil(images / math.ceil(images / _MOST_SIDE_BY_SIDE))


def image_sheet(panels: np.ndarray, groups: Sequence[Group], names: Sequence[str], **options: Any) -> Image.Image:
    """Draw a sheet with one column per image, at most 8 side by side. One or two images have one row each instead.

    panels: (groups, rows, images, h, w, 3) uint8.
    groups: the groups, whose rows are the kinds of panels of an image.
    names: names of the images, empty for none.
    options: arguments of `draw_sheet`.
    """
    names = names or [""] * panels.shape[2]
    if len(names) > _FEW:
        return draw_sheet(panels, groups, names, wrap=side_by_side(*panels.shape[2:0:-1]), **options)
    # If groups have different names for a row, the heading shows all of them.
    kinds = [" / ".join(dict.fromkeys(row)) for row in zip(*(group.rows for group in groups), strict=True)]
    turned = [Group(group.name, tuple(names)) for group in groups]
    return draw_sheet(panels.swapaxes(1, 2), turned, kinds, **options)


def draw_sheet(
    panels: np.ndarray,
    groups: Sequence[Group],
    columns: Sequence[str],
    *,
    wrap: int | None = None,
    title: str = "",
    notes: Sequence[str] = (),
    done: float | None = None,
    legend: tuple[LegendItem, ...] = LEGEND,
) -> Image.Image:
    """Draw panels as one picture.

    panels: (groups, rows, columns, h, w, 3) uint8.
    groups: one below the other, with the same number of rows. Either all or none have a name.
    columns: the heading of each column, "" for none.
    wrap: the number of columns side by side; further columns follow in bands below. None for all.
    title: a line at the top.
    notes: texts to the right of each group's name, or of the title if groups have no names.
    done: the share of the steps that are done, shown as a progress bar below the title; None for no bar.
    legend: the items to explain.
    """
    height, width = panels.shape[-3:-1]
    wrap = wrap or len(columns)
    heading, above = _GROUP_HEIGHT if groups[0].name else 0, _NAMES_HEIGHT if any(columns) else 0
    top = _MARGIN + (_TITLE_HEIGHT if title else 0)
    group_height = heading + len(groups[0].rows) * (height + _GAP) - _GAP + _GROUP_GAP
    band_height = above + len(groups) * group_height
    end, key = top + math.ceil(len(columns) / wrap) * band_height, _legend(legend)
    right = _MARGIN + _SIDE_WIDTH + max(wrap * (width + _GAP) - _GAP, key.width)
    image = Image.new("RGB", (right + _MARGIN, end + key.height + _MARGIN - (0 if legend else _GROUP_GAP)), look.GROUND)
    image.paste(key, (_MARGIN + _SIDE_WIDTH, end))
    draw = ImageDraw.Draw(image)

    def corner(group: int, row: int, column: int) -> tuple[int, int]:
        """Return the left and the upper edge of a panel in pixels."""
        band, place = divmod(column, wrap)
        y = top + band * band_height + above + group * group_height + heading + row * (height + _GAP)
        return _MARGIN + _SIDE_WIDTH + place * (width + _GAP), y

    for index in np.ndindex(panels.shape[:3]):
        image.paste(Image.fromarray(panels[index]), corner(*index))
    for number, first in np.ndindex(len(groups), math.ceil(len(columns) / wrap)):
        y = corner(number, 0, first * wrap)[1] - _GROUP_HEIGHT // 2 - 2
        draw.text((_MARGIN, y), groups[number].name, look.INK, font(_HEADING), anchor="lm")
        for row, name in enumerate(groups[number].rows):
            place = _MARGIN, corner(number, row, first * wrap)[1] + height // 2
            text = shorten(name, _TEXT, _SIDE_WIDTH - _GAP)
            draw.text(place, text, look.FAINT_INK, font(_TEXT), anchor="lm")
    sizes = (size for size in range(_SMALL, _SMALLEST, -1) if max(text_width(name, size) for name in columns) <= width)
    size = next(sizes, _SMALLEST)  # one size for all names, small enough to show them in full if possible
    for column, name in enumerate(columns):
        x, y = corner(0, 0, column)
        place = x + width // 2, y - heading - above // 2 - 2
        draw.text(place, shorten(name, size, width), look.INK, font(size), anchor="mm")
    for number, note in enumerate(notes):
        y = corner(number, 0, 0)[1] - _GROUP_HEIGHT // 2 - 2 if heading else _MARGIN + 8
        draw.text((right, y), note, look.FAINT_INK, font(_TEXT), anchor="rm")
    _draw_title(draw, title, done, right)
    return image


def _draw_title(draw: ImageDraw.ImageDraw, title: str, done: float | None, right: int) -> None:
    """Draw the title and, if `done` is a number, the progress bar below it."""
    draw.text((_MARGIN, _MARGIN + 8), title, look.INK, font(_HEADING), anchor="lm")
    if done is not None:
        top, end = _MARGIN + 26, _MARGIN + round(done * (right - _MARGIN)) - 1
        draw.rectangle((_MARGIN, top, right - 1, top + 2), look.LINE)
        if end > _MARGIN:
            draw.rectangle((_MARGIN, top, end, top + 2), look.INK)


@lru_cache
def _legend(items: tuple[LegendItem, ...]) -> Image.Image:
    """Draw the legend in one line: the colour scale between its two labels, and swatches with labels."""
    image = Image.new("RGB", (_WIDTH, _LEGEND_HEIGHT), look.GROUND)
    draw, middle, top, x = ImageDraw.Draw(image), _LEGEND_HEIGHT // 2, (_LEGEND_HEIGHT - _SWATCH) // 2, 0

    def write(text: str) -> int:
        """Write a text at x and return where it ends."""
        draw.text((x, middle), text, look.INK, font(_SMALL), anchor="lm")
        return x + text_width(text, _SMALL)

    for item in items:
        if item == "trusted":
            x = write("distrusted") + _SPACE
            bar = Image.fromarray(np.ascontiguousarray(look.colour_scale()[None]))
            image.paste(bar.resize((_BAR, _SWATCH), Image.Resampling.NEAREST), (x, top))
            x += _BAR + _SPACE
        else:
            edge = look.REMASKED if item == "re-masked" else look.HIDDEN
            draw.rectangle((x, top, x + _SWATCH - 1, top + _SWATCH - 1), look.HIDDEN, edge, 2)
            x += _SWATCH + _SPACE
        x = write("re-masked (was visible before)" if item == "re-masked" else item) + _ITEM_GAP
    return image.crop((0, 0, max(0, x - _ITEM_GAP), _LEGEND_HEIGHT if items else 0))
