"""What a client sees of a job: the HTML of its results, and the pictures in it. `page.js` makes the HTML move."""

import base64
import json
import tempfile
from html import escape
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.pictures.panels import step_panels
from tokencritic.pictures.steps import TracedRun, run_of, write_steps
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.sampling.trace import TraceStep
from tokencritic.studio.service import Job, Service
from tokencritic.studio.work import ImageSet, png
from tokencritic.tokenizers.regions import place_grid

_ROOM = 160  # pixels of a panel; the page scales it to its width
_LEGEND = (
    '<p class="tc-legend"><span class="tc-scale">distrusted <i></i> trusted</span> '
    '<span><i class="tc-hidden"></i> hidden</span> <span><i class="tc-taken"></i> re-masked</span></p>'
)


def note(text: str, kind: str = "status") -> str:
    """One line. kind: "status" for news, "alert" for what went wrong."""
    return f'<p class="tc-note tc-{kind}" role="{kind}">{escape(text)}</p>'


def progress(job: Job, ahead: int) -> str:
    """Where an unfinished job stands, with its images as they form."""
    if job.state == "waiting":
        others = "one run is" if ahead == 1 else f"{ahead} runs are"
        return note("Waiting for the worker." if ahead == 0 else f"Waiting: {others} before this one.")
    text = "Starting." if job.done == 0 else f"Step {int(job.done)} of {job.total}."
    bar = f'<progress class="tc-bar" max="{job.total}" value="{job.done}" aria-label="steps done"></progress>'
    if job.preview is not None:
        bar += f'<img class="tc-forming" alt="the images as they form" src="{_data_uri(job.preview)}">'
    return note(text) + bar


def finished(service: Service, job: Job) -> str:
    """What came of a finished job, in the form that its tab shows."""
    if job.state != "done":
        return note(job.message[:1].upper() + job.message[1:], "status" if job.state == "cancelled" else "alert")
    results = [_result(service, job, number) for number in range(len(job.result.sets))]
    if len(results) < 2:
        return results[0] if results else _look(service.pipe, job)
    columns = ""  # side by side, below each other on a phone
    for letter, made, result in zip("AB", job.result.sets, results, strict=True):
        columns += f"<div><h3>{letter}: {made.settings.sampler}, {made.settings.steps} steps</h3>{result}</div>"
    return f'<div class="tc-columns">{columns}</div>'


def _result(service: Service, job: Job, number: int) -> str:
    """What is shown of an image set, with its downloads, its steps and its command."""
    made, base = job.result.sets[number], f"studio/runs/{job.id}/{number}"
    shown, links = (_gallery if job.work.picture is None else _change)(service.pipe, job, made, base)
    command = job.work.command(service.pipe, service.model, made)
    if command:
        command = (
            '<details class="tc-command" open><summary>The command that makes the same</summary><div><code tabindex="0">'
            f'{escape(command)}</code><button type="button" onclick="studio.copy(this)">Copy</button></div></details>'
        )
    return (
        f'<div class="tc-result" data-base="{base}" data-run="{job.id}" data-chosen="0">{shown}'
        f'<p class="tc-links">Download: {links}</p>{_steps(service.pipe, made, base)}{command}</div>'
    )


def _gallery(pipe: TokenCriticPipeline, job: Job, made: ImageSet, base: str) -> tuple[str, str]:
    """New images, one of which is chosen, and their downloads."""
    count = len(made.images)
    facts = f"{count} image{'s' if count > 1 else ''} in {made.seconds:.1f} s, {made.nfe} NFE"
    if made.mean_score is not None:
        facts += f", the critic's mean score {made.mean_score:.3f}"
    links = _link(f"{base}/images.png", "PNG of all")
    links += _link(f"{base}/steps.gif", "GIF of the steps") if made.trace is not None else ""
    links += _link(f"{base}/image_0.png", "PNG of the chosen one")
    buttons = ""
    for index, name in enumerate(pipe.names(made.labels)):
        label = escape(f"{name}, seed {job.work.seed + index}".removeprefix(", "))
        buttons += (
            f'<button type="button" class="tc-thumb" data-index="{index}" aria-pressed="{str(index == 0).lower()}" '
            f'title="{label}" onclick="studio.choose(this)"><img alt="{label}" src="{base}/image_{index}.png">'
            f"<span>{escape(name)}</span></button>"
        )
    return f'{note(facts + ".")}<div class="tc-gallery" role="group" aria-label="images">{buttons}</div>', links


