"""From a model or its traces to a picture of the steps on disk, in the form that the file's name asks for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.pictures.animation import ENDINGS, save_animation
from tokencritic.pictures.grids import save
from tokencritic.pictures.steps import Run, film_strip, run_of, step_frames
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.sampling.trace import Trace

MOST_IMAGES = 16
_MOST_GROUPS = 4  # of a film strip


def check_file(file: str | Path) -> Path:
    """The path, if its ending is one that `write_steps` knows."""
    path = Path(file)
    if path.suffix.lower() not in (*ENDINGS, ".png"):
        raise InputError(f"{file} ends in {path.suffix!r}; steps are written as .gif, .webp or, a film strip, .png")
    return path


def write_steps(
    file: str | Path,
    runs: Run | Sequence[Run],
    tokenizer: Any,
    names: Sequence[str] = (),
    *,
    milliseconds: int = 400,
) -> None:
    """Write an animation of up to 16 images (.gif, .webp), or a film strip of the first few (.png).

    runs: several are shown side by side. tokenizer, names: see `step_frames`. milliseconds: how long a frame is shown.
    """
    path = check_file(file)
    runs = [runs] if isinstance(runs, Run) else list(runs)
    if path.suffix.lower() != ".png":
        save_animation(step_frames(runs, tokenizer, names, MOST_IMAGES), path, milliseconds)
        return
    if not runs:
        raise InputError("runs is empty; there is nothing to show")
    count = min(max(1, _MOST_GROUPS // len(runs)), runs[0].num_images)
    save(film_strip(runs, tokenizer, names, range(count)), path)


def check_trace(file: str | Path, settings: SamplingSettings) -> Path:
    """The path, if `write_trace` can do what these arguments ask for: to be called before long work."""
    if settings.candidates > 1:
        raise InputError(f"candidates is {settings.candidates}; steps can be shown of images made without rejection")
    return check_file(file)


def write_trace(
    file: str | Path,
    pipe: Any,
    labels: Tensor,
    seed: int = 0,
    settings: SamplingSettings | None = None,
    *,
    trace: Trace | None = None,
    compare: SamplingSettings | None = None,
) -> None:
    """How a pipeline makes the first 16 images of these labels, step by step, into a file as `write_steps` makes it.

    pipe: a `TokenCriticPipeline`. labels: (b,); image i has seed + i. settings: the pipeline's defaults if not given.
    trace: a `Trace(MOST_IMAGES)` of these images, if they have been sampled already; else they are sampled now.
    compare: other settings, for instance of MaskGIT; how they make the images of the same seeds is shown above.
    """
    chosen: SamplingSettings = pipe.defaults if settings is None else settings
    path = check_trace(file, chosen)
    labels = labels[:MOST_IMAGES]

    def record(changed: SamplingSettings) -> Trace:
        made = Trace(MOST_IMAGES)
        pipe.sample_tokens(labels, seed, changed, callback_on_step_end=made.on_step_end)
        return made

    def run(made_with: SamplingSettings, made: Trace) -> Run:
        return run_of(made_with.chosen_sampler(pipe.critic is not None), made, made_with.probabilities)

    runs = [run(chosen, trace or record(chosen))]
    if runs[0].num_images != len(labels):
        raise InputError(f"trace holds {runs[0].num_images} images; expected the first {len(labels)} of the labels")
    if compare is not None:
        runs.insert(0, run(compare, record(compare)))
    names = [pipe.class_names[label] for label in labels.tolist()] if pipe.class_names else ()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_steps(path, runs, pipe.tokenizer, names)
