"""The tabs that work on a picture: Refine and Edit."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import gradio as gr
from PIL import Image, ImageOps

from tokencritic.errors import InputError
from tokencritic.studio import markup
from tokencritic.studio.commands import refine_command
from tokencritic.studio.controls import (
    QUIET,
    buttons,
    class_labels,
    one_class,
    seed_control,
    settings_controls,
    settings_values,
)
from tokencritic.studio.following import client_of, resume, start
from tokencritic.studio.requests import as_integer
from tokencritic.studio.runs import Run
from tokencritic.studio.service import Picture, Service
from tokencritic.studio.views import png
from tokencritic.studio.work import Refine


@dataclass(frozen=True)
class PictureInput:
    """Where a tab gets its picture from. holder: its id. load: a button that no one sees; the page presses it."""

    holder: gr.Textbox
    load: gr.Button


def picture_input(tab: str) -> PictureInput:
    gr.HTML(markup.file_chooser(tab))
    return PictureInput(gr.Textbox(visible=False), gr.Button("Load", elem_id=f"{tab}-load", visible="hidden"))


def refine_tab(service: Service, page: gr.Blocks, to_refine: gr.Button, tabs: gr.Tabs) -> None:
    """Outputs follow the picture (what the critic thinks of it) and the button (what came of refining it)."""
    with gr.Row():
        with gr.Column(scale=1, min_width=280):
            given, controls, button = _refine_controls(service)
        with gr.Column(scale=2, min_width=280):
            looked = gr.HTML(markup.note("Choose a picture, or make one and press Refine the chosen one."))
            shown = gr.HTML(elem_id="refine-result")

    async def look(request: gr.Request, picture_id: Any, name: Any) -> AsyncIterator[str]:
        if not picture_id:  # a class may be chosen before there is a picture
            return
        client = client_of(request)

        def make() -> Any:
            return service.requests.look(service.picture(client, str(picture_id)).image, _class(service, name))

        async for html in start(service, client, make, lambda run: looked_at(service, run)):
            yield html

    async def refine(request: gr.Request, picture_id: Any, name: Any, share: Any, number: Any, *values: Any) -> Any:
        client = client_of(request)

        def make() -> Any:
            ratio = as_integer("share drawn again", share, 10, 90) / 100
            wanted = {"ratio": ratio, "seed": number} | _class(service, name) | settings_values(values)
            return service.requests.refine(service.picture(client, str(picture_id)).image, wanted)

        async for html in start(service, client, make, lambda run: refined(service, run)):
            yield html

    async def again(request: gr.Request) -> AsyncIterator[str]:
        async for html in resume(service, client_of(request), "refine", lambda run: refined(service, run)):
            yield html

    _take(service, given, "refine", to_refine, tabs)
    label = controls[0]
    given.holder.change(look, [given.holder, label], looked, **QUIET)
    label.input(look, [given.holder, label], looked, **QUIET)
    button.click(refine, [given.holder, *controls], shown, **QUIET)
    page.load(again, outputs=shown, **QUIET)


def _refine_controls(service: Service) -> tuple[PictureInput, list[Any], gr.Button]:
    """Where the picture comes from; its class, the share, the seed and the settings; the button."""
    given = picture_input("refine")
    label = one_class(service, "Class of the picture")
    share = gr.Slider(10, 90, value=60, step=5, label="Share drawn again, %", info="What the sampler trusts least")
    seed = seed_control()
    settings = settings_controls(service, service.pipe.refinement_settings(), refining=True, ranked=False)
    return given, [label, share, seed, *settings], buttons(service, "Refine", "refine")


def edit_tab(service: Service, page: gr.Blocks, to_edit: gr.Button, tabs: gr.Tabs) -> None:
    """The picture becomes a canvas; the button reads what was painted on it."""
    pipe = service.pipe
    with gr.Row():
        with gr.Column(scale=1, min_width=280):
            given, canvas, controls, button = _edit_controls(service)
        with gr.Column(scale=2, min_width=280):
            shown = gr.HTML(elem_id="edit-result")

    def to_canvas(request: gr.Request, picture_id: Any) -> str:
        try:
            picture = service.picture(client_of(request), str(picture_id))
        except InputError as error:
            return markup.note(str(error), "alert")
        return markup.canvas(pipe, png(_whole(service, picture)))

    async def draw(
        request: gr.Request, marked: Any, picture_id: Any, x: Any, y: Any, name: Any, number: Any, *values: Any
    ) -> AsyncIterator[str]:
        client = client_of(request)

        def make() -> Any:
            wanted = {"region": str(marked or "").split(), "move": [x, y], "seed": number}
            wanted |= _class(service, name) | settings_values(values)
            return service.requests.edit(service.picture(client, str(picture_id)).image, wanted)

        async for html in start(service, client, make, lambda run: markup.edited(pipe, run)):
            yield html

    async def again(request: gr.Request) -> AsyncIterator[str]:
        async for html in resume(service, client_of(request), "edit", lambda run: markup.edited(pipe, run)):
            yield html

    _take(service, given, "edit", to_edit, tabs)
    given.holder.change(to_canvas, given.holder, canvas, **QUIET)
    inputs = [gr.Textbox(visible=False), given.holder, *controls]
    button.click(draw, inputs, shown, js="(_, ...others) => [studio.region(), ...others]", **QUIET)
    page.load(again, outputs=shown, **QUIET)


def _edit_controls(service: Service) -> tuple[PictureInput, gr.HTML, list[Any], gr.Button]:
    """Where the picture comes from; the canvas; how far to move it, the class, the seed and the settings; the button."""
    height, width = service.pipe.tokenizer.grid
    given = picture_input("edit")
    canvas = gr.HTML(markup.note("Choose a picture, or make one and press Edit the chosen one."), elem_id="canvas")
    with gr.Row():
        right = gr.Slider(1 - width, width - 1, value=0, step=1, label="Move right, tokens", min_width=120)
        down = gr.Slider(1 - height, height - 1, value=0, step=1, label="Move down, tokens", min_width=120)
    label, seed = one_class(service, "Class to draw"), seed_control()
    settings = settings_controls(service, service.pipe.settings(candidates=1), ranked=False)
    return given, canvas, [right, down, label, seed, *settings], buttons(service, "Draw anew", "edit")


def looked_at(service: Service, run: Run) -> str:
    """A picture that the critic has looked at."""
    assert run.result is not None
    assert run.result.before is not None
    return markup.looked_at(service.pipe, run.result.before)


def refined(service: Service, run: Run) -> str:
    """A finished run of the Refine tab."""
    work, result = run.work, run.result
    assert isinstance(work, Refine)
    assert result is not None
    command = refine_command(service.model, work, result.parts[0].labels[0], "picture.png", service.pipe.class_names)
    return markup.refined(service.pipe, run, command)


def _take(service: Service, given: PictureInput, tab: str, button: gr.Button, tabs: gr.Tabs) -> None:
    """Pictures come from a file, which the page has sent by now, or from the gallery of the Generate tab."""

    def from_gallery(request: gr.Request, chosen: Any) -> tuple[Any, Any]:
        run_id, _, index = str(chosen or "").partition(" ")
        client = client_of(request)
        try:
            result = service.find(client, run_id).result
            images = () if result is None else result.parts[0].images
            if not index.isdecimal() or int(index) >= len(images):
                raise InputError("that image is not there")
            picture = service.keep_picture(client, images[int(index)], "picture.png")
        except InputError:
            gr.Warning("Make images first, and choose one.")
            return gr.skip(), gr.skip()
        return picture.id, gr.Tabs(selected=tab)

    given.load.click(lambda holder: holder, given.holder, given.holder, js=f"() => [studio.picture('{tab}')]", **QUIET)
    chosen = gr.Textbox(visible=False)
    button.click(from_gallery, chosen, [given.holder, tabs], js="() => [studio.chosen('generate')]", **QUIET)


def _whole(service: Service, picture: Picture) -> Image.Image:
    """The picture with the tokenizer's margin around it, so that tokens divide it evenly."""
    return ImageOps.expand(picture.image, getattr(service.pipe.tokenizer, "margin", 0))


def _class(service: Service, name: Any) -> dict[str, Any]:
    """What a dropdown holds, as `Requests` takes it."""
    return {"class": class_labels(service, [name])[0]} if name else {}
