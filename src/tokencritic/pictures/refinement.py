"""Refinement before and after: the image given, what the critic thinks of it, what is hidden first, and what came of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from tokencritic.errors import InputError
from tokencritic.pictures.panels import (
    decode_steps,
    grid_of,
    hidden_panels,
    magnify,
    panel_size,
    score_panels,
    shrink,
)
from tokencritic.pictures.sheet import Group, ImageSheet, room_for, side_by_side
from tokencritic.pictures.steps import check_names, run_of, shown_images
from tokencritic.sampling.trace import Trace


def before_and_after(
    trace: Trace, tokenizer: Any, names: Sequence[str] = (), most_images: int = 16, probabilities: bool = True
) -> Image.Image:
    """One column for each image of a refinement by a critic.

    trace: passed to `refine` as `on_step=`. tokenizer: has `decode` and perhaps `grid`. names: what to write above each
    image. most_images: show only the first so many. probabilities: False where the scores are in another unit, such as
    logits; they are then shown by their rank.
    """
    steps = trace.steps
    if len(steps) < 2 or steps[0].index != 0 or steps[0].scores is None:
        raise InputError("the trace is not of a refinement; pass it to `refine` as on_step=")
    check_names(names, len(steps[0].proposal))
    run = run_of("critic", trace, probabilities)
    rows = "before", run.score_name, "hidden first", "after"
    count = shown_images(most_images, len(steps[0].proposal))
    grid = grid_of(tokenizer, steps[0].proposal.shape[1])
    pixels = decode_steps([steps[0], steps[-1]], tokenizer, range(count))
    size = panel_size(pixels.shape[2:4], grid, room_for(side_by_side(count, len(rows))))
    pixels = shrink(pixels, size)
    heat = magnify(score_panels(pixels[0], steps[0].scores[:count].numpy(), grid, run.scale), size)
    before, after = magnify(pixels, size)
    hidden = steps[0].hidden[:count].numpy()
    panels = np.stack([before, heat, hidden_panels(before, hidden, np.zeros_like(hidden), grid), after])
    names = names[:count] if names else [""] * count
    changed = int((steps[0].proposal[:count] != steps[-1].proposal[:count]).sum())
    note = f"{hidden.sum()} of {hidden.size} tokens hidden first, {changed} changed in the end"
    sheet = ImageSheet([Group("", rows)], names, size, legend=("trust", "hidden"))
    return sheet.picture(panels[None], title="Refinement", notes=[note])
