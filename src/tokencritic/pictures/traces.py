"""From a model or its traces to a picture of the steps on disk, in the form that the file's name asks for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.files import write_atomically
from tokencritic.pictures.grids import save
from tokencritic.pictures.look import FLAT_COLOURS, colour_scale
from tokencritic.pictures.steps import MOST_IMAGES, TracedRun, film_strip, run_of, step_frames
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.sampling.trace import Trace

_FRAME_MILLISECONDS, _LAST_MILLISECONDS = 400, 3000
_SCALE_STEP = 5  # every so many colours of the scale are in a GIF
_APART = 12


def write_steps(
    file: str | Path, runs: TracedRun | Sequence[TracedRun], tokenizer: Any, names: Sequence[str] = ()
) -> None:
    """Write an animation of up to 16 images (.gif, .webp), or a film strip of the first few (.png).

    runs: several are shown side by side. names: see `step_frames`.
    """
    path = _check_file(file)
    if path.suffix.lower() == ".png":
        save(film_strip(runs, tokenizer, names), path)
    else:
        _save_animation(step_frames(runs, tokenizer, names), path)


def check_trace(file: str | Path, settings: SamplingSettings) -> Path:
    """The path, if `write_trace` can do what these arguments ask for: to be called before long work."""
    if settings.candidates > 1:
        raise InputError(f"candidates is {settings.candidates}; steps can be shown of images made without rejection")
    return _check_file(file)


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

    def run_with(settings: SamplingSettings, trace: Trace | None = None) -> TracedRun:
        if trace is None:
            trace = Trace(MOST_IMAGES)
            pipe.sample_tokens(labels, seed, settings, callback_on_step_end=trace.on_step_end)
        return run_of(settings.chosen_sampler(pipe.critic is not None), trace, settings.probabilities)

    runs = [run_with(chosen, trace)]
    if runs[0].num_images != len(labels):
        raise InputError(f"trace holds {runs[0].num_images} images; expected the first {len(labels)} of the labels")
    if compare is not None:
        runs.insert(0, run_with(compare))
    names = [pipe.class_names[label] for label in labels.tolist()] if pipe.class_names else ()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_steps(path, runs, pipe.tokenizer, names)


def _check_file(file: str | Path) -> Path:
    path = Path(file)
    if path.suffix.lower() not in (".gif", ".webp", ".png"):
        raise InputError(f"{file} ends in {path.suffix!r}; steps are written as .gif, .webp or, a film strip, .png")
    return path


def _save_animation(frames: Sequence[Image.Image], file: Path) -> None:
    """Write frames of one size as a GIF or a WebP that plays for ever."""
    if file.suffix.lower() == ".gif":
        frames = _with_one_palette(frames)
        options: dict[str, Any] = {"format": "GIF", "disposal": 1, "optimize": False}
    else:
        options = {"format": "WEBP", "lossless": True, "method": 0, "quality": 50}
    options["duration"] = [_FRAME_MILLISECONDS] * (len(frames) - 1) + [_LAST_MILLISECONDS]
    write_atomically(
        file, lambda path: frames[0].save(path, save_all=True, append_images=frames[1:], loop=0, **options)
    )


def _with_one_palette(frames: Sequence[Image.Image]) -> list[Image.Image]:
    """Frames in 256 colours, the same for all, so that nothing flickers; not dithered, so that flat areas stay flat."""
    fixed = np.concatenate([np.array(FLAT_COLOURS, np.uint8), colour_scale()[::_SCALE_STEP]])
    some = [frames[0], frames[len(frames) // 2], frames[-1]]
    montage = Image.fromarray(np.concatenate([np.asarray(frame.convert("RGB")) for frame in some]))
    found = montage.quantize(256 - len(fixed), Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    others = np.array(found.getpalette("RGB"), np.uint8).reshape(-1, 3)
    # Pillow looks up colours in steps of 4: one all but equal to a fixed one would be taken in its place.
    distance = np.abs(others[:, None].astype(int) - fixed).max(-1).min(-1)
    palette = Image.new("P", (1, 1))
    palette.putpalette(np.concatenate([fixed, others[distance >= _APART]]).tobytes())
    return [frame.convert("RGB").quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
