"""How images come about: for each step the proposal, its scores and the hidden tokens, as frames or as a film strip."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from PIL import Image

from tokencritic.errors import InputError
from tokencritic.pictures.panels import (
    Scale,
    decode_steps,
    empty_panel,
    grid_of,
    hidden_panels,
    magnify,
    panel_size,
    score_panels,
    shrink,
)
from tokencritic.pictures.sheet import Group, ImageSheet, Sheet, room_for, side_by_side
from tokencritic.sampling.trace import Trace, TraceStep

# sampler -> its heading, the name of its scores, and how they are read
_SAMPLERS: dict[str, tuple[str, str, Scale]] = {
    "critic": ("Token-Critic", "critic's score", "probability"),
    "chance": ("Taken back by chance", "rank of score", "rank"),
    "confidence": ("MaskGIT", "confidence rank", "rank"),
    "random": ("Random order", "random score", "rank"),
    "halton": ("Halton order", "order", "rank"),
}


@dataclass(frozen=True)
class Run:
    """One run to show. name: its heading. steps: those of its `Trace`. score_name: what its scores are called.

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


def run_of(sampler: str, trace: Trace, probabilities: bool = True) -> Run:
    """A run of one of our samplers (see `SamplingSettings`), under the name it is known by.

    probabilities: False where the critic's scores are in another unit, such as logits; they are then shown by their rank.
    """
    if sampler not in _SAMPLERS:
        raise InputError(f"sampler is {sampler!r}; choose one of {', '.join(_SAMPLERS)}")
    name, score_name, scale = _SAMPLERS[sampler]
    if scale == "probability" and not probabilities:
        score_name, scale = "rank of score", "rank"
    return Run(name, trace.steps, score_name, scale)


def step_frames(
    runs: Run | Sequence[Run], tokenizer: Any, names: Sequence[str] = (), most_images: int = 16
) -> list[Image.Image]:
    """One picture for each step: a column for each image; proposal, scores and hidden tokens below each other.

    runs: several stand one below the other and go on together; where one has skipped a step, its last picture stays.
    tokenizer: has `decode` and perhaps `grid`. names: what to write above each image, for instance its class.
    most_images: show only the first so many.
    """
    runs = _checked(runs, names)
    count = shown_images(most_images, runs[0].num_images)
    names = names[:count] if names else [""] * count
    room = room_for(side_by_side(count, len(runs[0].rows)))
    panels = [_panels(run, run.steps, range(count), tokenizer, room) for run in runs]
    alone = len(runs) == 1  # then its name is in the title
    groups = [Group("" if alone else run.name, run.rows) for run in runs]
    sheet = ImageSheet(groups, names, panels[0].shape[-3:-1])
    total, frames = _total(runs), []
    for done, places in _moments(runs):
        now = np.stack([parts[:, place] for parts, place in zip(panels, places, strict=True)])
        notes = [_note(run.steps[: place + 1], count) for run, place in zip(runs, places, strict=True)]
        title = f"{runs[0].name}, step" if alone else "Step"
        title = f"{title} {round(done * total)} of {total}"
        frames.append(sheet.picture(now, title=title, notes=notes, done=float(done)))
    return frames


