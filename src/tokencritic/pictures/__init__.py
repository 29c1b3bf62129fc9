"""Pictures of samples and of sampling: grids, score heatmaps, step animations, film strips, before and after."""

from tokencritic.pictures.grids import image_grid, save
from tokencritic.pictures.steps import before_and_after, film_strip, run_of, step_frames, write_steps

__all__ = ["before_and_after", "film_strip", "image_grid", "run_of", "save", "step_frames", "write_steps"]
