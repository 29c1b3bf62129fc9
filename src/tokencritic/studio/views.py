"""Views of a run: JSON values for the page, and the pictures that the page shows."""

import base64
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tokencritic.pictures.grids import image_grid
from tokencritic.pictures.panels import hidden_panels, step_panels
from tokencritic.pictures.steps import TracedRun, run_of, write_steps
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.sampling.trace import TraceStep
from tokencritic.studio.controls import offline_fid, title
from tokencritic.studio.service import EVERYONE, Job, Service
from tokencritic.studio.work import ImageSet, png

_ROOM, _MOST_ACROSS = 160, 8192  # pixels of a panel, and of all steps side by side


def summary(job: Job) -> dict[str, Any]:
    """Return the entry of a run in the history: its request and its state."""
    told = {"id": job.id, "kind": job.work.kind, "state": job.state, "own": job.client != EVERYONE}
    return told | {"asked": job.asked, "seed": str(job.work.seed)}


def version(job: Job, ahead: int) -> str:
    """Return a string that changes with the progress of an unfinished run."""
    return f"{job.version} {ahead}"


def progress(job: Job, ahead: int) -> dict[str, Any]:
    """Return the progress of an unfinished run, with previews of its images.

    ahead: the number of runs before it.
    """
    if job.state == "waiting":
        others = "one run is" if ahead == 1 else f"{ahead} runs are"
        text = "Waiting for the worker" if ahead == 0 else f"Waiting: {others} before this one"
    else:
        text = "Starting" if job.done == 0 else f"Step {int(job.done)} of {job.total}"
    told = {"version": version(job, ahead), "text": text, "share": job.done / job.total}
    return summary(job) | told | {"images": [_data_uri(content) for content in job.preview]}


def finished(service: Service, job: Job) -> dict[str, Any]:
    """Return all values of a finished run."""
    told = summary(job) | {"version": "", "text": job.message[:1].upper() + job.message[1:]}
    told["sets"] = [image_set(service, job, number) for number in range(len(job.result.sets))]
    if job.work.kind == "compare" and len(job.result.sets) == 2:
        told["fid"] = _fids(service, job)
    if job.result.before is not None:
        told |= _change(service.pipe, job, job.result.before)
    return told


def image_set(service: Service, job: Job, number: int) -> dict[str, Any]:
    """Return the values of one set of images, with their cost, steps and command.

    number: the index of the set.
    """
    made, pipe = job.result.sets[number], service.pipe
    row = made.settings.row(pipe.critic is not None)
    names, seeds = pipe.names(made.labels), [job.work.seed + index for index in range(len(made.labels))]
    steps = [] if made.trace is None else made.trace.steps
    return {
        "base": f"/studio/runs/{job.id}/{number}",
        "title": title(row),
        "colour": row.colour,
        "labels": made.labels,
        "names": names,
        "seeds": [str(seed) for seed in seeds],  # JavaScript integers are exact only up to 2^53
        "files": [_file_name(service.model, name, seed) for name, seed in zip(names, seeds, strict=True)],
        "recognised": made.recognised,
        "nfe": made.nfe,
        "cost": round(made.cost, 2),
        "steps": made.settings.steps,
        "seconds": round(made.seconds, 2),
        "command": job.work.command(pipe, service.model, made),
        "tokens": made.tokens.shape[1],
        "trace": {"rows": _rows(pipe, made), "counts": _counts(steps)} if steps else None,
    }


def _file_name(model: str, name: str, seed: int) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", f"{Path(model).name}_{name}".lower().replace("_", " ")).strip("-")
    return f"{words}_seed{seed}.png"


def _fids(service: Service, job: Job) -> list[dict[str, Any] | None]:
    """Return the offline FID of each set with its number of images; None for a set without any FID.

    The number is the largest for which both sets have an FID, else the largest of each set.
    """
    found = [offline_fid(service, made.settings) for made in job.result.sets]
    common = set(found[0]).intersection(*found)
    counts = [max(common or fids, default=0) for fids in found]
    return [
        {"images": count, "value": fids[count]} if count else None for count, fids in zip(counts, found, strict=True)
    ]


def _rows(pipe: TokenCriticPipeline, made: ImageSet) -> list[str]:
    """Return the titles of the four panels of a step."""
    row = made.settings.row(pipe.critic is not None)
    judge = "critic" if row.uses_critic or row.uses_inline_critic else "generator"
    trusted = f"What the {judge} trusts" if judge == "critic" or row.name == "confidence" else row.score_title
    return ["Current guess", trusted, "Resampled next", "Changed its mind"]


def _counts(steps: list[TraceStep]) -> list[list[list[int]]]:
    """Return [step, hidden, remasked] for each step of each image, in lists by image.

    step: the index of the step.
    hidden: the number of tokens that are resampled next.
    remasked: the number of these tokens that were kept before.
    """
    by_step = [zip(step.hidden.sum(1).tolist(), step.remasked.sum(1).tolist(), strict=True) for step in steps]
    return [
        [[step.index, *found] for step, found in zip(steps, image, strict=True)] for image in zip(*by_step, strict=True)
    ]


