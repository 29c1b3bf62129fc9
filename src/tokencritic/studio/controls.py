"""The controls that tabs share, filled with the model's own settings, and back again from controls to values."""

import random
from collections.abc import Sequence
from typing import Any, get_args

import gradio as gr

from tokencritic.sampling.samplers import SAMPLERS
from tokencritic.sampling.settings import NoiseKind, RejectBy, SamplingSettings, temperature_range
from tokencritic.studio.service import Service

# The settings that differ from sampler to sampler: a control and its setting. Two controls make a pair of one setting.
_OWN = {
    "hot": "temperature",
    "cold": "temperature",
    "selection_noise": "selection_noise",
    "noise_kind": "noise_kind",
    "start": "critic_window",
    "end": "critic_window",
    "early_noise": "early_noise",
}
# In the order of the controls.
_NAMES = ("sampler", "steps", *_OWN, "guidance", "candidates", "reject_by")

# For every event of the page: our own progress instead of gradio's, no queue of gradio's, no place in its API.
QUIET: dict[str, Any] = {"show_progress": "hidden", "concurrency_limit": None, "api_visibility": "private"}


def class_choices(service: Service) -> list[tuple[str, int]]:
    """The classes by name, each with its number."""
    labels = range(service.pipe.generator.num_classes)
    return list(zip(service.pipe.names(labels), labels, strict=True))


def one_class(service: Service, label: str) -> gr.Dropdown:
    """A class, or none to ask the classifier where there is one."""
    has_classifier = service.pipe.classifier is not None
    text = "Leave empty to ask the classifier" if has_classifier else None
    return gr.Dropdown(class_choices(service), value=None if has_classifier else 0, label=label, info=text)


def seed_control() -> gr.Textbox:
    """Words, not a number: a browser's numbers end at 2^53."""
    with gr.Group():
        seed = gr.Textbox("0", label="Seed", info="Image i has seed + i", max_lines=1)
        other = gr.Button("Another seed", size="sm")
    other.click(lambda: str(random.randrange(2**31)), outputs=seed, **QUIET)
    return seed


def settings_controls(
    service: Service, defaults: SamplingSettings, *, refining: bool = False, ranked: bool = True
) -> list[Any]:
    """Controls for `settings_values`. ranked: with rejection; without it the number of candidates stays 1.

    refining: begins with a choice among given tokens, which not every sampler can make.
    """
    pipe, has_critic = service.pipe, service.pipe.critic is not None
    rows = [row for row in SAMPLERS.values() if (has_critic or not row.uses_critic) and (row.refines or not refining)]
    shown, own_options = _shown(defaults, has_critic)
    rankers = [name for name in get_args(RejectBy) if name in pipe.parts]
    ranked = ranked and bool(rankers)
    names, text = [row.name for row in rows], "Who chooses the tokens to keep"
    controls: list[Any] = [gr.Dropdown(names, value=shown["sampler"], label="Sampler", info=text)]
    controls.append(gr.Slider(1, service.limits.steps, value=shown["steps"], step=1, label="Steps"))
    with gr.Accordion("More settings", open=False):
        own = _own_controls(own_options)
        options = {"value": shown["guidance"], "visible": pipe.generator.null_class}
        controls += [*own, gr.Slider(1, 10, step=0.1, label="Guidance", info="1 is none", **options)]
        options = {"value": shown["candidates"] if ranked else 1, "visible": ranked}
        label, text = "Candidates for each image", "The best is kept; 1 keeps all"
        controls.append(gr.Slider(1, service.limits.candidates, step=1, label=label, info=text, **options))
        ranker = shown["reject_by"] if shown["reject_by"] in rankers else next(iter(rankers), None)
        controls.append(gr.Dropdown(rankers, value=ranker, label="Best as judged by", visible=ranked))

    def with_own_settings(name: str) -> list[Any]:
        found = pipe.sampling.for_refinement(sampler=name) if refining else pipe.sampling.for_sampler(name)
        return [gr.update(**options) for options in _shown(found, has_critic)[1].values()]

    controls[0].input(with_own_settings, controls[0], own, **QUIET)
    return controls


def _own_controls(options: dict[str, dict[str, Any]]) -> list[Any]:
    """Controls in the order of _OWN. options: by the name of the control."""
    amount: dict[str, Any] = {"minimum": 0, "step": 0.05, "min_width": 120}
    noise: dict[str, Any] = {"maximum": 1000, **amount}
    with gr.Row():
        hot = gr.Number(label="Temperature at first", maximum=100, **amount, **options["hot"])
        cold = gr.Number(label="Temperature at last", maximum=100, **amount, **options["cold"])
    with gr.Row():
        selection = gr.Number(label="Selection noise", info="K in the paper", **noise, **options["selection_noise"])
        kinds, text = list(get_args(NoiseKind)), "The critic's"
        kind = gr.Dropdown(kinds, label="Kind of noise", info=text, min_width=120, **options["noise_kind"])
    text = "Of t/T; confidence chooses before. 1: from the first step"
    start = gr.Slider(0.05, 1, step=0.01, label="Critic window, start", info=text, **options["start"])
    text = "Confidence chooses after. 0: to the last step"
    end = gr.Slider(0, 0.95, step=0.01, label="Critic window, end", info=text, **options["end"])
    early = gr.Number(label="Early noise", info="Of confidence before the window", **noise, **options["early_noise"])
    return [hot, cold, selection, kind, start, end, early]


def settings_values(values: Sequence[Any]) -> dict[str, Any]:
    """What the controls hold, as `Requests` takes it."""
    given: dict[str, Any] = dict(zip(_NAMES, values, strict=True))
    for first, last in (("hot", "cold"), ("start", "end")):
        pair = [value for value in (given.pop(first), given.pop(last)) if value is not None]
        if pair:  # one that was emptied is as the other
            given[_OWN[first]] = [pair[0], pair[-1]]
    return {name: value for name, value in given.items() if value is not None}


def _shown(settings: SamplingSettings, has_critic: bool) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Settings as the controls hold them; and value and visibility of those of _OWN, hidden where the sampler has none."""
    (hot, cold), (start, end) = temperature_range(settings.temperature), settings.critic_window
    shown = vars(settings.of(has_critic)) | {"hot": hot, "cold": cold, "start": start, "end": end}
    effect = settings.in_effect(has_critic)
    own = {name: {"value": shown[name], "visible": effect[setting] is not None} for name, setting in _OWN.items()}
    return shown, own
