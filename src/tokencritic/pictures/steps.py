"""How images come about, and what comes of them: frames and film strips of the steps, before and after, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.pictures.look import SAMPLERS, Scale
from tokencritic.pictures.panels import decode_for_panels, magnify, step_panels
from tokencritic.pictures.sheet import Group, ImageSheet, Sheet, room_for, side_by_side
from tokencritic.sampling.trace import Trace, TraceStep

MOST_IMAGES = 16
_MOST_GROUPS, _MOST_STEPS = 4, 8  # of a film strip


@dataclass(frozen=True)
class TracedRun:
    """A sampler's run to show. name: its heading. steps: those of its `Trace`. score_name: what its scores are called.

    scale: how they are read, see `trust`.
    """

    name: str
    steps: Sequence[TraceStep]
    score_name: str = "score"
    scale: Scale = "probability"

    def __post_init__(self) -> None:
        if not self.steps or not len(self.steps[0].proposal):
            raise InputError(f"the run {self.name!r} has no steps; give a sampler its trace as on_step= first")

    @property
    def num_images(self) -> int:
        return len(self.steps[0].proposal)

    @property
    def rows(self) -> tuple[str, ...]:
        return "proposal", self.score_name, "hidden next"


def run_of(sampler: str, trace: Trace, probabilities: bool = True) -> TracedRun:
    """A run of one of our samplers (see `SamplingSettings`), under the name it is known by.

    probabilities: False where the critic's scores are in another unit, such as logits; they are then shown by their rank.
    """
    if sampler not in SAMPLERS:
        raise InputError(f"sampler is {sampler!r}; choose one of {', '.join(SAMPLERS)}")
    look = SAMPLERS[sampler]
    if look.scale == "probability" and not probabilities:
        return TracedRun(look.heading, trace.steps, "rank of score", "rank")
    return TracedRun(look.heading, trace.steps, look.score_name, look.scale)


def step_frames(runs: TracedRun | Sequence[TracedRun], tokenizer: Any, names: Sequence[str] = ()) -> list[Image.Image]:
    """One picture for each step: a column for each of the first 16 images; proposal, scores and hidden tokens below.

    runs: several stand one below the other and go on together; where one has skipped a step, its last picture stays.
    names: what to write above each image, for instance its class.
    """
    runs = _checked(runs, names)
    count = min(MOST_IMAGES, runs[0].num_images)
    room = room_for(side_by_side(count, len(runs[0].rows)))
    panels = [step_panels(run.steps, range(count), tokenizer, room, run.scale) for run in runs]
    alone = len(runs) == 1  # then its name is in the title
    groups = [Group("" if alone else run.name, run.rows) for run in runs]
    sheet = ImageSheet(groups, names[:count] or [""] * count, panels[0].shape[-3:-1])
    total, frames = _total(runs), []
    for done, places in _moments(runs):
        now = np.stack([parts[:, place] for parts, place in zip(panels, places, strict=True)])
        notes = [_note(run.steps[: place + 1], count) for run, place in zip(runs, places, strict=True)]
        title = f"{runs[0].name}, step" if alone else "Step"
        title = f"{title} {round(done * total)} of {total}"
        frames.append(sheet.picture(now, title=title, notes=notes, done=float(done)))
    return frames


def film_strip(
    runs: TracedRun | Sequence[TracedRun],
    tokenizer: Any,
    names: Sequence[str] = (),
    images: Sequence[int] | None = None,
) -> Image.Image:
    """Up to eight steps of a few images from left to right; proposal, scores and hidden tokens below each other.

    images: which ones; by default the first, so many that four groups of rows are shown. The steps are evenly chosen, with
    the first and the last among them. The other arguments are those of `step_frames`.
    """
    runs = _checked(runs, names)
    if images is None:
        images = range(min(max(1, _MOST_GROUPS // len(runs)), runs[0].num_images))
    if bad := [image for image in images if not 0 <= image < runs[0].num_images]:
        raise InputError(f"images holds {bad[0]}; expected 0 to {runs[0].num_images - 1}")
    if not images:
        raise InputError("images is empty; there is nothing to show")
    moments = _moments(runs)
    if len(moments) > _MOST_STEPS:
        moments = [moments[i] for i in np.linspace(0, len(moments) - 1, _MOST_STEPS).round().astype(int)]
    panels = []
    for number, run in enumerate(runs):
        steps = [run.steps[places[number]] for _, places in moments]
        panels.append(step_panels(steps, images, tokenizer, room_for(len(moments)), run.scale))
    stacked = np.stack([parts[:, :, index] for index in range(len(images)) for parts in panels])
    pairs = [(image, run) for image in images for run in runs]
    groups = [Group(f"{names[image]}: {run.name}" if names else run.name, run.rows) for image, run in pairs]
    headings = [f"step {round(done * _total(runs))}" for done, _ in moments]
    return Sheet(groups, headings, stacked.shape[-3:-1]).picture(stacked)


def before_and_after(
    trace: Trace, tokenizer: Any, names: Sequence[str] = (), probabilities: bool = True
) -> Image.Image:
    """A refinement by a critic: each of the first 16 images as it was given, its scores, what is hidden first, the result.

    trace: passed to `refine` as `on_step=`. names, probabilities: as for `step_frames` and `run_of`.
    """
    if len(trace.steps) < 2 or trace.steps[0].index != 0 or trace.steps[0].scores is None:
        raise InputError("the trace is not of a refinement; pass it to `refine` as on_step=")
    run = _checked(run_of("critic", trace, probabilities), names)[0]
    first, last = run.steps[0], run.steps[-1]
    rows = "before", run.score_name, "hidden first", "after"
    count = min(MOST_IMAGES, run.num_images)
    room = room_for(side_by_side(count, len(rows)))
    panels = step_panels([first, last], range(count), tokenizer, room, run.scale)
    panels = np.concatenate([panels[:, 0], panels[:1, 1]])
    changed = int((first.proposal[:count] != last.proposal[:count]).sum())
    hidden = first.hidden[:count]
    note = f"{int(hidden.sum())} of {hidden.numel()} tokens hidden first, {changed} changed in the end"
    names = names[:count] or [""] * count
    sheet = ImageSheet([Group("", rows)], names, panels.shape[-3:-1], legend=("trust", "hidden"))
    return sheet.picture(panels[None], title="Refinement", notes=[note])


def samples_compared(
    tokens: Mapping[str, Tensor], tokenizer: Any, columns: Sequence[str], notes: Sequence[str] = ()
) -> Image.Image:
    """Images of several samplers from the same seeds, one group below the other.

    tokens: by the name of their sampler (rows * columns, n), row by row. columns: what to write above each, for instance
    its class. notes: one for each sampler, at the right of its name.
    """
    counts = {len(some) for some in tokens.values()}
    if len(counts) != 1 or 0 in counts or min(counts) % len(columns):
        raise InputError(f"there are {sorted(counts)} images for {len(columns)} columns; give each sampler whole rows")
    rows = counts.pop() // len(columns)
    pixels, size = decode_for_panels(torch.stack(list(tokens.values())), tokenizer, room_for(len(columns)))
    panels = magnify(pixels, size).reshape(len(tokens), rows, len(columns), *size, 3)
    groups = [Group(name, ("",) * rows) for name in tokens]
    return Sheet(groups, columns, size, legend=()).picture(panels, notes=notes)


def _checked(runs: TracedRun | Sequence[TracedRun], names: Sequence[str]) -> list[TracedRun]:
    """The runs as a list, if they have as many images each as there are names."""
    runs = [runs] if isinstance(runs, TracedRun) else list(runs)
    if not runs:
        raise InputError("runs is empty; there is nothing to show")
    counts = [run.num_images for run in runs]
    if len(set(counts)) > 1:
        raise InputError(f"the runs have {min(counts)} and {max(counts)} images; side by side they must have as many")
    if names and len(names) != counts[0]:
        raise InputError(f"names has {len(names)} entries for {counts[0]} images; give one for each, or none")
    return runs


def _moments(runs: Sequence[TracedRun]) -> list[tuple[Fraction, list[int]]]:
    """All moments at which some run has a step: the share done by then, and each run's latest step, by its place."""
    done = [[Fraction(step.index, run.steps[-1].index or 1) for step in run.steps] for run in runs]
    moments = sorted({share for shares in done for share in shares})
    return [(now, [max(0, sum(share <= now for share in shares) - 1) for shares in done]) for now in moments]


def _total(runs: Sequence[TracedRun]) -> int:
    return max(run.steps[-1].index for run in runs)


def _note(steps: Sequence[TraceStep], count: int) -> str:
    """What is hidden after the last of the steps, and how often tokens have been taken back by then."""
    hidden = steps[-1].hidden[:count]
    now, so_far = int(steps[-1].taken_back[:count].sum()), sum(int(step.taken_back[:count].sum()) for step in steps)
    if not hidden.any():
        return f"all {hidden.numel()} tokens kept, {so_far} taken back on the way"
    return f"{int(hidden.sum())} of {hidden.numel()} tokens hidden, {now} taken back"
