"""The page: one style, no address of any other host, and four tabs.

Generate and Compare make new images; Refine and Edit work on a picture. Every tab starts jobs in the same way: a button
hands in work, and HTML follows the job until it is finished.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.themes import Base, Default
from PIL import ImageOps

from tokencritic.errors import InputError
from tokencritic.studio import controls, views
from tokencritic.studio.controls import QUIET, settings_controls, settings_values
from tokencritic.studio.requests import as_integer
from tokencritic.studio.service import Busy, Job, Service
from tokencritic.studio.work import Work, png
from tokencritic.tokenizers.regions import grid_of

_SECONDS = 0.15
_HERE = Path(__file__).parent
CSS = (_HERE / "page.css").read_text(encoding="utf-8")
HEAD = f"<script>{(_HERE / 'page.js').read_text(encoding='utf-8')}</script>"

# Run when everything is in its place: who drives the page by a program waits for it.
_READY = "() => { document.body.dataset.ready = 'yes' }"


def client_of(request: Any) -> str:
    """The client whose page a request of gradio comes from; the guard has written it into the request."""
    return request.request.state.client


async def follow(service: Service, job: Job) -> AsyncIterator[str]:
    """HTML of a job, each time it changes, until it is finished. Leaving early does not end the job."""
    last = None
    while not job.finished.is_set():
        now = views.progress(job, service.ahead(job))
        if now != last:
            yield now
        last = now
        await asyncio.sleep(_SECONDS)
    yield await asyncio.to_thread(views.finished, service, job)


def starter(service: Service, make: Callable[..., Work | None]) -> Callable[..., AsyncIterator[str]]:
    """An event that hands in work and yields HTML until it is done.

    make: (client, *values of the inputs) -> work, or None for nothing to do; raises `InputError` for values that are wrong.
    """

    async def start(request: gr.Request, *values: Any) -> AsyncIterator[str]:
        client = client_of(request)
        try:
            work = make(client, *values)
            job = None if work is None else service.submit(client, work)
        except (InputError, Busy) as error:
            yield views.note(str(error), "alert")
            return
        if job is not None:
            async for html in follow(service, job):
                yield html

    return start


@dataclass(frozen=True)
class Tab:
    """What the tabs share. kind: of its jobs."""

    service: Service
    page: gr.Blocks
    kind: str

    def buttons(self, name: str) -> gr.Button:
        """A button that starts a job, which is returned, and one that cancels it."""

        def cancel(request: gr.Request) -> None:
            self.service.cancel(client_of(request), self.kind)

        with gr.Row():
            go = gr.Button(name, variant="primary", elem_id=f"{self.kind}-go", scale=3, min_width=120)
            gr.Button("Cancel", elem_id=f"{self.kind}-cancel", scale=1, min_width=90).click(cancel, **QUIET)
        return go

    def connect(
        self, button: gr.Button, inputs: list[Any], make: Callable[..., Work], first: str = "", js: str | None = None
    ) -> None:
        """Show, from here on, what the button starts; a page that was reloaded finds its last job again.

        make: see `starter`. first: what is shown before there is a job.
        """
        shown = gr.HTML(first or None, elem_id=f"{self.kind}-result")

        async def resume(request: gr.Request) -> AsyncIterator[str]:
            job = self.service.latest(client_of(request), self.kind)
            if job is not None and (job.state == "done" or not job.finished.is_set()):
                async for html in follow(self.service, job):
                    yield html

        button.click(starter(self.service, make), inputs, shown, js=js, **QUIET)
        self.page.load(resume, outputs=shown, **QUIET)


def generate_tab(service: Service, page: gr.Blocks) -> tuple[gr.Button, gr.Button]:
    """Returns the buttons that hand the chosen image to the other tabs."""
    tab = Tab(service, page, "generate")

    def make(_: str, *values: Any) -> Work:
        return service.requests.generate(_what_values(service, *values[:3]) | settings_values(values[3:]))

    with gr.Row():
        with gr.Column(scale=1, min_width=280):
            inputs = [*_what_controls(service, 16), *settings_controls(service, service.pipe.defaults)]
            button = tab.buttons("Generate")
        with gr.Column(scale=2, min_width=280):
            tab.connect(button, inputs, make, views.note("Press Generate."))
            with gr.Row():
                to_refine = gr.Button("Refine the chosen one", size="sm", visible=service.pipe.critic is not None)
                to_edit = gr.Button("Edit the chosen one", size="sm")
    return to_refine, to_edit


def compare_tab(service: Service, page: gr.Blocks) -> None:
    """Two columns of settings: MaskGIT as A, and as B the critic, where there is one."""
    tab = Tab(service, page, "compare")

    def make(_: str, *values: Any) -> Work:
        half = 3 + (len(values) - 3) // 2
        variants = [settings_values(values[3:half]), settings_values(values[half:])]
        return service.requests.compare(_what_values(service, *values[:3]), variants)

    with gr.Row():
        with gr.Column(min_width=280):
            inputs = [*_what_controls(service, 8)]
        samplers = {"A": "confidence", "B": "halton" if service.pipe.critic is None else "critic"}
        for name, sampler in samplers.items():
            with gr.Column(min_width=280):
                gr.Markdown(f"### {name}")
                inputs += settings_controls(service, service.pipe.sampling.for_sampler(sampler))
    tab.connect(tab.buttons("Compare"), inputs, make, views.note("The same seeds, made in two ways."))


def _what_controls(service: Service, num: int) -> list[Any]:
    classes = gr.Dropdown(
        controls.class_names(service), multiselect=True, label="Classes", info="They take turns; none means all of them"
    )
    most = service.limits.images
    return [classes, gr.Slider(1, most, value=min(num, most), step=1, label="How many images"), controls.seed_control()]


def _what_values(service: Service, classes: Any, num: Any, seed: Any) -> dict[str, Any]:
    return {"classes": controls.class_labels(service, classes or []), "num": num, "seed": seed}


def refine_tab(service: Service, page: gr.Blocks, to_refine: gr.Button, tabs: gr.Tabs) -> None:
    """Outputs follow the picture (what the critic thinks of it) and the button (what came of refining it)."""
    tab = Tab(service, page, "refine")

    def look(client: str, picture_id: Any, name: Any) -> Work | None:
        if not picture_id:  # a class may be chosen before there is a picture
            return None
        return service.requests.look(service.picture(client, str(picture_id)), _class(service, name))

    def make(client: str, picture_id: Any, name: Any, share: Any, seed: Any, *values: Any) -> Work:
        ratio = as_integer("share resampled", share, 10, 90) / 100
        wanted = {"ratio": ratio, "seed": seed} | _class(service, name) | settings_values(values)
        return service.requests.refine(service.picture(client, str(picture_id)), wanted)

    with gr.Row():
        with gr.Column(scale=1, min_width=280):
            picture = _picture_input(service, "refine", to_refine, tabs)
            label = controls.one_class(service, "Class of the picture")
            share = gr.Slider(
                10, 90, value=60, step=5, label="Share resampled, %", info="What the sampler trusts least"
            )
            inputs = [picture, label, share, controls.seed_control()]
            inputs += settings_controls(service, service.pipe.sampling.for_refinement(), refining=True, ranked=False)
            button = tab.buttons("Refine")
        with gr.Column(scale=2, min_width=280):
            looked = gr.HTML(views.note("Choose a picture, or make one and press Refine the chosen one."))
            tab.connect(button, inputs, make)
    for event in (picture.change, label.input):
        event(starter(service, look), [picture, label], looked, **QUIET)


def edit_tab(service: Service, page: gr.Blocks, to_edit: gr.Button, tabs: gr.Tabs) -> None:
    """The picture becomes a canvas; the button reads what was painted on it."""
    tab, tokenizer = Tab(service, page, "edit"), service.pipe.tokenizer
    height, width = grid_of(tokenizer)

    def to_canvas(request: gr.Request, picture_id: Any) -> str:
        try:
            image = service.picture(client_of(request), str(picture_id))
        except InputError as error:
            return views.note(str(error), "alert")
        # With the tokenizer's margin around it, so that tokens divide it evenly.
        return views.canvas(service.pipe, png(ImageOps.expand(image, tokenizer.margin)))

    def make(
        client: str, marked: Any, picture_id: Any, right: Any, down: Any, name: Any, seed: Any, *values: Any
    ) -> Work:
        wanted = {"region": str(marked or "").split(), "move": [right, down], "seed": seed}
        wanted |= _class(service, name) | settings_values(values)
        return service.requests.edit(service.picture(client, str(picture_id)), wanted)

    with gr.Row():
        with gr.Column(scale=1, min_width=280):
            picture = _picture_input(service, "edit", to_edit, tabs)
            text = "Choose a picture, or make one and press Edit the chosen one."
            canvas = gr.HTML(views.note(text), elem_id="canvas")
            inputs: list[Any] = [gr.Textbox(visible=False), picture]
            with gr.Row():
                for name, most in (("right", width - 1), ("down", height - 1)):
                    label = f"Move {name}, tokens"
                    inputs.append(gr.Slider(-most, most, value=0, step=1, label=label, min_width=120))
            inputs += [controls.one_class(service, "Class to sample"), controls.seed_control()]
            inputs += settings_controls(service, service.pipe.settings(candidates=1), ranked=False)
            button = tab.buttons("Resample")
        with gr.Column(scale=2, min_width=280):
            tab.connect(button, inputs, make, js="(_, ...others) => [studio.region(), ...others]")
    picture.change(to_canvas, picture, canvas, **QUIET)


def _picture_input(service: Service, kind: str, button: gr.Button, tabs: gr.Tabs) -> gr.Textbox:
    """The id of a picture: from a file, which the page has sent by then, or from the gallery of the Generate tab.

    button: the one that takes the chosen image of the gallery.
    """
    gr.HTML(views.file_chooser(kind))
    picture = gr.Textbox(visible=False)
    load = gr.Button("Load", elem_id=f"{kind}-load", visible="hidden")  # the page presses it

    def from_gallery(request: gr.Request, chosen: Any) -> tuple[Any, Any]:
        job_id, _, index = str(chosen or "").partition(" ")
        client = client_of(request)
        try:
            sets = service.find(client, job_id).result.sets
            if not sets or not index.isdecimal() or int(index) >= len(sets[0].images):
                raise InputError("that image is not there")
            kept = service.keep_picture(client, sets[0].images[int(index)])
        except InputError:
            gr.Warning("Make images first, and choose one.")
            return gr.skip(), gr.skip()
        return kept, gr.Tabs(selected=kind)

    load.click(lambda holder: holder, picture, picture, js=f"() => [studio.picture('{kind}')]", **QUIET)
    button.click(from_gallery, picture, [picture, tabs], js="() => [studio.chosen('generate')]", **QUIET)
    return picture


def _class(service: Service, name: Any) -> dict[str, Any]:
    """What a dropdown holds, as `Requests` takes it."""
    return {"class": controls.class_labels(service, [name])[0]} if name else {}


def theme() -> Base:
    """Of fonts that every system has: none is fetched. Small print is as dark as it must be to be read by all."""
    fonts = Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    return fonts.set(
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
    )


def build_page(service: Service) -> gr.Blocks:
    """The page on a service. Its events reach nobody but the page itself; the HTTP API is apart."""
    no_grid = service.pipe.tokenizer.grid is None
    with gr.Blocks(title="Token-Critic studio", analytics_enabled=False) as page:
        gr.Markdown(f"# Token-Critic studio\n{_describe(service)}")
        with gr.Tabs() as tabs:
            with gr.Tab("Generate", id="generate"):
                to_refine, to_edit = generate_tab(service, page)
            with gr.Tab("Compare", id="compare"):
                compare_tab(service, page)
            with gr.Tab("Refine", id="refine"):
                if service.pipe.critic is None or no_grid:
                    gr.Markdown("Refining here needs a critic, and tokens on a grid.")
                else:
                    refine_tab(service, page, to_refine, tabs)
            with gr.Tab("Edit", id="edit"):
                if no_grid:
                    gr.Markdown("The tokens of the model have no grid: no region of an image can be edited.")
                else:
                    edit_tab(service, page, to_edit, tabs)
        page.load(None, js=_READY)
    page.queue(max_size=256, default_concurrency_limit=None, api_open=False)
    return page


def _describe(service: Service) -> str:
    tokenizer = service.pipe.tokenizer
    critic = "with a critic" if service.pipe.critic is not None else "without a critic"
    size = tokenizer.image_size
    return f"{size} x {size} pixels in {tokenizer.num_tokens} tokens, {service.pipe.generator.num_classes} classes, {critic}."
