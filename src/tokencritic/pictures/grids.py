"""Many images in one, and pictures on disk."""

import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from tokencritic.errors import InputError
from tokencritic.files import write_atomically


def grid(
    images: Sequence[Image.Image], columns: int | None = None, gap: int = 2, scale: int | None = None
) -> Image.Image:
    """Images of one size in rows, on white.

    columns: as square as possible unless given. gap: pixels between images. scale: whole-number magnification, by
    default so that small images are at least 64 pixels high.
    """
    if not images:
        raise InputError("images is empty; there is nothing to show")
    width, height = images[0].size
    if any(image.size != (width, height) for image in images):
        raise InputError("images have different sizes; a grid needs one size")
    scale = scale or max(1, math.ceil(64 / height))
    width, height = width * scale, height * scale
    columns = columns or math.ceil(math.sqrt(len(images)))
    rows = math.ceil(len(images) / columns)
    canvas = Image.new("RGB", (columns * (width + gap) - gap, rows * (height + gap) - gap), "white")
    for index, image in enumerate(images):
        row, column = divmod(index, columns)
        enlarged = image.convert("RGB").resize((width, height), Image.Resampling.NEAREST)
        canvas.paste(enlarged, (column * (width + gap), row * (height + gap)))
    return canvas


def save(image: Image.Image, file: Path) -> None:
    """Write a PNG, whole or not at all."""
    write_atomically(file, lambda path: image.save(path, "PNG"))
