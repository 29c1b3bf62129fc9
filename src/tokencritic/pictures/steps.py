"""Pictures of sampling steps: animation frames, film strips, before and after refinement, samplers side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tokencritic.contracts import ImageTokenizer
from tokencritic.errors import InputError
from tokencritic.files import write_atomically
from tokencritic.pictures.grids import save
from tokencritic.pictures.look import FLAT_COLOURS, Scale, colour_scale
from tokencritic.pictures.panels import decode_for_panels, magnify, step_panels
from tokencritic.pictures.sheet import Group, draw_sheet, image_sheet, room_for, side_by_side
from tokencritic.sampling.samplers import SAMPLERS
from tokencritic.sampling.trace import Trace, TraceStep

MOST_IMAGES = 16
_MOST_GROUPS, _MOST_STEPS = 4, 8  # limits of a film strip
_FRAME_MILLISECONDS, _LAST_MILLISECONDS = 400, 3000
_SCALE_STEP = 5  # a GIF has every fifth colour of the scale
_APART = 12  # minimum distance of other colours of a GIF from its fixed ones, in any channel


@dataclass(frozen=True)
class TracedRun:
    """A traced run of a sampler for pictures.

    name: the heading.
    steps: the steps of its `Trace`.
    score_name: the name of its scores.
    scale: how scores are mapped to colours, see `trust`.
    """

    name: str
    steps: Sequence[TraceStep]
    score_name: str = "score"
    scale: Scale = "probability"

    def __post_init__(self) -> None:
        if not self.steps or not len(self.steps[0].proposal):
            raise InputError(f"the run {self.name!r} has no steps; pass its trace to a sampler as on_step= first")

    @property
    def num_images(self) -> int:
        return len(self.steps[0].proposal)

    @property
    def rows(self) -> tuple[str, ...]:
        return "proposal", self.score_name, "hidden next"


def run_of(sampler: str, trace: Trace, probabilities: bool = True) -> TracedRun:
    """Make a `TracedRun` with the title and score name of a sampler.

    sampler: a name of `SAMPLERS`.
    probabilities: `SamplingSettings.probabilities`. False shows the critic's scores by rank.
    """
    row = SAMPLERS[sampler]
    if row.uses_critic and not probabilities:
        return TracedRun(row.title, trace.steps, "rank of score", "rank")
    return TracedRun(row.title, trace.steps, row.score_title, "probability" if row.uses_critic else "rank")


def step_frames(
    runs: TracedRun | Sequence[TracedRun], tokenizer: ImageTokenizer, names: Sequence[str] = ()
) -> list[Image.Image]:
    """Draw one picture per step, with proposal, scores and hidden tokens of up to 16 images.

    runs: one or several runs. Several runs are shown one below the other and advance together. A run that skips a step
    keeps its previous picture.
    names: texts above the images, for instance their classes.
    """
    runs = _checked(runs, names)
    count = min(MOST_IMAGES, runs[0].num_images)
    room = room_for(side_by_side(count, len(runs[0].rows)))
    panels = [step_panels(run.steps, range(count), tokenizer, room, run.scale) for run in runs]
    alone = len(runs) == 1  # the title then shows the run's name
    groups = [Group("" if alone else run.name, run.rows) for run in runs]
    total, frames = max(run.steps[-1].index for run in runs), []
    for done, places in _moments(runs):
        now = np.stack([parts[:, place] for parts, place in zip(panels, places, strict=True)])
        notes = [_note(run.steps[: place + 1], count) for run, place in zip(runs, places, strict=True)]
        title = f"{f'{runs[0].name}, step' if alone else 'Step'} {round(done * total)} of {total}"
        frames.append(image_sheet(now, groups, names[:count], title=title, notes=notes, done=float(done)))
    return frames


def film_strip(
    runs: TracedRun | Sequence[TracedRun], tokenizer: ImageTokenizer, names: Sequence[str] = ()
) -> Image.Image:
    """Draw up to eight steps of the first few images from left to right, with proposal, scores and hidden tokens.

    The steps are evenly spaced and include the first and the last. The arguments are those of `step_frames`.
    """
    runs = _checked(runs, names)
    images = range(min(max(1, _MOST_GROUPS // len(runs)), runs[0].num_images))
    moments = _moments(runs)
    if len(moments) > _MOST_STEPS:
        moments = [moments[i] for i in np.linspace(0, len(moments) - 1, _MOST_STEPS).round().astype(int)]
    panels = []
    for number, run in enumerate(runs):
        steps = [run.steps[places[number]] for _, places in moments]
        panels.append(step_panels(steps, images, tokenizer, room_for(len(moments)), run.scale))
    stacked = np.stack([parts[:, :, index] for index in images for parts in panels])
    groups = [Group(f"{names[image]}: {run.name}" if names else run.name, run.rows) for image in images for run in runs]
    total = max(run.steps[-1].index for run in runs)
    return draw_sheet(stacked, groups, [f"step {round(done * total)}" for done, _ in moments])


def before_and_after(
    trace: Trace, tokenizer: ImageTokenizer, names: Sequence[str] = (), probabilities: bool = True
) -> Image.Image:
    """Draw a refinement by a critic: up to 16 images before and after, their scores and the tokens hidden first.

    trace: the trace that was passed to `refine` as `on_step=`.
    names: as in `step_frames`.
    probabilities: as in `run_of`.
    """
    if len(trace.steps) < 2 or trace.steps[0].index != 0 or trace.steps[0].scores is None:
        raise InputError("the trace is not of a refinement; pass it to `refine` as on_step=")
    run = _checked(run_of("critic", trace, probabilities), names)[0]
    first, last = run.steps[0], run.steps[-1]
    rows = "before", run.score_name, "hidden first", "after"
    count = min(MOST_IMAGES, run.num_images)
    panels = step_panels([first, last], range(count), tokenizer, room_for(side_by_side(count, len(rows))), run.scale)
    panels = np.concatenate([panels[:, 0], panels[:1, 1]])
    hidden, changed = first.hidden[:count], int((first.proposal[:count] != last.proposal[:count]).sum())
    note = f"{int(hidden.sum())} of {hidden.numel()} tokens hidden first, {changed} changed in the end"
    words: dict[str, Any] = {"title": "Refinement", "notes": [note], "legend": ("trusted", "hidden")}
    return image_sheet(panels[None], [Group("", rows)], names[:count], **words)


def samples_compared(
    tokens: Mapping[str, Tensor], tokenizer: ImageTokenizer, columns: Sequence[str], notes: Sequence[str] = ()
) -> Image.Image:
    """Draw images of several samplers with the same seeds, one group below the other.

    tokens: (rows * columns, n) in row-major order, by the name of the sampler.
    columns: texts above the columns, for instance classes.
    notes: texts to the right of each sampler's name.
    """
    pixels, size = decode_for_panels(torch.stack(list(tokens.values())), tokenizer, room_for(len(columns)))
    panels = magnify(pixels, size).reshape(len(tokens), -1, len(columns), *size, 3)
    groups = [Group(name, ("",) * panels.shape[1]) for name in tokens]
    return draw_sheet(panels, groups, columns, notes=notes, legend=())


def write_steps(
    file: str | Path, runs: TracedRun | Sequence[TracedRun], tokenizer: ImageTokenizer, names: Sequence[str] = ()
) -> None:
    """Write an animation of up to 16 images (.gif), or a film strip of the first few (.png).

    file: the path, whose suffix decides the format.
    runs, names: as in `step_frames`.
    """
    path = check_ending(file)
    if path.suffix.lower() == ".png":
        save(film_strip(runs, tokenizer, names), path)
        return
    frames = _with_one_palette(step_frames(runs, tokenizer, names))
    milliseconds = [_FRAME_MILLISECONDS] * (len(frames) - 1) + [_LAST_MILLISECONDS]
    options: dict[str, Any] = {"append_images": frames[1:], "duration": milliseconds, "loop": 0, "disposal": 1}
    write_atomically(path, lambda part: frames[0].save(part, "GIF", save_all=True, optimize=False, **options))


def check_ending(file: str | Path) -> Path:
    """Return the path if its suffix is .gif or .png, else raise InputError. Call it before sampling."""
    path = Path(file)
    if path.suffix.lower() not in (".gif", ".png"):
        raise InputError(f"{file} ends in {path.suffix!r}; expected .gif for an animation or .png for a film strip")
    return path


def _checked(runs: TracedRun | Sequence[TracedRun], names: Sequence[str]) -> list[TracedRun]:
    """Return the runs as a list. Raises InputError unless all have the same number of images, one for each name."""
    runs = [runs] if isinstance(runs, TracedRun) else list(runs)
    counts = sorted({run.num_images for run in runs})
    if len(counts) != 1:
        raise InputError(f"the runs have {counts} images; expected one or more runs with the same number of images")
    if names and len(names) != counts[0]:
        raise InputError(f"names has {len(names)} entries for {counts[0]} images; give one for each, or none")
    return runs


def _moments(runs: Sequence[TracedRun]) -> list[tuple[Fraction, list[int]]]:
    """Return the moments at which any run has a step: the share done, and the position of each run's latest step."""
    done = [[Fraction(step.index, run.steps[-1].index or 1) for step in run.steps] for run in runs]
    moments = sorted({share for shares in done for share in shares})
    return [(now, [max(0, sum(share <= now for share in shares) - 1) for shares in done]) for now in moments]


