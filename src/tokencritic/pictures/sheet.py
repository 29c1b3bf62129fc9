"""Panels in rows and columns with headings and a legend: the one layout of all pictures of steps."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from tokencritic.pictures import look
from tokencritic.pictures.look import font, shorten, text_width

LegendItem = Literal["trust", "hidden", "re-masked"]
LEGEND: tuple[LegendItem, ...] = ("trust", "hidden", "re-masked")

_FEW, _MOST_SIDE_BY_SIDE = 2, 8  # images
_WIDTH = 900  # what a page shows without shrinking it
_MARGIN, _GAP, _GROUP_GAP = 20, 6, 14
_SIDE_WIDTH = 112
_TITLE_HEIGHT, _GROUP_HEIGHT, _NAMES_HEIGHT, _LEGEND_HEIGHT = 40, 30, 22, 26
_HEADING, _TEXT, _SMALL = 17, 14, 13
_BAR, _SWATCH, _SPACE, _ITEM_GAP = 140, 14, 8, 32  # of the legend
_WORDS = {"trust": "trusted", "hidden": "hidden", "re-masked": "taken back: kept before, hidden again"}


class Group(NamedTuple):
    """Rows that belong together. name: their heading, "" for none. rows: the name of each."""

    name: str
    rows: tuple[str, ...]


def room_for(columns: int) -> int:
    """How wide a panel may be so that so many columns fill the usual width: from 56 to 256 pixels."""
    return min(256, max(56, (_WIDTH - 2 * _MARGIN - _SIDE_WIDTH) // columns - _GAP))


def side_by_side(images: int, rows: int) -> int:
    """How many panels `Sheet.of_images` has side by side, for so many images with so many rows each."""
    if images <= _FEW:
        return rows
    bands = math.ceil(images / _MOST_SIDE_BY_SIDE)
    return math.ceil(images / bands)


class Sheet:
    """Where everything stands. What does not change from one frame to the next is drawn once.

    groups: one below the other, with as many rows each; all have a name or none has. columns: the heading of each, or "".
    panel: (height, width) in pixels. wrap: so many columns stand side by side, the others in bands below.
    titled: leave a line at the top for a title. turned: panels come with rows and columns exchanged. legend: what to explain.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        columns: Sequence[str],
        panel: tuple[int, int],
        *,
        wrap: int | None = None,
        titled: bool = False,
        turned: bool = False,
        legend: Sequence[LegendItem] = LEGEND,
    ) -> None:
        self.groups, self.columns, self.panel, self.turned = tuple(groups), tuple(columns), panel, turned
        self.wrap = min(wrap or len(columns), len(columns))
        self._heading = _GROUP_HEIGHT if groups[0].name else 0
        self._names = _NAMES_HEIGHT if any(columns) else 0
        self._top = _MARGIN + (_TITLE_HEIGHT if titled else 0)
        self._group_height = self._heading + len(groups[0].rows) * (panel[0] + _GAP) - _GAP + _GROUP_GAP
        self._band_height = self._names + len(groups) * self._group_height
        panels_end = self._top + math.ceil(len(columns) / self.wrap) * self._band_height - _GROUP_GAP

        items = [_legend_item(item) for item in legend]
        widest = max((item.width for item in items), default=0)
        self.width = 2 * _MARGIN + max(_SIDE_WIDTH + self.wrap * (panel[1] + _GAP) - _GAP, widest)
        lines = self._lines(items, widest)
        height = panels_end + _MARGIN + len(lines) * _LEGEND_HEIGHT + (_GROUP_GAP if legend else 0)
        base = Image.new("RGB", (self.width, height), look.GROUND)
        self._draw_words(ImageDraw.Draw(base))
        for index, line in enumerate(lines):
            for item, x in line:
                base.paste(item, (x, panels_end + _GROUP_GAP + index * _LEGEND_HEIGHT))
        self._base = np.asarray(base)

    @classmethod
    def of_images(
        cls,
        groups: Sequence[Group],
        names: Sequence[str],
        panel: tuple[int, int],
        legend: Sequence[LegendItem] = LEGEND,
    ) -> "Sheet":
        """A titled sheet with a column for each image, at most 8 side by side; one or two images have a row each instead.

        groups: their rows are what is shown of each image. names: of the images, "" for none. Panels come in the same order
        in both cases: (groups, rows, images, h, w, 3).
        """
        if len(names) > _FEW:
            wrap = side_by_side(len(names), len(groups[0].rows))
            return cls(groups, names, panel, wrap=wrap, titled=True, legend=legend)
        # Where groups call a row differently, its heading has both names.
        kinds = [" / ".join(dict.fromkeys(row)) for row in zip(*(group.rows for group in groups), strict=True)]
        turned = [Group(group.name, tuple(names)) for group in groups]
        return cls(turned, kinds, panel, titled=True, turned=True, legend=legend)

    def picture(
        self, panels: np.ndarray, *, title: str = "", notes: Sequence[str] = (), done: float | None = None
    ) -> Image.Image:
        """panels: (groups, rows, columns, h, w, 3) uint8. title: the line at the top.

        notes: one for each group, at the right of its name; where groups have none, of the title.
        done: the share of the work that lies behind, drawn as a bar below the title.
        """
        panels = panels.swapaxes(1, 2) if self.turned else panels
        pixels = self._base.copy()
        height, width = self.panel
        for group, row, column in np.ndindex(*panels.shape[:3]):
            x, y = self._corner(group, row, column)
            pixels[y : y + height, x : x + width] = panels[group, row, column]
        image = Image.fromarray(pixels)
        draw = ImageDraw.Draw(image)
        middle = _MARGIN + 8
        draw.text((_MARGIN, middle), title, look.INK, font(_HEADING), anchor="lm")
        for index, note in enumerate(notes):
            y = self._corner(index, 0, 0)[1] - _GROUP_HEIGHT // 2 - 2 if self._heading else middle
            draw.text((self.width - _MARGIN, y), note, look.FAINT_INK, font(_TEXT), anchor="rm")
        if done is not None:
            y, end = middle + 18, _MARGIN + round(done * (self.width - 2 * _MARGIN)) - 1
            draw.rectangle((_MARGIN, y, self.width - _MARGIN - 1, y + 2), look.LINE)
            if end > _MARGIN:
                draw.rectangle((_MARGIN, y, end, y + 2), look.INK)
        return image

    def _corner(self, group: int, row: int, column: int) -> tuple[int, int]:
        """The left and the upper edge of a panel."""
        band, column = divmod(column, self.wrap)
        top = self._top + band * self._band_height + self._names + group * self._group_height + self._heading
        return _MARGIN + _SIDE_WIDTH + column * (self.panel[1] + _GAP), top + row * (self.panel[0] + _GAP)

    def _draw_words(self, draw: ImageDraw.ImageDraw) -> None:
        """The names of groups, rows and columns."""
        for first in range(0, len(self.columns), self.wrap):
            for index, group in enumerate(self.groups):
                y = self._corner(index, 0, first)[1] - _GROUP_HEIGHT // 2 - 2
                draw.text((_MARGIN, y), group.name, look.INK, font(_HEADING), anchor="lm")
                for row, name in enumerate(group.rows):
                    y = self._corner(index, row, first)[1] + self.panel[0] // 2
                    text = shorten(name, _TEXT, _SIDE_WIDTH - _GAP)
                    draw.text((_MARGIN, y), text, look.FAINT_INK, font(_TEXT), anchor="lm")
        for column, name in enumerate(self.columns):
            x, y = self._corner(0, 0, column)
            middle = x + self.panel[1] // 2, y - self._heading - self._names // 2 - 2
            draw.text(middle, shorten(name, _SMALL, self.panel[1]), look.INK, font(_SMALL), anchor="mm")

    def _lines(self, items: Sequence[Image.Image], widest: int) -> list[list[tuple[Image.Image, int]]]:
        """The legend's items with their left edges, in as many lines as the width asks for."""
        below_panels = _MARGIN + _SIDE_WIDTH
        indent = below_panels if below_panels + widest <= self.width - _MARGIN else _MARGIN
        lines: list[list[tuple[Image.Image, int]]] = []
        x = self.width
        for item in items:
            if x + item.width > self.width - _MARGIN:
                lines.append([])
                x = indent
            lines[-1].append((item, x))
            x += item.width + _ITEM_GAP
        return lines


@lru_cache
def _legend_item(item: LegendItem) -> Image.Image:
    """An entry of the legend: the colour scale between two words, or a swatch before its meaning."""
    first, key, last = ("distrusted", _BAR, "trusted") if item == "trust" else ("", _SWATCH, _WORDS[item])
    x = text_width(first, _SMALL) + _SPACE if first else 0
    end, middle, top = x + key + _SPACE, _LEGEND_HEIGHT // 2, (_LEGEND_HEIGHT - _SWATCH) // 2
    image = Image.new("RGB", (end + text_width(last, _SMALL), _LEGEND_HEIGHT), look.GROUND)
    draw = ImageDraw.Draw(image)
    if item == "trust":
        bar = Image.fromarray(np.ascontiguousarray(look.colour_scale()[None]))
        image.paste(bar.resize((_BAR, _SWATCH), Image.Resampling.NEAREST), (x, top))
    else:
        edge = look.REMASKED if item == "re-masked" else look.HIDDEN
        draw.rectangle((x, top, x + _SWATCH - 1, top + _SWATCH - 1), look.HIDDEN, edge, 2)
    for place, text in ((0, first), (end, last)):
        draw.text((place, middle), text, look.INK, font(_SMALL), anchor="lm")
    return image
