"""The HTML of results: small, read aloud in a sensible order, and of use at any width. `page.js` makes it move."""

import json
from collections.abc import Sequence
from html import escape

from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.studio.runs import Run
from tokencritic.studio.views import (
    data_uri,
    names_of,
    plain_panel,
    png,
    region_panel,
    score_panel,
    step_facts,
    steps_run,
)
from tokencritic.studio.work import Part, Result


def note(text: str, kind: str = "status") -> str:
    """One line. kind: "status" for news, "alert" for what went wrong."""
    return f'<p class="tc-note tc-{kind}" role="{kind}">{escape(text)}</p>'


def progress(run: Run, ahead: int) -> str:
    """Where an unfinished run stands, with its images as they form."""
    if run.state == "waiting":
        others = "one run is" if ahead == 1 else f"{ahead} runs are"
        return note("Waiting for the worker." if ahead == 0 else f"Waiting: {others} before this one.")
    text = "Starting." if run.done == 0 else f"Step {run.done} of {run.total}."
    bar = f'<progress class="tc-bar" max="{run.total}" value="{run.done}" aria-label="steps done"></progress>'
    forming = ""
    if run.preview is not None:
        forming = f'<img class="tc-forming" alt="the images as they form" src="{data_uri(run.preview)}">'
    return note(text) + bar + forming


def facts(part: Part) -> str:
    """What to say of images that are done."""
    count = len(part.images)
    text = f"{count} image{'s' if count > 1 else ''} in {part.seconds:.1f} s, {part.passes} network passes each"
    if part.mean_score is not None:
        text += f", the critic's mean score {part.mean_score:.3f}"
    return text + "."


def result(pipe: TokenCriticPipeline, run: Run, number: int, seed: int, command: str) -> str:
    """A gallery with its downloads, the steps of the chosen image, and the command."""
    assert run.result is not None
    part, base = run.result.parts[number], f"studio/runs/{run.id}/{number}"
    links = [f'<a href="{base}/images.png" download="images.png">PNG of all</a>']
    if part.trace is not None:
        links.append(f'<a href="{base}/steps.gif" download="steps.gif">GIF of the steps</a>')
    links.append(f'<a class="tc-one" href="{base}/image_0.png" download>PNG of the chosen one</a>')
    return (
        f'<div class="tc-result" data-base="{base}" data-run="{run.id}" data-chosen="0">'
        + note(facts(part))
        + gallery(pipe, part, base, seed)
        + f'<p class="tc-links">Download: {" ".join(links)}</p>'
        + steps(pipe, part, base)
        + command_line(command)
        + "</div>"
    )


def gallery(pipe: TokenCriticPipeline, part: Part, base: str, seed: int) -> str:
    """A button for each image."""
    buttons = []
    for index, name in enumerate(names_of(pipe, part.labels)):
        label = escape(f"{name}, seed {seed + index}")
        buttons.append(
            f'<button type="button" class="tc-thumb" data-index="{index}" aria-pressed="{str(index == 0).lower()}" '
            f'title="{label}" onclick="studio.choose(this)"><img alt="{label}" src="{base}/image_{index}.png">'
            f"<span>{escape(name)}</span></button>"
        )
    return f'<div class="tc-gallery" role="group" aria-label="images">{"".join(buttons)}</div>'


def steps(pipe: TokenCriticPipeline, part: Part, base: str) -> str:
    """The steps of the chosen image under one slider."""
    known = [[[s.number, s.hidden, s.taken_back] for s in step_facts(part, i)] for i in range(len(part.images))]
    if not known or not known[0]:
        return note("The steps of images chosen among candidates are not shown.")
    count, tokens = len(known[0]), part.tokens.shape[1]
    at = (count - 1) // 2  # half done: there is most to see
    panels = "".join(
        f'<figure><div class="tc-panel" role="img" aria-label="{escape(name)}" data-row="{row}" style="--row:{row}; '
        f'background-image:url({base}/steps_0.png)"></div><figcaption>{escape(name)}</figcaption></figure>'
        for row, name in enumerate(steps_run(pipe, part).rows)
    )
    told = escape(json.dumps(known, separators=(",", ":")))
    return (
        f'<section class="tc-viewer" aria-label="steps" data-tokens="{tokens}" data-facts="{told}" '
        f'style="--steps:{count}; --at:{at}"><div class="tc-panels">{panels}</div>'
        f'<div class="tc-slide"><label>Step <input type="range" min="0" max="{count - 1}" value="{at}" '
        'oninput="studio.step(this)"></label><button type="button" onclick="studio.play(this)">Play</button></div>'
        f'<output class="tc-facts">{_told(known[0][at], tokens)}</output>{_LEGEND}</section>'
    )


def _told(fact: Sequence[int], tokens: int) -> str:
    """As `page.js` says it of the other steps."""
    number, hidden, taken_back = fact
    if hidden == 0:
        return f"step {number}: nothing hidden any more"
    return f"step {number}: {hidden} of {tokens} tokens hidden next, {taken_back} of them taken back"


_LEGEND = (
    '<p class="tc-legend"><span class="tc-scale">distrusted <i></i> trusted</span> '
    '<span><i class="tc-hidden"></i> hidden</span> <span><i class="tc-taken"></i> taken back</span></p>'
)


def command_line(command: str) -> str:
    """A command with a button that copies it."""
    return (
        '<details class="tc-command" open><summary>The command that makes the same</summary><div>'
        f'<code tabindex="0">{escape(command)}</code><button type="button" onclick="studio.copy(this)">Copy</button>'
        "</div></details>"
    )


