"""The colours of every picture: a scale that also reads in print and for colour-blind eyes, on a light ground."""

from functools import lru_cache

import numpy as np

GROUND = (255, 255, 255)
INK = (31, 35, 40)
FAINT_INK = (101, 109, 118)
LINE = (208, 215, 222)
HIDDEN = (190, 194, 199)
NOT_SCORED = (240, 242, 244)
# Vermilion of Okabe and Ito's palette: it stands out from greys and from the whole scale for colour-blind eyes too.
TAKEN_BACK = (213, 94, 0)
FLAT_COLOURS = (GROUND, INK, FAINT_INK, LINE, HIDDEN, NOT_SCORED, TAKEN_BACK)

_SCALE = "viridis"


@lru_cache(maxsize=1)
def colour_scale() -> np.ndarray:
    """(256, 3) uint8, from distrusted to trusted. Lightness falls evenly, so that the order survives a grey print."""
    from matplotlib import colormaps

    scale = (colormaps[_SCALE](np.arange(255, -1, -1), bytes=True)[:, :3]).astype(np.uint8)
    scale.setflags(write=False)
    return scale


def colours(shares: np.ndarray) -> np.ndarray:
    """shares: any shape, in [0, 1], 0 = distrusted; what lies outside is cut off. Returns (..., 3) uint8."""
    return colour_scale()[(np.clip(shares, 0, 1) * 255).round().astype(np.uint8)]
