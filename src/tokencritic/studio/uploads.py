"""Bytes that a stranger sent, as a picture: every check that comes before a decoder works."""

import io
import threading
from typing import Any, cast

from PIL import Image

from tokencritic.data.folder import read_image
from tokencritic.errors import InputError

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")

_BROKEN = (OSError, SyntaxError, ValueError, EOFError)  # what Pillow raises on a broken file
_BOMB = (Image.DecompressionBombError, Image.DecompressionBombWarning)
_one_at_a_time = threading.Lock()  # so that many large pictures at once do not fill the memory


def read_upload(data: bytes, most_bytes: int, most_pixels: int) -> Image.Image:
    """A picture in mode L or RGB, upright; of an animation the first frame; what is transparent becomes white.

    data: a whole file in one of FORMATS. most_pixels: of width times height, looked up before anything is decoded.
    """
    if not data:
        raise InputError("the picture is empty; send a file of " + _either(FORMATS))
    if len(data) > most_bytes:
        raise InputError(f"the picture has {len(data)} bytes; at most {most_bytes} are taken")
    with _one_at_a_time:
        try:
            with Image.open(io.BytesIO(data), formats=FORMATS) as header:
                width, height = header.size
            if width * height > most_pixels:
                raise InputError(f"the picture has {width} x {height} pixels; at most {most_pixels} are taken")
            return read_image(cast(Any, io.BytesIO(data)))
        except InputError:
            raise
        except _BOMB as error:
            raise InputError(f"the picture is too large: at most {most_pixels} pixels are taken") from error
        except _BROKEN as error:
            reason = "" if isinstance(error, Image.UnidentifiedImageError) else f": {str(error).splitlines()[0]}"
            raise InputError(f"that is no whole {_either(FORMATS)} picture{reason}") from error


def _either(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