def film_strip(
    runs: Run | Sequence[Run],
    tokenizer: Any,
    names: Sequence[str] = (),
    images: Sequence[int] = (0,),
    most_steps: int | None = 8,
) -> Image.Image:
    """The steps of a few images in one picture, from left to right; proposal, scores and hidden tokens below each other.

    images: which ones. most_steps: show so many, evenly chosen, with the first and the last among them; None shows all.
    The other arguments are those of `step_frames`.
    """
    runs = _checked(runs, names)
    if not images:
        raise InputError("images is empty; there is nothing to show")
    if most_steps is not None and most_steps < 2:
        raise InputError(f"most_steps is {most_steps}; it must be at least 2, for the first and the last")
    if bad := [image for image in images if not 0 <= image < runs[0].num_images]:
        raise InputError(f"images holds {bad[0]}; expected 0 to {runs[0].num_images - 1}")
    moments = _moments(runs)
    if most_steps is not None and most_steps < len(moments):
        moments = [moments[i] for i in np.linspace(0, len(moments) - 1, most_steps).round().astype(int)]
    room, parts = room_for(len(moments)), []
    for number, run in enumerate(runs):
        steps = [run.steps[places[number]] for _, places in moments]
        parts.append(_panels(run, steps, images, tokenizer, room))
    stacked = np.stack([part[:, :, index] for index in range(len(images)) for part in parts])
    pairs = [(image, run) for image in images for run in runs]
    groups = [Group(f"{names[image]}: {run.name}" if names else run.name, run.rows) for image, run in pairs]
    total = _total(runs)
    headings = [f"step {round(done * total)}" for done, _ in moments]
    return Sheet(groups, headings, stacked.shape[-3:-1]).picture(stacked)


def _checked(runs: Run | Sequence[Run], names: Sequence[str]) -> list[Run]:
    runs = [runs] if isinstance(runs, Run) else list(runs)
    if not runs:
        raise InputError("runs is empty; there is nothing to show")
    counts = [run.num_images for run in runs]
    if len(set(counts)) > 1:
        raise InputError(f"the runs have {min(counts)} and {max(counts)} images; side by side they must have as many")
    check_names(names, counts[0])
    return runs


def check_names(names: Sequence[str], count: int) -> None:
    """There must be one for each image, or none at all."""
    if names and len(names) != count:
        raise InputError(f"names has {len(names)} entries for {count} images; give one for each, or none")


def shown_images(most_images: int, count: int) -> int:
    """How many of `count` images to show."""
    if most_images < 1:
        raise InputError(f"most_images is {most_images}; it must be at least 1")
    return min(most_images, count)


def _moments(runs: Sequence[Run]) -> list[tuple[Fraction, list[int]]]:
    """All moments at which some run has a step: the share done by then, and each run's latest step, by its place."""
    done = [[Fraction(step.index, run.steps[-1].index or 1) for step in run.steps] for run in runs]
    moments = sorted({share for shares in done for share in shares})
    return [(now, [max(0, sum(share <= now for share in shares) - 1) for shares in done]) for now in moments]


def _total(runs: Sequence[Run]) -> int:
    return max(run.steps[-1].index for run in runs)


def _panels(run: Run, steps: Sequence[TraceStep], images: Sequence[int], tokenizer: Any, room: int) -> np.ndarray:
    """Proposal, scores and hidden tokens: (3, steps, images, h, w, 3) uint8."""
    which = list(images)
    pixels = decode_steps(steps, tokenizer, which)
    grid = grid_of(tokenizer, steps[0].proposal.shape[1])
    size = panel_size(pixels.shape[2:4], grid, room)
    pixels = shrink(pixels, size)
    heat = np.empty((*pixels.shape[:2], *size, 3), np.uint8)
    for place, step in enumerate(steps):
        if step.scores is None:
            heat[place] = empty_panel(size)
        else:  # coloured before it is magnified: far fewer pixels
            heat[place] = magnify(score_panels(pixels[place], step.scores[which].numpy(), grid, run.scale), size)
    pixels = magnify(pixels, size)
    hidden = np.stack([step.hidden[which].numpy() for step in steps])
    taken_back = np.stack([step.taken_back[which].numpy() for step in steps])
    return np.stack([pixels, heat, hidden_panels(pixels, hidden, taken_back, grid)])


def _note(steps: Sequence[TraceStep], count: int) -> str:
    """What is hidden after the last of the steps, and how often tokens have been taken back by then."""
    hidden = steps[-1].hidden[:count]
    now, so_far = int(steps[-1].taken_back[:count].sum()), sum(int(step.taken_back[:count].sum()) for step in steps)
    if not hidden.any():
        return f"all {hidden.numel()} tokens kept, {so_far} taken back on the way"
    return f"{int(hidden.sum())} of {hidden.numel()} tokens hidden, {now} taken back"
