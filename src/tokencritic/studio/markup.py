"""The HTML of results: small, read aloud in a sensible order, and of use at any width. `page.js` makes it move."""

import json
from html import escape

from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.studio.service import Job, Service
from tokencritic.studio.views import data_uri, panel, step_facts, traced_run
from tokencritic.studio.work import ImageSet
from tokencritic.tokenizers.regions import grid_of

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
    forming = ""
    if job.preview is not None:
        forming = f'<img class="tc-forming" alt="the images as they form" src="{data_uri(job.preview)}">'
    return note(text) + bar + forming


def finished(service: Service, job: Job) -> str:
    """What came of a finished job, in the form that its tab shows."""
    if job.state != "done":
        return note(job.message[:1].upper() + job.message[1:], "status" if job.state == "cancelled" else "alert")
    show = {"generate": _images, "compare": _comparison, "look": _look, "refine": _change, "edit": _change}
    return show[job.kind](service, job)


def _images(service: Service, job: Job, number: int = 0) -> str:
    """A gallery with its downloads, the steps of the chosen image, and the command."""
    made, base = job.result.sets[number], f"studio/runs/{job.id}/{number}"
    count = len(made.images)
    facts = f"{count} image{'s' if count > 1 else ''} in {made.seconds:.1f} s, {made.nfe} NFE"
    if made.mean_score is not None:
        facts += f", the critic's mean score {made.mean_score:.3f}"
    links = [f'<a href="{base}/images.png" download="images.png">PNG of all</a>']
    if made.trace is not None:
        links.append(f'<a href="{base}/steps.gif" download="steps.gif">GIF of the steps</a>')
    links.append(f'<a class="tc-one" href="{base}/image_0.png" download>PNG of the chosen one</a>')
    shown = _gallery(service.pipe, made, base, job.work.seed) + f'<p class="tc-links">Download: {" ".join(links)}</p>'
    return _result(service, job, number, note(facts + ".") + shown)


def _result(service: Service, job: Job, number: int, shown: str) -> str:
    """What is shown of an image set, with its steps and its command."""
    made, base, command = job.result.sets[number], f"studio/runs/{job.id}/{number}", service.command(job, number)
    if command:
        command = (
            '<details class="tc-command" open><summary>The command that makes the same</summary><div><code tabindex="0">'
            f'{escape(command)}</code><button type="button" onclick="studio.copy(this)">Copy</button></div></details>'
        )
    opening = f'<div class="tc-result" data-base="{base}" data-run="{job.id}" data-chosen="0">'
    return opening + shown + _steps(service.pipe, made, base) + command + "</div>"


def _gallery(pipe: TokenCriticPipeline, made: ImageSet, base: str, seed: int) -> str:
    """A button for each image."""
    buttons = []
    for index, name in enumerate(pipe.names(made.labels)):
        label = escape(f"{name}, seed {seed + index}")
        buttons.append(
            f'<button type="button" class="tc-thumb" data-index="{index}" aria-pressed="{str(index == 0).lower()}" '
            f'title="{label}" onclick="studio.choose(this)"><img alt="{label}" src="{base}/image_{index}.png">'
            f"<span>{escape(name)}</span></button>"
        )
    return f'<div class="tc-gallery" role="group" aria-label="images">{"".join(buttons)}</div>'


def _steps(pipe: TokenCriticPipeline, made: ImageSet, base: str) -> str:
    """The steps of the chosen image under one slider."""
    known = [step_facts(made, image) for image in range(len(made.images))]
    if not known or not known[0]:
        return note("Steps are shown of images on a grid of tokens that were not chosen among candidates.")
    count, tokens = len(known[0]), made.tokens.shape[1]
    at = (count - 1) // 2  # half done: there is most to see
    panels = "".join(
        f'<figure><div class="tc-panel" role="img" aria-label="{escape(name)}" data-row="{row}" style="--row:{row}; '
        f'background-image:url({base}/steps_0.png)"></div><figcaption>{escape(name)}</figcaption></figure>'
        for row, name in enumerate(traced_run(pipe, made).rows)
    )
    number, hidden, remasked = known[0][at]
    told = f"step {number}: nothing hidden any more"  # as `page.js` says it of the other steps
    if hidden:
        told = f"step {number}: {hidden} of {tokens} tokens hidden next, {remasked} of them re-masked"
    facts = escape(json.dumps(known, separators=(",", ":")))
    return (
        f'<section class="tc-viewer" aria-label="steps" data-tokens="{tokens}" data-facts="{facts}" '
        f'style="--steps:{count}; --at:{at}"><div class="tc-panels">{panels}</div>'
        f'<div class="tc-slide"><label>Step <input type="range" min="0" max="{count - 1}" value="{at}" '
        'oninput="studio.step(this)"></label><button type="button" onclick="studio.play(this)">Play</button></div>'
        f'<output class="tc-facts">{told}</output>{_LEGEND}</section>'
    )


