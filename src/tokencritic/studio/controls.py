"""The controls that tabs share, filled with the model's own settings, and back again from controls to values."""

from collections.abc import Iterable
from typing import Any, get_args

import gradio as gr

from tokencritic.sampling.samplers import SAMPLERS
from tokencritic.sampling.settings import NoiseKind, RejectBy, SamplingSettings, temperature_range
from tokencritic.studio.service import Service

# Each with the name of its value. Two of one name make a pair.
Controls = list[tuple[str, Any]]

# For every event of the page: our own progress instead of gradio's, no queue of gradio's, no place in its API.
QUIET: dict[str, Any] = {"show_progress": "hidden", "concurrency_limit": None, "api_visibility": "private"}

# The controls of the settings: setting, place in a pair, kind, label and info. `Requests` has the bounds. Those from the
# temperature to the guidance suit a sampler, and are filled in anew when another one is chosen.
_FORMS: tuple[tuple[str, int | None, type, str, str | None], ...] = (
    ("sampler", None, gr.Dropdown, "Sampler", "Who chooses the tokens to keep"),
    ("steps", None, gr.Slider, "Steps", None),
    ("temperature", 0, gr.Number, "Temperature at first", None),
    ("temperature", 1, gr.Number, "Temperature at last", None),
    ("selection_noise", None, gr.Number, "Selection noise", "K in the paper"),
    ("noise_kind", None, gr.Dropdown, "Kind of noise", "The critic's"),
    (
        "critic_window",
        0,
        gr.Slider,
        "Critic window, start",
        "Of t/T; confidence chooses before. 1: from the first step",
    ),
    ("critic_window", 1, gr.Slider, "Critic window, end", "Confidence chooses after. 0: to the last step"),
    ("early_noise", None, gr.Number, "Early noise", "Of confidence before the window"),
    ("remask_quota", None, gr.Slider, "Re-masking quota", "Of the visible tokens, times the share still hidden"),
    ("remask_noise", None, gr.Number, "Re-masking noise", "On the inline critic's logits"),
    ("guidance", None, gr.Number, "Guidance", "1 is none"),
    ("candidates", None, gr.Slider, "Candidates for each image", "The best is kept; 1 keeps all"),
    ("reject_by", None, gr.Dropdown, "Best as judged by", None),
)
_WIDTHS = {gr.Dropdown: 120, gr.Number: 120, gr.Slider: 240}
_OF_SAMPLERS = {name for row in SAMPLERS.values() for name in row.settings}


def class_control(service: Service, label: str, **options: Any) -> gr.Dropdown:
    """The classes by name, each with its number; by default one of them, or none to ask the classifier where there is one.

    Not shown for a model that has one class or none.
    """
    labels, has_classifier = range(service.pipe.generator.num_classes), service.pipe.classifier is not None
    choices = list(zip(service.pipe.names(labels), labels, strict=True))
    text = "Leave empty to ask the classifier" if has_classifier else None
    options = {"value": None if has_classifier or not choices else 0, "info": text, **options}
    return gr.Dropdown(choices, label=label, visible=len(choices) > 1, **options)


def seed_control() -> gr.Textbox:
    """Words, not a number: a browser's numbers end at 2^53."""
    return gr.Textbox("0", label="Seed", info="Image i has seed + i", max_lines=1)


def settings_controls(
    service: Service, defaults: SamplingSettings, *, refining: bool = False, ranked: bool = True
) -> Controls:
    """Controls of the settings. ranked: with rejection; without it the number of candidates stays 1.

    refining: begins with a choice among given tokens, which not every sampler can make.
    """
    pipe, has_critic = service.pipe, service.pipe.critic is not None
    rows = [row for row in SAMPLERS.values() if (has_critic or not row.uses_critic) and (row.refines or not refining)]
    able = [row.name for row in rows if pipe.inline_critic is not None or not row.uses_inline_critic]
    rankers = [name for name in get_args(RejectBy) if name in pipe.parts]
    if not pipe.generator.num_classes and "classifier" in rankers:
        rankers.remove("classifier")
    ranked = ranked and bool(rankers)
    choices = {"sampler": able, "noise_kind": list(get_args(NoiseKind)), "reject_by": rankers}
    never = (set() if pipe.generator.null_class else {"guidance"}) | (set() if ranked else {"candidates", "reject_by"})

    def shown(settings: SamplingSettings) -> list[dict[str, Any]]:
        """Value and visibility of each control, hidden where the model or the sampler has no such setting."""
        values = vars(settings.of(has_critic)) | {"temperature": temperature_range(settings.temperature)}
        values["candidates"] = settings.candidates if ranked else 1
        values["reject_by"] = settings.reject_by if settings.reject_by in rankers else next(iter(rankers), None)
        hidden = never | _OF_SAMPLERS.difference(settings.row(has_critic).settings)
        found = ((name, values[name] if place is None else values[name][place]) for name, place, *_ in _FORMS)
        return [{"value": value, "visible": name not in hidden} for name, value in found]

    def control(number: int) -> tuple[str, Any]:
        name, _, kind, label, text = _FORMS[number]
        if name in choices:
            options = {"choices": choices[name]}
        else:
            low, high = service.requests.bounds[name]
            options = {"minimum": low, "maximum": high, "step": 1 if name in ("steps", "candidates") else 0.01}
        return name, kind(label=label, info=text, min_width=_WIDTHS[kind], **options, **first[number])

    def with_suited(sampler: str) -> list[Any]:
        found = pipe.sampling.for_refinement(sampler=sampler) if refining else pipe.sampling.for_sampler(sampler)
        return [gr.update(**options) for options in shown(found)[2:-2]]

    first = shown(defaults)
    controls = [control(0), control(1)]
    with gr.Accordion("More settings", open=False), gr.Row():
        controls += [control(number) for number in range(2, len(_FORMS))]
    controls[0][1].input(with_suited, controls[0][1], [made for _, made in controls[2:-2]], **QUIET)
    return controls


def values_of(controls: Controls, held: Iterable[Any]) -> dict[str, Any]:
    """What the controls hold, as `Requests` takes it."""
    values: dict[str, Any] = {}
    for (name, _), value in zip(controls, held, strict=False):
        values[name] = [values[name], value] if name in values else value
    return values
