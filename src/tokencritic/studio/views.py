"""What the page shows of a run, as the bytes of PNG and GIF files."""

import base64
import io
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from tokencritic.errors import InputError
from tokencritic.pictures import Run, grid, run_of, write_steps
from tokencritic.pictures.panels import (
    decode,
    decode_steps,
    empty_panel,
    grid_of,
    hidden_panels,
    magnify,
    panel_size,
    score_panels,
    shrink,
)
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.studio.work import Part

ROOM = 160  # pixels of a panel; the page scales it to its width


def png(image: Image.Image) -> bytes:
    """The bytes of a PNG file."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def as_base64(image: Image.Image) -> str:
    return base64.b64encode(png(image)).decode("ascii")


def data_uri(content: bytes) -> str:
    """A PNG as an address that needs no request."""
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")


def names_of(pipe: TokenCriticPipeline, labels: Sequence[int]) -> list[str]:
    """The classes by name, with their number where two have the same; by number alone where the model has no names."""
    names = pipe.class_names
    if not names:
        return [f"class {label}" for label in labels]
    uses = Counter(names)
    return [names[label] if uses[names[label]] == 1 else f"{names[label]} ({label})" for label in labels]


def sheet(pipe: TokenCriticPipeline, part: Part) -> Image.Image:
    """All images with their classes."""
    return grid(part.images, names=names_of(pipe, part.labels))


def steps_run(pipe: TokenCriticPipeline, part: Part) -> Run:
    """The steps as pictures know them, with the name of what is distrusted by."""
    if part.trace is None:
        raise InputError("the steps of these images are not known: they were chosen among candidates")
    return run_of(part.settings.chosen_sampler(pipe.critic is not None), part.trace, part.settings.probabilities)


def animation(pipe: TokenCriticPipeline, part: Part) -> bytes:
    """The steps of the first images as a GIF."""
    run = steps_run(pipe, part)
    names = names_of(pipe, part.labels[: run.num_images])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "steps.gif"
        write_steps(file, run, pipe.tokenizer, names)
        return file.read_bytes()


@dataclass(frozen=True)
class StepFacts:
    """One step of one image. number: 1 for the first. hidden, taken_back: how many tokens."""

    number: int
    hidden: int
    taken_back: int


def step_facts(part: Part, image: int) -> list[StepFacts]:
    """What to say beside each step of an image; nothing where the steps are not known."""
    if part.trace is None or not 0 <= image < len(part.images):
        return []
    steps = part.trace.steps
    if not steps or image >= len(steps[0].proposal):
        return []
    return [StepFacts(step.index, int(step.hidden[image].sum()), int(step.taken_back[image].sum())) for step in steps]


def step_panels(pipe: TokenCriticPipeline, part: Part, image: int) -> Image.Image:
    """Every step of one image in one picture: a column for each step, a row each for proposal, scores and hidden tokens."""
    if not step_facts(part, image):
        raise InputError("the steps of this image are not known")
    run = steps_run(pipe, part)
    steps = run.steps
    cells = grid_of(pipe.tokenizer, steps[0].proposal.shape[1])
    pixels = decode_steps(steps, pipe.tokenizer, [image])[:, 0]
    size = panel_size(pixels.shape[1:3], cells, ROOM)
    pixels = shrink(pixels, size)
    heat = np.empty((len(steps), *size, 3), np.uint8)
    for place, step in enumerate(steps):
        if step.scores is None:
            heat[place] = empty_panel(size)
        else:
            heat[place] = magnify(score_panels(pixels[place], step.scores[image].numpy(), cells, run.scale), size)
    pixels = magnify(pixels, size)
    hidden, taken_back = (
        np.stack([getattr(s, name)[image].numpy() for s in steps]) for name in ("hidden", "taken_back")
    )
    rows = pixels, heat, hidden_panels(pixels, hidden, taken_back, cells)
    return Image.fromarray(np.concatenate([np.concatenate(list(row), axis=1) for row in rows]))


def plain_panel(pipe: TokenCriticPipeline, part: Part) -> Image.Image:
    """The first image as large as a panel, with the tokenizer's margin, so that tokens divide it evenly."""
    pixels, size, _ = _panel(pipe, part)
    return Image.fromarray(magnify(pixels, size)[0])


def score_panel(pipe: TokenCriticPipeline, part: Part) -> Image.Image:
    """The critic's scores over the first image."""
    if part.scores is None:
        raise InputError("the model has no critic")
    pixels, size, cells = _panel(pipe, part)
    return Image.fromarray(magnify(score_panels(pixels, part.scores[:1].numpy(), cells), size)[0])


def region_panel(pipe: TokenCriticPipeline, part: Part, region: np.ndarray) -> Image.Image:
    """The first image with a region (n,) greyed."""
    pixels, size, cells = _panel(pipe, part)
    nothing = np.zeros_like(region)[None]
    return Image.fromarray(hidden_panels(magnify(pixels, size), region[None], nothing, cells)[0])


def _panel(pipe: TokenCriticPipeline, part: Part) -> tuple[np.ndarray, tuple[int, int], tuple[int, int]]:
    """The first image (1, h, w, 3), how large to draw it, and its grid of tokens."""
    cells = grid_of(pipe.tokenizer, part.tokens.shape[1])
    pixels = decode(part.tokens[:1], pipe.tokenizer, 1)
    size = panel_size(pixels.shape[1:3], cells, ROOM)
    return shrink(pixels, size), size, cells
