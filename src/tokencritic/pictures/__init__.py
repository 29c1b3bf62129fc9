"""Pictures of what the models make, and of how: grids, score heatmaps, step animations, film strips, before and after."""

from tokencritic.pictures.grids import image_grid, save
from tokencritic.pictures.steps import (
    MOST_IMAGES,
    TracedRun,
    before_and_after,
    film_strip,
    run_of,
    samples_compared,
    step_frames,
)
from tokencritic.pictures.traces import check_trace, write_steps, write_trace

__all__ = [
    "MOST_IMAGES",
    "TracedRun",
    "before_and_after",
    "check_trace",
    "film_strip",
    "image_grid",
    "run_of",
    "samples_compared",
    "save",
    "step_frames",
    "write_steps",
    "write_trace",
]
