"""Panels in rows and columns with headings and a legend: the one layout of all pictures of steps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from PIL import Image, ImageDraw

from tokencritic.pictures import look
from tokencritic.pictures.look import font, shorten, text_width

LegendItem = Literal["trust", "hidden", "taken back"]
LEGEND: tuple[LegendItem, ...] = ("trust", "hidden", "taken back")

_FEW, _MOST_SIDE_BY_SIDE = 2, 8  # images
_WIDTH = 900  # what a page shows without shrinking it
_MARGIN, _GAP, _GROUP_GAP = 20, 6, 14
_SIDE_WIDTH = 112
_TITLE_HEIGHT, _GROUP_HEIGHT, _NAMES_HEIGHT, _LEGEND_HEIGHT = 40, 30, 22, 26
_HEADING, _TEXT, _SMALL = 17, 14, 13
_BAR, _SWATCH, _SPACE, _ITEM_GAP = 140, 14, 8, 32  # of the legend
_WORDS = {"hidden": "hidden", "taken back": "taken back: kept before, hidden again"}


@dataclass(frozen=True)
class Group:
    """Rows that belong together. name: their heading, "" for none. rows: the name of each."""

    name: str
    rows: tuple[str, ...]


def room_for(columns: int) -> int:
    """How wide a panel may be so that so many columns fill the usual width: from 56 to 256 pixels."""
    return min(256, max(56, (_WIDTH - 2 * _MARGIN - _SIDE_WIDTH) // columns - _GAP))


class Sheet:
    """Where everything stands. What does not change from one frame to the next is drawn once.

    groups: one below the other, with as many rows each; all have a name or none has. columns: the heading of each, or "".
    panel: (height, width) in pixels. wrap: so many columns stand side by side, the others in bands below.
    titled: leave a line at the top for a title. legend: what to explain.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        columns: Sequence[str],
        panel: tuple[int, int],
        *,
        wrap: int | None = None,
        titled: bool = False,
        legend: Sequence[LegendItem] = LEGEND,
    ) -> None:
        self.groups, self.columns, self.panel, self.titled = tuple(groups), tuple(columns), panel, titled
        self.wrap = min(wrap or len(columns), len(columns))
        self._heading = _GROUP_HEIGHT if groups[0].name else 0
        self._names = _NAMES_HEIGHT if any(columns) else 0
        self._top = _MARGIN + (_TITLE_HEIGHT if titled else 0)
        self._group_height = self._heading + len(groups[0].rows) * (panel[0] + _GAP) - _GAP + _GROUP_GAP
        self._band_height = self._names + len(groups) * self._group_height
        self._panels_end = self._top + math.ceil(len(columns) / self.wrap) * self._band_height - _GROUP_GAP

        widest = max((_item_width(item) for item in legend), default=0)
        self.width = 2 * _MARGIN + max(_SIDE_WIDTH + self.wrap * (panel[1] + _GAP) - _GAP, widest)
        self._legend_lines = self._lines(legend)
        self.height = self._panels_end + _MARGIN + len(self._legend_lines) * _LEGEND_HEIGHT
        self.height += _GROUP_GAP if legend else 0
        self._base = self._draw_base()

    def picture(
        self, panels: np.ndarray, *, title: str = "", notes: Sequence[str] = (), done: float | None = None
    ) -> Image.Image:
        """panels: (groups, rows, columns, h, w, 3) uint8. title: the line at the top.

        notes: one for each group, at the right of its name; where groups have none, of the title.
        done: the share of the work that lies behind, drawn as a bar below the title.
        """
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
            y = self._heading_middle(0, index) if self._heading else middle
            draw.text((self.width - _MARGIN, y), note, look.FAINT_INK, font(_TEXT), anchor="rm")
        if done is not None:
            y, end = middle + 18, _MARGIN + round(done * (self.width - 2 * _MARGIN)) - 1
            draw.rectangle((_MARGIN, y, self.width - _MARGIN - 1, y + 2), look.LINE)
            if end > _MARGIN:
                draw.rectangle((_MARGIN, y, end, y + 2), look.INK)
        return image

    def _group_top(self, band: int, group: int) -> int:
        return self._top + band * self._band_height + self._names + group * self._group_height

    def _heading_middle(self, band: int, group: int) -> int:
        return self._group_top(band, group) + _GROUP_HEIGHT // 2 - 2

    def _corner(self, group: int, row: int, column: int) -> tuple[int, int]:
        """The left and the upper edge of a panel."""
        band, column = divmod(column, self.wrap)
        x = _MARGIN + _SIDE_WIDTH + column * (self.panel[1] + _GAP)
        return x, self._group_top(band, group) + self._heading + row * (self.panel[0] + _GAP)

    def _draw_base(self) -> np.ndarray:
        """Everything but panels, title and notes."""
        image = Image.new("RGB", (self.width, self.height), look.GROUND)
        draw = ImageDraw.Draw(image)
        for first in range(0, len(self.columns), self.wrap):
            for index, group in enumerate(self.groups):
                y = self._heading_middle(first // self.wrap, index)
                draw.text((_MARGIN, y), group.name, look.INK, font(_HEADING), anchor="lm")
                for row, name in enumerate(group.rows):
                    y = self._corner(index, row, first)[1] + self.panel[0] // 2
                    text = shorten(name, _TEXT, _SIDE_WIDTH - _GAP)
                    draw.text((_MARGIN, y), text, look.FAINT_INK, font(_TEXT), anchor="lm")
        for column, name in enumerate(self.columns):
            x = self._corner(0, 0, column)[0] + self.panel[1] // 2
            y = self._group_top(column // self.wrap, 0) - self._names // 2 - 2
            draw.text((x, y), shorten(name, _SMALL, self.panel[1]), look.INK, font(_SMALL), anchor="mm")
        for index, line in enumerate(self._legend_lines):
            middle = self._panels_end + _GROUP_GAP + index * _LEGEND_HEIGHT + _LEGEND_HEIGHT // 2
            for item, x in line:
                _draw_item(image, item, x, middle)
        return np.asarray(image)

    def _lines(self, legend: Sequence[LegendItem]) -> list[list[tuple[LegendItem, int]]]:
        """The legend's items with their left edges, in as many lines as the width asks for."""
        indent = _MARGIN + _SIDE_WIDTH  # below the panels, if there is room
        if indent + max((_item_width(item) for item in legend), default=0) > self.width - _MARGIN:
            indent = _MARGIN
        lines: list[list[tuple[LegendItem, int]]] = []
        x = self.width
        for item in legend:
            if x + _item_width(item) > self.width - _MARGIN:
                lines.append([])
                x = indent
            lines[-1].append((item, x))
            x += _item_width(item) + _ITEM_GAP
        return lines


class ImageSheet(Sheet):
    """A titled sheet with a column for each image, at most 8 side by side; one or two images have a row each instead.

    groups: their rows are what is shown of each image. names: of the images, "" for none. Panels come in the same order in
    both cases: (groups, rows, images, h, w, 3).
    """

    def __init__(
        self,
        groups: Sequence[Group],
        names: Sequence[str],
        panel: tuple[int, int],
        legend: Sequence[LegendItem] = LEGEND,
    ) -> None:
        self.turned = len(names) <= _FEW
        if self.turned:
            # Where groups call a row differently, its heading has both names.
            kinds = [" / ".join(dict.fromkeys(row)) for row in zip(*(group.rows for group in groups), strict=True)]
            turned = [Group(group.name, tuple(names)) for group in groups]
            super().__init__(turned, kinds, panel, titled=True, legend=legend)
        else:
            wrap = side_by_side(len(names), len(groups[0].rows))
            super().__init__(groups, names, panel, wrap=wrap, titled=True, legend=legend)

    def picture(self, panels: np.ndarray, **words: Any) -> Image.Image:
        return super().picture(panels.swapaxes(1, 2) if self.turned else panels, **words)


def side_by_side(images: int, rows: int) -> int:
    """How many panels an `ImageSheet` has side by side, for so many images with so many rows each."""
    if images <= _FEW:
        return rows
    bands = math.ceil(images / _MOST_SIDE_BY_SIDE)
    return math.ceil(images / bands)


def _item_width(item: LegendItem) -> int:
    if item == "trust":
        return text_width("distrusted", _SMALL) + _SPACE + _BAR + _SPACE + text_width("trusted", _SMALL)
    return _SWATCH + _SPACE + text_width(_WORDS[item], _SMALL)


def _draw_item(image: Image.Image, item: LegendItem, x: int, middle: int) -> None:
    draw = ImageDraw.Draw(image)
    top = middle - _SWATCH // 2
    if item == "trust":
        draw.text((x, middle), "distrusted", look.INK, font(_SMALL), anchor="lm")
        x += text_width("distrusted", _SMALL) + _SPACE
        bar = Image.fromarray(np.ascontiguousarray(look.colour_scale()[None]))
        image.paste(bar.resize((_BAR, _SWATCH), Image.Resampling.NEAREST), (x, top))
        draw.text((x + _BAR + _SPACE, middle), "trusted", look.INK, font(_SMALL), anchor="lm")
        return
    edge = look.TAKEN_BACK if item == "taken back" else look.HIDDEN
    draw.rectangle((x, top, x + _SWATCH - 1, top + _SWATCH - 1), look.HIDDEN, edge, 2)
    draw.text((x + _SWATCH + _SPACE, middle), _WORDS[item], look.INK, font(_SMALL), anchor="lm")