def _note(steps: Sequence[TraceStep], count: int) -> str:
    """Describe how many tokens are hidden after the last of the steps, and how many were re-masked."""
    hidden = steps[-1].hidden[:count]
    remasked = [int(step.remasked[:count].sum()) for step in steps]
    if not hidden.any():
        return f"all {hidden.numel()} tokens visible, {sum(remasked)} re-masked in total"
    return f"{int(hidden.sum())} of {hidden.numel()} tokens hidden, {remasked[-1]} re-masked"


def _with_one_palette(frames: Sequence[Image.Image]) -> list[Image.Image]:
    """Convert frames to one palette of 256 colours, which avoids flicker. Without dithering, flat areas stay flat."""
    fixed = np.concatenate([np.array(FLAT_COLOURS, np.uint8), colour_scale()[::_SCALE_STEP]])
    some = [frames[0], frames[len(frames) // 2], frames[-1]]
    montage = Image.fromarray(np.concatenate([np.asarray(frame.convert("RGB")) for frame in some]))
    found = montage.quantize(256 - len(fixed), Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    others = np.array(found.getpalette("RGB"), np.uint8).reshape(-1, 3)
    # Pillow rounds colours to steps of 4 when it looks them up, so a colour close to a fixed one could replace it.
    distance = np.abs(others[:, None].astype(int) - fixed).max(-1).min(-1)
    palette = Image.new("P", (1, 1))
    palette.putpalette(np.concatenate([fixed, others[distance >= _APART]]).tobytes())
    return [frame.convert("RGB").quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
