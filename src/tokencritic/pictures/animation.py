"""Moving pictures on disk."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tokencritic.errors import InputError
from tokencritic.files import write_atomically
from tokencritic.pictures.colours import FLAT_COLOURS, colour_scale

ENDINGS = (".gif", ".webp")

_SCALE_STEP = 5  # every so many colours of the scale are in a GIF
_APART = 12


def save_animation(
    frames: Sequence[Image.Image], file: str | Path, milliseconds: int = 400, last_milliseconds: int = 3000
) -> None:
    """Write a GIF or a WebP, by the ending of the name, whole or not at all; it plays for ever.

    frames: of one size. milliseconds: how long each is shown, and the last.
    """
    file = Path(file)
    if not frames:
        raise InputError("frames is empty; there is nothing to show")
    if file.suffix.lower() not in ENDINGS:
        raise InputError(f"{file} ends in {file.suffix!r}; an animation is written as .gif or .webp")
    if len({frame.size for frame in frames}) > 1:
        raise InputError("frames have different sizes; an animation needs one size")
    if min(milliseconds, last_milliseconds) < 20:
        raise InputError(f"milliseconds is {min(milliseconds, last_milliseconds)}; it must be at least 20 to be seen")
    durations = [milliseconds] * (len(frames) - 1) + [last_milliseconds]
    if file.suffix.lower() == ".gif":
        first, *others = _with_one_palette(frames)
        options = {"format": "GIF", "disposal": 1, "optimize": False}
    else:
        first, *others = frames
        options = {"format": "WEBP", "lossless": True, "method": 0, "quality": 50}
    write_atomically(
        file,
        lambda path: first.save(path, save_all=True, append_images=others, duration=durations, loop=0, **options),
    )


def _with_one_palette(frames: Sequence[Image.Image]) -> list[Image.Image]:
    """Frames in 256 colours, the same for all, so that nothing flickers; not dithered, so that flat areas stay flat."""
    fixed = np.concatenate([np.array(FLAT_COLOURS, np.uint8), colour_scale()[::_SCALE_STEP]])
    some = [frames[0], frames[len(frames) // 2], frames[-1]]
    montage = Image.fromarray(np.concatenate([np.asarray(frame.convert("RGB")) for frame in some]))
    found = montage.quantize(256 - len(fixed), Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    others = np.array(found.getpalette("RGB"), np.uint8).reshape(-1, 3)
    # Pillow looks up colours in steps of 4: one all but equal to a fixed one would be taken in its place.
    distance = np.abs(others[:, None].astype(int) - fixed).max(-1).min(-1)
    palette = Image.new("P", (1, 1))
    palette.putpalette(np.concatenate([fixed, others[distance >= _APART]]).tobytes())
    return [frame.convert("RGB").quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