def _comparison(service: Service, job: Job) -> str:
    """Two results side by side, below each other on a phone."""
    columns = []
    for number, name in enumerate(("A", "B")):
        settings = job.result.sets[number].settings
        heading = f"<h3>{name}: {escape(str(settings.sampler))}, {settings.steps} steps</h3>"
        columns.append(f"<div>{heading}{_images(service, job, number)}</div>")
    return f'<div class="tc-columns">{"".join(columns)}</div>'


def _look(service: Service, job: Job) -> str:
    """A picture as the model sees it, and what the critic thinks of it."""
    pipe, before = service.pipe, job.result.before
    assert before is not None
    figures = {
        "as the tokenizer gives it back": panel(pipe, before),
        "critic's score": panel(pipe, before, scored=True),
    }
    text = f"Taken as {pipe.names(before.labels)[0]}. The critic's mean score is {before.mean_score:.3f}."
    return note(text) + _figures(figures) + _LEGEND


def _change(service: Service, job: Job) -> str:
    """A picture before and after under one slider, the region resampled, their scores, and the steps between."""
    pipe, base, before, after = service.pipe, f"studio/runs/{job.id}/0", job.result.before, job.result.sets[0]
    assert before is not None
    changed = int((before.tokens != after.tokens).sum())
    text = f"{changed} of {before.tokens.numel()} tokens changed, as {pipe.names(after.labels)[0]}, "
    text += f"in {after.seconds:.1f} s"
    figures = {}
    if job.result.region is not None:
        figures["resampled"] = panel(pipe, before, region=job.result.region)
    if before.scores is not None:
        text += f". The critic's mean score went from {before.mean_score:.3f} to {after.mean_score:.3f}"
        figures["score before"], figures["score after"] = (panel(pipe, made, scored=True) for made in (before, after))
    wipe = (
        f'<div class="tc-wipe" style="--at:50%"><div><img alt="before" src="{panel(pipe, before)}">'
        f'<img class="tc-after" alt="after" src="{panel(pipe, after)}"></div><label>before '
        '<input type="range" min="0" max="100" value="50" aria-label="how much of the picture before is shown" '
        'oninput="studio.wipe(this)"> after</label></div>'
    )
    links = (
        f'<p class="tc-links">Download: <a href="{base}/image_0.png" download="result.png">PNG of the result</a> '
        f'<a href="{base}/given.png" download="picture.png">PNG of the picture given</a></p>'
    )
    return _result(service, job, 0, note(text + ".") + wipe + _figures(figures) + links)


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


def canvas(pipe: TokenCriticPipeline, picture: bytes) -> str:
    """A picture under a grid of its tokens, to be painted with a pointer or with arrow keys and space."""
    rows, columns = grid_of(pipe.tokenizer)
    cells = "".join(f'<div role="gridcell" class="tc-cell" data-i="{i}"></div>' for i in range(rows * columns))
    return (
        '<p id="tc-how">Paint what is to be resampled: drag, or use the arrow keys and the space bar.</p>'
        f'<div class="tc-canvas" role="grid" aria-label="region to resample" aria-describedby="tc-how" tabindex="0" '
        f'data-rows="{rows}" data-columns="{columns}" style="--columns:{columns}; background-image:url({data_uri(picture)})" '
        'onpointerdown="studio.paint(event)" onpointermove="studio.paint(event)" onkeydown="studio.key(event)">'
        f'{cells}</div><p class="tc-links"><button type="button" onclick="studio.mark(this, \'none\')">Clear</button> '
        '<button type="button" onclick="studio.mark(this, \'all\')">All</button> '
        '<button type="button" onclick="studio.mark(this, \'invert\')">Invert</button> '
        '<output class="tc-count" aria-live="polite">0 tokens marked</output></p>'
    )
