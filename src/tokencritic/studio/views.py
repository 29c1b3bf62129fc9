"""What the page shows of a job, as the bytes of PNG and GIF files."""

import base64
import io
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.pictures.panels import decode_for_panels, hidden_panels, magnify, score_panels, step_panels
from tokencritic.pictures.steps import TracedRun, run_of, write_steps
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.studio.work import ImageSet
from tokencritic.tokenizers.regions import grid_of

ROOM = 160  # pixels of a panel; the page scales it to its width


def png(image: Image.Image) -> bytes:
    """The bytes of a PNG file."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def data_uri(content: bytes) -> str:
    """A PNG as an address that needs no request."""
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")


def traced_run(pipe: TokenCriticPipeline, made: ImageSet) -> TracedRun:
    """The steps as pictures know them, with the name of what is distrusted by."""
    if made.trace is None:
        raise InputError("the steps of these images are not known: they were chosen among candidates")
    return run_of(made.settings.row(pipe.critic is not None).name, made.trace, made.settings.probabilities)


def animation(pipe: TokenCriticPipeline, made: ImageSet) -> bytes:
    """The steps of the first images as a GIF."""
    run = traced_run(pipe, made)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "steps.gif"
        write_steps(file, run, pipe.tokenizer, pipe.names(made.labels[: run.num_images]))
        return file.read_bytes()


def step_facts(made: ImageSet, image: int) -> list[tuple[int, int, int]]:
    """Each step of an image: its number, from 1 on, and how many tokens are hidden and re-masked; [] if not known."""
    steps = made.trace.steps if made.trace is not None else []
    if not steps or not 0 <= image < len(steps[0].proposal):
        return []
    return [(step.index, int(step.hidden[image].sum()), int(step.remasked[image].sum())) for step in steps]


def steps_sheet(pipe: TokenCriticPipeline, made: ImageSet, image: int) -> Image.Image:
    """Every step of one image in one picture: a column for each step, a row each for proposal, scores and hidden tokens."""
    if not step_facts(made, image):
        raise InputError("the steps of this image are not known")
    run = traced_run(pipe, made)
    rows = step_panels(run.steps, [image], pipe.tokenizer, ROOM, run.scale)[:, :, 0]
    return Image.fromarray(np.concatenate([np.concatenate(list(row), axis=1) for row in rows]))


def panel(pipe: TokenCriticPipeline, made: ImageSet, *, scored: bool = False, region: Tensor | None = None) -> str:
    """The address of the first image at a panel's size, with the tokenizer's margin, so that tokens divide it evenly.

    scored: under the critic's scores, which must be there. region: (n,) bool, greyed.
    """
    grid = grid_of(pipe.tokenizer)
    pixels, size = decode_for_panels(made.tokens[:1], pipe.tokenizer, ROOM)
    if scored:
        assert made.scores is not None
        pixels = score_panels(pixels, made.scores[:1].numpy(), grid)
    pixels = magnify(pixels, size)
    if region is not None:
        hidden = region[None].numpy()
        pixels = hidden_panels(pixels, hidden, np.zeros_like(hidden), grid)
    return data_uri(png(Image.fromarray(pixels[0])))
