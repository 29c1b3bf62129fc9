"""The tabs that make new images: Generate, and Compare, which makes them twice."""

from collections.abc import AsyncIterator
from typing import Any

import gradio as gr

from tokencritic.studio import markup
from tokencritic.studio.commands import sample_command
from tokencritic.studio.controls import (
    QUIET,
    buttons,
    class_labels,
    class_names,
    seed_control,
    settings_controls,
    settings_values,
)
from tokencritic.studio.following import client_of, resume, start
from tokencritic.studio.runs import Run
from tokencritic.studio.service import Service
from tokencritic.studio.work import Generate


def generate_tab(service: Service, page: gr.Blocks) -> tuple[gr.Button, gr.Button]:
    """Returns the buttons that hand the chosen image to the other tabs."""
    with gr.Row():
        with gr.Column(scale=1, min_width=280):
            classes, num, seed = _what(service, 16)
            settings = settings_controls(service, service.pipe.defaults)
            button = buttons(service, "Generate", "generate")
        with gr.Column(scale=2, min_width=280):
            shown = gr.HTML(markup.note("Press Generate."), elem_id="generate-result")
            with gr.Row():
                to_refine = gr.Button("Refine the chosen one", size="sm", visible=service.pipe.critic is not None)
                to_edit = gr.Button("Edit the chosen one", size="sm")

    def show(run: Run) -> str:
        return generated(service, run)

    async def generate(request: gr.Request, chosen: Any, count: Any, number: Any, *values: Any) -> AsyncIterator[str]:
        given = {"classes": class_labels(service, chosen or []), "num": count, "seed": number}
        client = client_of(request)
        make = lambda: service.requests.generate(given | settings_values(values))  # noqa: E731
        async for html in start(service, client, make, show):
            yield html

    async def again(request: gr.Request) -> AsyncIterator[str]:
        async for html in resume(service, client_of(request), "generate", show):
            yield html

    button.click(generate, [classes, num, seed, *settings], shown, **QUIET)
    page.load(again, outputs=shown, **QUIET)
    return to_refine, to_edit


def compare_tab(service: Service, page: gr.Blocks) -> None:
    with gr.Row():
        with gr.Column(min_width=280):
            classes, num, seed = _what(service, 8)
        first, second = (_variant(service, name) for name in ("A", "B"))
    button = buttons(service, "Compare", "compare")
    shown = gr.HTML(markup.note("The same seeds, made in two ways."), elem_id="compare-result")

    def show(run: Run) -> str:
        work = run.work
        assert isinstance(work, Generate)
        names = service.pipe.class_names
        commands = [sample_command(service.model, work, settings, names) for settings in work.variants]
        return markup.comparison(service.pipe, run, work.seed, commands)

    async def compare(request: gr.Request, chosen: Any, count: Any, number: Any, *values: Any) -> AsyncIterator[str]:
        given = {"classes": class_labels(service, chosen or []), "num": count, "seed": number}
        half = len(values) // 2
        variants = [settings_values(values[:half]), settings_values(values[half:])]
        make = lambda: service.requests.compare(given, variants)  # noqa: E731
        async for html in start(service, client_of(request), make, show):
            yield html

    async def again(request: gr.Request) -> AsyncIterator[str]:
        async for html in resume(service, client_of(request), "compare", show):
            yield html

    button.click(compare, [classes, num, seed, *first, *second], shown, **QUIET)
    page.load(again, outputs=shown, **QUIET)


def generated(service: Service, run: Run) -> str:
    """A finished run of the Generate tab."""
    work = run.work
    assert isinstance(work, Generate)
    command = sample_command(service.model, work, work.variants[0], service.pipe.class_names)
    return markup.result(service.pipe, run, 0, work.seed, command)


def _what(service: Service, num: int) -> tuple[gr.Dropdown, gr.Slider, gr.Textbox]:
    classes = gr.Dropdown(
        class_names(service), multiselect=True, label="Classes", info="They take turns; none means all of them"
    )
    most = service.limits.images
    count = gr.Slider(1, most, value=min(num, most), step=1, label="How many images")
    return classes, count, seed_control()


def _variant(service: Service, name: str) -> list[Any]:
    """The controls of one side: MaskGIT as A and the critic as B, where there is one."""
    pipe = service.pipe
    with gr.Column(min_width=280):
        gr.Markdown(f"### {name}")
        if name == "A":
            return settings_controls(service, service.own_settings("confidence"))
        return settings_controls(service, service.own_settings("halton" if pipe.critic is None else "critic"))