def comparison(pipe: TokenCriticPipeline, run: Run, seed: int, commands: Sequence[str]) -> str:
    """Two results side by side, below each other on a phone."""
    assert run.result is not None
    columns = []
    for number, (name, command) in enumerate(zip(("A", "B"), commands, strict=True)):
        settings = run.result.parts[number].settings
        heading = f"<h3>{name}: {escape(str(settings.sampler))}, {settings.steps} steps</h3>"
        columns.append(f"<div>{heading}{result(pipe, run, number, seed, command)}</div>")
    return f'<div class="tc-columns">{"".join(columns)}</div>'


def looked_at(pipe: TokenCriticPipeline, before: Part) -> str:
    """A picture as the model sees it, and what the critic thinks of it."""
    panels = [("as the tokenizer gives it back", data_uri(png(plain_panel(pipe, before))))]
    text = f"Taken as {names_of(pipe, before.labels)[0]}."
    if before.scores is not None:
        panels.append(("critic's score", data_uri(png(score_panel(pipe, before)))))
        text += f" The critic's mean score is {before.mean_score:.3f}."
    return note(text) + _figures(panels) + (_LEGEND if before.scores is not None else "")


def refined(pipe: TokenCriticPipeline, run: Run, command: str) -> str:
    """Before and after under one slider, their scores, and the steps between."""
    return _worked_on(pipe, run, [], command_line(command))


def edited(pipe: TokenCriticPipeline, run: Run) -> str:
    """As for a refinement, with the region that was drawn anew."""
    assert run.result is not None
    assert run.result.before is not None
    assert run.result.region is not None
    panel = region_panel(pipe, run.result.before, run.result.region.numpy())
    return _worked_on(pipe, run, [("drawn anew", data_uri(png(panel)))], "")


def _worked_on(pipe: TokenCriticPipeline, run: Run, figures: list[tuple[str, str]], last: str) -> str:
    assert run.result is not None
    done, base = run.result, f"studio/runs/{run.id}/0"
    assert done.before is not None
    return (
        f'<div class="tc-result" data-base="{base}" data-run="{run.id}" data-chosen="0">'
        + note(_change(pipe, done))
        + _wipe(pipe, done.before, done.parts[0])
        + _figures([*figures, *_scores(pipe, done)])
        + f'<p class="tc-links">Download: <a href="{base}/image_0.png" download="result.png">PNG of the result</a> '
        + f'<a href="{base}/given.png" download="picture.png">PNG of the picture given</a></p>'
        + steps(pipe, done.parts[0], base)
        + last
        + "</div>"
    )


def _change(pipe: TokenCriticPipeline, done: Result) -> str:
    assert done.before is not None
    before, after = done.before, done.parts[0]
    changed = int((before.tokens != after.tokens).sum())
    text = f"{changed} of {before.tokens.numel()} tokens changed, as {names_of(pipe, after.labels)[0]}, "
    text += f"in {after.seconds:.1f} s"
    if before.mean_score is not None and after.mean_score is not None:
        text += f". The critic's mean score went from {before.mean_score:.3f} to {after.mean_score:.3f}"
    return text + "."


def _wipe(pipe: TokenCriticPipeline, before: Part, after: Part) -> str:
    first, second = (data_uri(png(plain_panel(pipe, part))) for part in (before, after))
    return (
        '<div class="tc-wipe" style="--at:50%"><div><img alt="before" src="' + first + '">'
        '<img class="tc-after" alt="after" src="' + second + '"></div><label>before '
        '<input type="range" min="0" max="100" value="50" aria-label="how much of the picture before is shown" '
        'oninput="studio.wipe(this)"> after</label></div>'
    )


def _scores(pipe: TokenCriticPipeline, done: Result) -> list[tuple[str, str]]:
    assert done.before is not None
    if done.before.scores is None:
        return []
    pairs = ("score before", done.before), ("score after", done.parts[0])
    return [(name, data_uri(png(score_panel(pipe, part)))) for name, part in pairs]


def _figures(panels: Sequence[tuple[str, str]]) -> str:
    figures = "".join(
        f'<figure><img class="tc-still" alt="{escape(name)}" src="{source}"><figcaption>{escape(name)}</figcaption></figure>'
        for name, source in panels
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
    rows, columns = pipe.tokenizer.grid
    cells = "".join(f'<div role="gridcell" class="tc-cell" data-i="{i}"></div>' for i in range(rows * columns))
    return (
        '<p id="tc-how">Paint what is to be drawn anew: drag, or use the arrow keys and the space bar.</p>'
        f'<div class="tc-canvas" role="grid" aria-label="region to draw anew" aria-describedby="tc-how" tabindex="0" '
        f'data-rows="{rows}" data-columns="{columns}" style="--columns:{columns}; background-image:url({data_uri(picture)})" '
        'onpointerdown="studio.paint(event)" onpointermove="studio.paint(event)" onkeydown="studio.key(event)">'
        f'{cells}</div><p class="tc-links"><button type="button" onclick="studio.mark(this, \'none\')">Clear</button> '
        '<button type="button" onclick="studio.mark(this, \'all\')">All</button> '
        '<button type="button" onclick="studio.mark(this, \'invert\')">Invert</button> '
        '<output class="tc-count" aria-live="polite">0 tokens marked</output></p>'
    )
