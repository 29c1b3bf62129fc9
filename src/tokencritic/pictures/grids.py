"""Image grids, and writing pictures to disk."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from tokencritic.errors import InputError, check_at_least
from tokencritic.files import parse_json, reading, write_atomically
from tokencritic.pictures.look import GROUND, INK, font, shorten

NOTE = "token-critic"  # the key of the text in a PNG with the facts that determine its image
_NAME_SIZE, _NAME_HEIGHT = 12, 20


def image_grid(
    images: Sequence[Image.Image], columns: int | None = None, scale: int | None = None, names: Sequence[str] = ()
) -> Image.Image:
    """Arrange images of one size in a grid on a white background.

    columns: images per row; by default the grid is as square as possible.
    scale: integer magnification; by default images are at least 64 pixels high.
    names: texts below the images, for instance their classes. Long texts are shortened.
    """
    if not images:
        raise InputError("images is empty; expected at least one image")
    width, height = images[0].size
    if any(image.size != (width, height) for image in images):
        raise InputError("images have different sizes; expected one size")
    if names and len(names) != len(images):
        raise InputError(f"names has {len(names)} entries for {len(images)} images; give one for each, or none")
    scale = max(1, math.ceil(64 / height)) if scale is None else scale
    columns = math.ceil(math.sqrt(len(images))) if columns is None else columns
    check_at_least(1, columns=columns, scale=scale)
    width, height = width * scale, height * scale
    rows = math.ceil(len(images) / columns)
    gap, margin, below = (8, 8, _NAME_HEIGHT) if names else (2, 0, 0)
    across, down = width + gap, height + below + gap
    size = columns * across - gap + 2 * margin, rows * down - gap + 2 * margin
    canvas = Image.new("RGB", size, GROUND)
    draw = ImageDraw.Draw(canvas)
    for index, image in enumerate(images):
        row, column = divmod(index, columns)
        x, y = margin + column * across, margin + row * down
        canvas.paste(image.convert("RGB").resize((width, height), Image.Resampling.NEAREST), (x, y))
        if names:
            text = shorten(names[index], _NAME_SIZE, width)
            middle = x + width // 2, y + height + below // 2 + 1
            draw.text(middle, text, INK, font(_NAME_SIZE), anchor="mm")
    return canvas


def save(image: Image.Image, file: str | Path, facts: Mapping[str, Any] | None = None) -> None:
    """Write an image as a PNG file atomically. facts: the facts that determine the image, written into the file."""
    write_atomically(Path(file), lambda path: image.save(path, "PNG", pnginfo=png_note(facts)))


def png_note(facts: Mapping[str, Any] | None) -> PngInfo | None:
    """Return the facts that determine an image as a text of its PNG file."""
    if facts is None:
        return None
    note = PngInfo()
    note.add_text(NOTE, json.dumps(facts, sort_keys=True))
    return note


def read_note(file: str | Path) -> dict[str, Any]:
    """Return the facts that `save` wrote into a PNG."""
    with reading(file, "a PNG"), Image.open(file, formats=("PNG",)) as image:
        image.load()  # a text may follow the pixels in the file
        found = parse_json(file, str(image.info.get(NOTE, "null")))
    if not isinstance(found, dict):
        raise InputError(f"{file} says nothing of how it was made; expected a PNG of an image that token-critic wrote")
    return found