def _change(pipe: TokenCriticPipeline, job: Job, before: ImageSet) -> dict[str, Any]:
    """Return the values of a scored, refined or edited picture, with the verdict of critic and classifier in words."""
    name = pipe.names(before.labels)[0]
    told = {"base": f"/studio/runs/{job.id}", "scored": before.scores is not None, "class": name, "better": None}
    if not job.result.sets:
        score = "" if before.mean_score is None else f"The critic's mean score is {before.mean_score:.3f}."
        return told | {"verdict": (f"Taken as {name}. " * bool(name) + score).strip()}
    after = job.result.sets[0]
    text = f"{int((before.tokens != after.tokens).sum())} of {before.tokens.numel()} tokens changed."
    if job.work.region is None and before.mean_score is not None and after.mean_score is not None:
        scores = f"its mean score goes from {before.mean_score:.3f} to {after.mean_score:.3f}"
        told["better"] = after.mean_score > before.mean_score
        likes = "the result better" if told["better"] else "the original better: keep it"
        text += f" The critic likes {likes}; {scores}."
    if before.recognised is not None and after.recognised is not None:
        places = zip(("the original", "the result"), (before, after), strict=True)
        found = [place for place, made in places if made.recognised == (True,)]
        text += f" The classifier finds {name} in {' and '.join(found) or 'neither'}."
    return told | {"verdict": text}


def draw(service: Service, job: Job, number: int, name: str, index: int) -> bytes:
    """Return a picture of a set of images, as the bytes of a file. Raises LookupError if there is none.

    number: the index of the set.
    name: `image` or `steps` of one image, or `images` or `gif` of the set.
    index: the index of the image.
    """
    made, pipe = job.result.sets[number], service.pipe
    if name == "image":
        return png(made.images[index], job.work.facts(pipe, service.model, made, index))
    if name == "images":
        return png(image_grid(made.images, names=[*filter(None, pipe.names(made.labels))]))
    if made.trace is None or name not in ("steps", "gif"):
        raise LookupError(name)
    return png(steps_sheet(pipe, made, index)) if name == "steps" else animation(pipe, made)


def draw_change(service: Service, job: Job, name: str) -> bytes:
    """Return a picture of a scored, refined or edited picture, as a PNG file. Raises LookupError if there is none.

    name: `given`, `before` or `after`; `before_score` or `after_score` for the critic's scores; `region` for the tokens
    that an edit resamples.
    """
    if name == "given" and job.work.picture is not None:
        return png(job.work.picture)
    which, _, scored = name.partition("_")
    made = job.result.sets[0] if which == "after" else job.result.before
    if made is None or (scored and made.scores is None) or which not in ("before", "after", "region"):
        raise LookupError(name)
    hidden = torch.zeros_like(made.tokens, dtype=torch.bool)
    if which == "region":
        hidden = hidden | (hidden if job.result.region is None else job.result.region[None])
    step = TraceStep(0, 0.0, made.tokens, hidden, made.scores, hidden)
    panels = step_panels([step], [0], service.pipe.tokenizer, 2 * _ROOM, "probability")[:, 0, 0]
    return png(Image.fromarray(panels[1 if scored else 2 if which == "region" else 0]))


def _traced_run(pipe: TokenCriticPipeline, made: ImageSet) -> TracedRun:
    """Return the steps as a `TracedRun`, with the title of the sampler."""
    assert made.trace is not None  # `draw` checks it
    return run_of(made.settings.row(pipe.critic is not None).name, made.trace, made.settings.probabilities)


def animation(pipe: TokenCriticPipeline, made: ImageSet) -> bytes:
    """Return the steps of the first images as the bytes of a GIF file."""
    run = _traced_run(pipe, made)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "steps.gif"
        write_steps(file, run, pipe.tokenizer, pipe.names(made.labels[: run.num_images]))
        return file.read_bytes()


def steps_sheet(pipe: TokenCriticPipeline, made: ImageSet, image: int) -> Image.Image:
    """Draw all steps of one image: a column for each step, and a row for each of the four panels of `_rows`."""
    run = _traced_run(pipe, made)
    room = min(_ROOM, max(_MOST_ACROSS // len(run.steps), pipe.tokenizer.image_size))
    proposals, scores, _ = step_panels(run.steps, [image], pipe.tokenizer, room, run.scale)[:, :, 0]
    hidden, remasked = (
        np.stack([one[image].numpy() for one in parts])
        for parts in zip(*((step.hidden, step.remasked) for step in run.steps), strict=True)
    )
    grid, none = pipe.tokenizer.grid, np.zeros_like(hidden)
    rows = (
        proposals,
        scores,
        hidden_panels(proposals, hidden, None, grid),
        hidden_panels(proposals, none, remasked, grid),
    )
    return Image.fromarray(np.concatenate([np.concatenate(list(row), axis=1) for row in rows]))


def _data_uri(content: bytes) -> str:
    """Return a PNG file as a data URI, which needs no request."""
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")
