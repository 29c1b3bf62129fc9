"""The page: one style, no address of any other host, and four tabs.

Generate and Compare make new images; Refine and Edit work on a picture. Every tab starts jobs in the same way: a button
hands in work, and HTML follows the job until it is finished.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.themes import Default

from tokencritic.errors import InputError
from tokencritic.sampling.settings import REFINEMENT_RATIO
from tokencritic.studio import controls, views
from tokencritic.studio.controls import QUIET, Controls, settings_controls, values_of
from tokencritic.studio.service import Busy, Job, Service
from tokencritic.studio.work import Work
from tokencritic.tokenizers.regions import place_grid

_SECONDS = 0.15
_HERE = Path(__file__).parent
CSS = (_HERE / "page.css").read_text(encoding="utf-8")
HEAD = f"<script>{(_HERE / 'page.js').read_text(encoding='utf-8')}</script>"

# Fonts that every system has: none is fetched.
THEME = Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])

# Run when everything is in its place: who drives the page by a program waits for it.
_READY = "() => { document.body.dataset.ready = 'yes' }"


def _client_of(request: Any) -> str:
    """The client whose page a request of gradio comes from; the guard has written it into the request."""
    return request.request.state.client


class Page:
    """The page on a service. Its events reach nobody but the page itself; the HTTP API is apart."""

    def __init__(self, service: Service) -> None:
        self.service, self.pipe = service, service.pipe
        tokenizer, has_critic = self.pipe.tokenizer, self.pipe.critic is not None
        with gr.Blocks(title="Token-Critic studio", analytics_enabled=False) as self.blocks:
            size, critic = tokenizer.image_size, "with a critic" if has_critic else "without a critic"
            classes = f"{self.pipe.generator.num_classes or 'no'} classes"
            text = f"{size} x {size} pixels in {tokenizer.num_tokens} tokens, {classes}"
            gr.Markdown(f"# Token-Critic studio\n{text}, {critic}.")
            with gr.Tabs() as self.tabs:
                with gr.Tab("Generate", id="generate"):
                    to_refine, to_edit = self.generate_tab()
                with gr.Tab("Compare", id="compare"):
                    self.compare_tab()
                with gr.Tab("Refine", id="refine"):
                    if has_critic:
                        self.refine_tab(to_refine)
                    else:
                        gr.Markdown("Refining here needs a critic.")
                with gr.Tab("Edit", id="edit"):
                    if tokenizer.grid is not None:
                        self.edit_tab(to_edit)
                    else:
                        gr.Markdown("The tokens of the model have no grid: no region of an image can be edited.")
            self.blocks.load(None, js=_READY)
        self.blocks.queue(max_size=256, default_concurrency_limit=None, api_open=False)

    def follower(self, find: Callable[..., Job | None]) -> Callable[..., AsyncIterator[str]]:
        """An event that yields the HTML of a job each time it changes, until it is finished. Leaving early does not end it.

        find: (client, *values of the inputs) -> the job, None for nothing to show. What is wrong with the values is shown.
        """

        async def follow(request: gr.Request, *values: Any) -> AsyncIterator[str]:
            try:
                job = find(_client_of(request), *values)
            except (InputError, Busy) as error:
                yield views.note(str(error), "alert")
                return
            last = None
            while job is not None and not job.finished.is_set():
                now = views.progress(job, self.service.ahead(job))
                if now != last:
                    yield now
                last = now
                await asyncio.sleep(_SECONDS)
            if job is not None:
                yield await asyncio.to_thread(views.finished, self.service, job)

        return follow

    def buttons(self, kind: str, name: str) -> gr.Button:
        """A button that starts a job of a kind, which is returned, and one that cancels it."""

        def cancel(request: gr.Request) -> None:
            self.service.cancel(_client_of(request), kind)

        with gr.Row():
            go = gr.Button(name, variant="primary", elem_id=f"{kind}-go", scale=3, min_width=120)
            gr.Button("Cancel", elem_id=f"{kind}-cancel", scale=1, min_width=90).click(cancel, **QUIET)
        return go

    def result(self, kind: str, button: gr.Button, make: Callable[..., Work], *groups: Controls) -> None:
        """Show, from here on, what the button submits; a page that was reloaded finds its last job again.

        make: (client, the values of each of the groups of controls) -> work.
        """

        def submit(client: str, *given: Any) -> Job:
            left = iter(given)
            return self.service.submit(client, make(client, *[values_of(group, left) for group in groups]))

        shown = gr.HTML(elem_id=f"{kind}-result")
        # The first input of the Edit tab is what is painted, which the page knows alone.
        js = "(_, ...others) => [studio.region(), ...others]" if kind == "edit" else None
        inputs = [control for group in groups for _, control in group]
        button.click(self.follower(submit), inputs, shown, js=js, **QUIET)
        self.blocks.load(self.follower(partial(self.service.latest, kind=kind)), outputs=shown, **QUIET)

    def generate_tab(self) -> tuple[gr.Button, gr.Button]:
        """Returns the buttons that hand the chosen image to the other tabs."""
        with gr.Row():
            with gr.Column(scale=1, min_width=280):
                inputs = [*self.what_controls(16), *settings_controls(self.service, self.pipe.defaults)]
                button = self.buttons("generate", "Generate")
            with gr.Column(scale=2, min_width=280):
                self.result("generate", button, lambda _, values: self.service.requests.generate(values), inputs)
                with gr.Row():
                    to_refine = gr.Button("Refine the chosen one", size="sm", visible=self.pipe.critic is not None)
                    to_edit = gr.Button("Edit the chosen one", size="sm", visible=self.pipe.tokenizer.grid is not None)
        return to_refine, to_edit

    def compare_tab(self) -> None:
        """Two columns of settings: MaskGIT as A, and as B the model's own sampler, if that is another one."""
        own = self.pipe.defaults.row(self.pipe.critic is not None).name
        with gr.Row():
            with gr.Column(min_width=280):
                groups = [self.what_controls(8)]
            for name, sampler in (("A", "confidence"), ("B", "halton" if own == "confidence" else own)):
                with gr.Column(min_width=280):
                    gr.Markdown(f"### {name}")
                    groups.append(settings_controls(self.service, self.pipe.sampling.for_sampler(sampler)))
        button, make = self.buttons("compare", "Compare"), self.service.requests.compare
        self.result("compare", button, lambda _, values, *ways: make(values, ways), *groups)

    def what_controls(self, num: int) -> Controls:
        """Controls of what is made: the classes, how many images, and the seed."""
        options: dict[str, Any] = {"multiselect": True, "value": [], "info": "They take turns; none means all of them"}
        classes, most = controls.class_control(self.service, "Classes", **options), self.service.limits.images
        count = gr.Slider(1, most, value=min(num, most), step=1, label="How many images")
        return [("classes", classes), ("num", count), ("seed", controls.seed_control())]

    def refine_tab(self, to_refine: gr.Button) -> None:
        """Outputs follow the picture (what the critic thinks of it) and the button (what came of refining it)."""

        def look(client: str, picture_id: Any, label: Any) -> Job | None:
            if not picture_id:  # a class may be chosen before there is a picture
                return None
            values = {"picture": picture_id, "class": label}
            return self.service.submit(client, self.with_picture(self.service.requests.look, client, values))

        with gr.Row():
            with gr.Column(scale=1, min_width=280):
                picture = self.picture_input("refine", to_refine)
                label = controls.class_control(self.service, "Class of the picture")
                text = "What the sampler trusts least"
                share = gr.Slider(0.1, 0.9, value=REFINEMENT_RATIO, step=0.05, label="Share resampled", info=text)
                inputs = [("picture", picture), ("class", label), ("ratio", share), ("seed", controls.seed_control())]
                defaults = self.pipe.sampling.for_refinement()
                inputs += settings_controls(self.service, defaults, refining=True, ranked=False)
                button = self.buttons("refine", "Refine")
            with gr.Column(scale=2, min_width=280):
                looked = gr.HTML(views.note("Choose a picture, or make one and press Refine the chosen one."))
                self.result("refine", button, partial(self.with_picture, self.service.requests.refine), inputs)
        for event in (picture.change, label.input):
            event(self.follower(look), [picture, label], looked, **QUIET)

    def edit_tab(self, to_edit: gr.Button) -> None:
        """The picture becomes a canvas; the button reads what was painted on it."""
        height, width = place_grid(self.pipe.tokenizer)

        def to_canvas(request: gr.Request, picture_id: Any) -> str:
            try:
                image = self.service.picture(_client_of(request), picture_id)
            except InputError as error:
                return views.note(str(error), "alert")
            return views.canvas(self.pipe, image)

        def make(client: str, values: dict[str, Any]) -> Work:
            values["region"] = str(values["region"] or "").split()
            return self.with_picture(self.service.requests.edit, client, values)

        with gr.Row():
            with gr.Column(scale=1, min_width=280):
                picture = self.picture_input("edit", to_edit)
                text = "Choose a picture, or make one and press Edit the chosen one."
                canvas = gr.HTML(views.note(text), elem_id="canvas")
                inputs: Controls = [("region", gr.Textbox(visible=False)), ("picture", picture)]
                with gr.Row():
                    for name, most in (("right", width - 1), ("down", height - 1)):
                        label = f"Move {name}, tokens"
                        inputs.append(("move", gr.Slider(-most, most, value=0, step=1, label=label, min_width=120)))
                inputs.append(("class", controls.class_control(self.service, "Class to sample")))
                inputs.append(("seed", controls.seed_control()))
                inputs += settings_controls(self.service, self.pipe.settings(), ranked=False)
                button = self.buttons("edit", "Resample")
            with gr.Column(scale=2, min_width=280):
                self.result("edit", button, make, inputs)
        picture.change(to_canvas, picture, canvas, **QUIET)

    def with_picture(self, make: Callable[..., Work], client: str, values: dict[str, Any]) -> Work:
        """Work on the client's picture whose id is among the values."""
        return make(self.service.picture(client, values.pop("picture")), values)

    def picture_input(self, kind: str, button: gr.Button) -> gr.Textbox:
        """The id of a picture: from a file, which the page has sent by then, or from the gallery of the Generate tab.

        button: the one that takes the chosen image of the gallery.
        """
        gr.HTML(views.file_chooser(kind))
        picture = gr.Textbox(visible=False)
        load = gr.Button("Load", elem_id=f"{kind}-load", visible="hidden")  # the page presses it

        def from_gallery(request: gr.Request, chosen: Any) -> tuple[Any, Any]:
            job_id, _, index = str(chosen or "").partition(" ")
            client = _client_of(request)
            try:
                image = self.service.find(client, job_id).result.sets[0].images[int(index)]
            except (InputError, IndexError, ValueError):
                gr.Warning("Make images first, and choose one.")
                return gr.skip(), gr.skip()
            return self.service.keep_picture(client, image), gr.Tabs(selected=kind)

        load.click(lambda holder: holder, picture, picture, js=f"() => [studio.picture('{kind}')]", **QUIET)
        button.click(from_gallery, picture, [picture, self.tabs], js="() => [studio.chosen('generate')]", **QUIET)
        return picture
