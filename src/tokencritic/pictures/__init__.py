"""Pictures of what the models make, and of how: grids, score heatmaps, step animations, film strips, before and after."""

from tokencritic.pictures.animation import save_animation
from tokencritic.pictures.comparison import samples_compared
from tokencritic.pictures.grids import grid, save
from tokencritic.pictures.panels import score_map
from tokencritic.pictures.refinement import before_and_after
from tokencritic.pictures.steps import Run, film_strip, run_of, step_frames
from tokencritic.pictures.traces import MOST_IMAGES, check_trace, write_steps, write_trace

__all__ = [
    "MOST_IMAGES",
    "Run",
    "before_and_after",
    "check_trace",
    "film_strip",
    "grid",
    "run_of",
    "samples_compared",
    "save",
    "save_animation",
    "score_map",
    "step_frames",
    "write_steps",
    "write_trace",
]