def _link(address: str, text: str, file: str = "") -> str:
    """A download. file: its name, that of the address if not given."""
    return f'<a href="{address}" download="{file}">{text}</a> '


def _steps(pipe: TokenCriticPipeline, made: ImageSet, base: str) -> str:
    """The steps of the chosen image under one slider."""
    facts = [step_facts(made, image) for image in range(len(made.images))]
    if not facts[0]:
        return note("Steps are shown of images that were not chosen among candidates.")
    count = len(facts[0])
    at = (count - 1) // 2  # half done: there is most to see
    panels = "".join(
        f'<figure><div class="tc-panel" role="img" aria-label="{escape(name)}" data-row="{row}" style="--row:{row}; '
        f'background-image:url({base}/steps_0.png)"></div><figcaption>{escape(name)}</figcaption></figure>'
        for row, name in enumerate(_traced_run(pipe, made).rows)
    )
    return (
        f'<section class="tc-viewer" aria-label="steps" data-facts="{escape(json.dumps(facts))}" '
        f'style="--steps:{count}; --at:{at}"><div class="tc-panels">{panels}</div>'
        f'<div class="tc-slide"><label>Step <input type="range" min="0" max="{count - 1}" value="{at}" '
        'oninput="studio.step(this)"></label><button type="button" onclick="studio.play(this)">Play</button></div>'
        f'<output class="tc-facts">{facts[0][at]}</output>{_LEGEND}</section>'
    )


def _look(pipe: TokenCriticPipeline, job: Job) -> str:
    """A picture as the model sees it, and what the critic thinks of it."""
    before = job.result.before
    assert before is not None
    image, score, _ = _panels(pipe, before)
    figures = {"as the tokenizer gives it back": image, "critic's score": score}
    name = pipe.names(before.labels)[0]
    text = f"Taken as {name}. " * bool(name) + f"The critic's mean score is {before.mean_score:.3f}."
    return note(text) + _figures(figures) + _LEGEND


def _change(pipe: TokenCriticPipeline, job: Job, after: ImageSet, base: str) -> tuple[str, str]:
    """A picture before and after under one slider, the region resampled and their scores; and its downloads."""
    given, before = job.work.picture, job.result.before
    assert given is not None
    assert before is not None
    changed = int((before.tokens != after.tokens).sum())
    name, figures = pipe.names(after.labels)[0], {}
    image, score, resampled = _panels(pipe, before, job.result.region)
    new_image, new_score, _ = _panels(pipe, after)
    text = (
        f"{changed} of {before.tokens.numel()} tokens changed{f', as {name}' if name else ''}, in {after.seconds:.1f} s"
    )
    if job.result.region is not None:
        figures["resampled"] = resampled
    if before.scores is not None:
        text += f". The critic's mean score went from {before.mean_score:.3f} to {after.mean_score:.3f}"
        figures |= {"score before": score, "score after": new_score}
    wipe = (
        f'<div class="tc-wipe" style="--at:50%"><div><img alt="before" src="{image}">'
        f'<img class="tc-after" alt="after" src="{new_image}"></div><label>before '
        '<input type="range" min="0" max="100" value="50" aria-label="how much of the picture before is shown" '
        'oninput="studio.wipe(this)"> after</label></div>'
    )
    links = _link(f"{base}/image_0.png", "PNG of the result", "result.png")
    links += _link(_data_uri(png(given)), "PNG of the picture given", "picture.png")
    return note(text + ".") + wipe + _figures(figures), links


def _figures(sources: dict[str, str]) -> str:
    """Images with captions. sources: the address of each by its caption."""
    figures = "".join(
        f'<figure><img class="tc-still" alt="{escape(name)}" src="{source}"><figcaption>{escape(name)}</figcaption></figure>'
        for name, source in sources.items()
    )
    return f'<div class="tc-panels">{figures}</div>' if figures else ""


