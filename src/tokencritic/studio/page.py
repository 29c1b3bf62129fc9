"""The page: four tabs, one style, no address of any other host."""

from pathlib import Path

import gradio as gr
from gradio.themes import Base, Default

from tokencritic.studio.service import Service
from tokencritic.studio.tabs import compare_tab, edit_tab, generate_tab, refine_tab

_HERE = Path(__file__).parent
CSS = (_HERE / "page.css").read_text(encoding="utf-8")
HEAD = f"<script>{(_HERE / 'page.js').read_text(encoding='utf-8')}</script>"

# Run when everything is in its place: who drives the page by a program waits for it.
_READY = "() => { document.body.dataset.ready = 'yes' }"


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