def file_chooser(tab: str) -> str:
    """A way to bring a picture without gradio's files."""
    return (
        f'<div class="tc-upload"><label for="{tab}-file">A picture of yours</label>'
        f'<input type="file" id="{tab}-file" accept="image/png,image/jpeg,image/gif,image/webp,image/bmp" '
        f'onchange="studio.upload(this, \'{tab}\')"><p class="tc-alert" role="alert"></p></div>'
    )


def canvas(pipe: TokenCriticPipeline, picture: Image.Image) -> str:
    """A picture under a grid of its places, to be painted with a pointer or with arrow keys and space.

    A cell has the position of its place's first token.
    """
    rows, columns = place_grid(pipe.tokenizer)
    whole = _data_uri(png(ImageOps.expand(picture, pipe.tokenizer.margin)))  # which tokens divide evenly
    first = range(0, pipe.tokenizer.num_tokens, pipe.tokenizer.splits)
    cells = "".join(f'<div role="gridcell" class="tc-cell" data-i="{i}"></div>' for i in first)
    return (
        '<p id="tc-how">Paint what is to be resampled: drag, or use the arrow keys and the space bar.</p>'
        f'<div class="tc-canvas" role="grid" aria-label="region to resample" aria-describedby="tc-how" tabindex="0" '
        f'data-rows="{rows}" data-columns="{columns}" style="--columns:{columns}; background-image:url({whole})" '
        'onpointerdown="studio.paint(event)" onpointermove="studio.paint(event)" onkeydown="studio.key(event)">'
        f'{cells}</div><p class="tc-links"><button type="button" onclick="studio.clear(this)">Clear</button> '
        '<output class="tc-count" aria-live="polite">0 tokens marked</output></p>'
    )


def _data_uri(content: bytes) -> str:
    """A PNG as an address that needs no request."""
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")


def _traced_run(pipe: TokenCriticPipeline, made: ImageSet) -> TracedRun:
    """The steps as pictures know them, with the name of what is distrusted by."""
    if made.trace is None:
        raise InputError("the steps of these images are not known: they were chosen among candidates")
    return run_of(made.settings.row(pipe.critic is not None).name, made.trace, made.settings.probabilities)


def animation(pipe: TokenCriticPipeline, made: ImageSet) -> bytes:
    """The steps of the first images as a GIF."""
    run = _traced_run(pipe, made)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "steps.gif"
        write_steps(file, run, pipe.tokenizer, pipe.names(made.labels[: run.num_images]))
        return file.read_bytes()


def step_facts(made: ImageSet, image: int) -> list[str]:
    """What each step of an image did, in words; [] if not known."""
    facts = []
    for step in made.trace.steps if made.trace is not None else []:
        if image < len(step.hidden):
            hidden, remasked = int(step.hidden[image].sum()), int(step.remasked[image].sum())
            text = f"{hidden} of {made.tokens.shape[1]} tokens hidden next, {remasked} of them re-masked"
            facts.append(f"step {step.index}: {text if hidden else 'nothing hidden any more'}")
    return facts


def steps_sheet(pipe: TokenCriticPipeline, made: ImageSet, image: int) -> Image.Image:
    """Every step of one image in one picture: a column for each step, a row each for proposal, scores and hidden tokens."""
    run = _traced_run(pipe, made)
    rows = step_panels(run.steps, [image], pipe.tokenizer, _ROOM, run.scale)[:, :, 0]
    return Image.fromarray(np.concatenate([np.concatenate(list(row), axis=1) for row in rows]))


def _panels(pipe: TokenCriticPipeline, made: ImageSet, region: Tensor | None = None) -> list[str]:
    """The addresses of the first image at a panel's size: plain, under the critic's scores, region (n,) greyed."""
    hidden = torch.zeros_like(made.tokens, dtype=torch.bool) if region is None else region[None]
    step = TraceStep(0, 0.0, made.tokens, hidden, made.scores, hidden)
    panels = step_panels([step], [0], pipe.tokenizer, _ROOM, "probability")[:, 0, 0]
    return [_data_uri(png(Image.fromarray(panel))) for panel in panels]
