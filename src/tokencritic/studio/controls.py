"""The controls that tabs share, filled with the model's own settings, and back again from controls to values."""

import random
from collections.abc import Sequence
from typing import Any, get_args

import gradio as gr

from tokencritic.sampling.settings import SAMPLERS, NoiseKind, RejectBy, SamplingSettings, temperature_range
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
# In the order of the controls; the last is left out where there is one candidate alone.
NAMES = ("sampler", "steps", *_OWN, "guidance", "candidates", "reject_by")
_OF_SAMPLERS = {name for row in SAMPLERS.values() for name in row.settings}

# For every event of the page: our own progress instead of gradio's, no queue of gradio's, no place in its API.
QUIET: dict[str, Any] = {"show_progress": "hidden", "concurrency_limit": None, "api_visibility": "private"}


def class_names(service: Service) -> list[str]:
    return service.pipe.names(range(service.pipe.generator.num_classes))


def class_labels(service: Service, names: Sequence[str]) -> list[Any]:
    """Back from what is shown; a name that is none goes on as it is, to be refused in words."""
    known = class_names(service)
    return [known.index(name) if name in known else name for name in names]


def one_class(service: Service, label: str) -> gr.Dropdown:
    """A class, or none to ask the classifier where there is one."""
    has_classifier = service.pipe.classifier is not None
    names = class_names(service)
    text = "Leave empty to ask the classifier" if has_classifier else None
    return gr.Dropdown(names, value=None if has_classifier else names[0], label=label, info=text)


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
    """Controls in the order of NAMES, without the last unless `ranked`; the number of candidates then stays 1.

    refining: begins with a choice among given tokens, which not every sampler can make.
    """
    pipe, has_critic = service.pipe, service.pipe.critic is not None
    rows = [row for row in SAMPLERS.values() if (has_critic or not row.uses_critic) and (row.refines or not refining)]
    samplers, shown = [row.name for row in rows], _shown(defaults, has_critic)
    sampler = gr.Dropdown(samplers, value=shown["sampler"], label="Sampler", info="Who chooses the tokens to keep")
    steps = gr.Slider(1, service.limits.steps, value=shown["steps"], step=1, label="Steps")
    with gr.Accordion("More settings", open=False):
        own = _own_controls(shown)
        visible = pipe.generator.null_class
        guidance = gr.Slider(
            1, 10, value=shown["guidance"], step=0.1, label="Guidance", info="1 is none", visible=visible
        )
        controls = [sampler, steps, *own, guidance, *_ranker_controls(service, shown, ranked)]

    def with_own_settings(name: str) -> list[Any]:
        if name not in samplers:
            return [gr.skip() for _ in _OWN]
        found = pipe.sampling.for_refinement(sampler=name) if refining else pipe.sampling.for_sampler(name)
        values = _shown(found, has_critic)
        return [gr.update(value=values[control], visible=_has(name, control)) for control in _OWN]

    sampler.input(with_own_settings, sampler, own, **QUIET)
    return controls


def _has(sampler: str, control: str) -> bool:
    """Whether a sampler has the setting of a control."""
    return _OWN[control] not in _OF_SAMPLERS or _OWN[control] in SAMPLERS[sampler].settings


def _own_controls(shown: dict[str, Any]) -> list[Any]:
    """Controls in the order of _OWN; those of settings that the sampler does not have are out of sight."""

    def options(control: str) -> dict[str, Any]:
        return {"value": shown[control], "min_width": 120, "visible": _has(shown["sampler"], control)}

    amount: dict[str, Any] = {"minimum": 0, "step": 0.05}
    noise: dict[str, Any] = {"maximum": 1000, **amount}
    with gr.Row():
        hot = gr.Number(label="Temperature at first", maximum=100, **amount, **options("hot"))
        cold = gr.Number(label="Temperature at last", maximum=100, **amount, **options("cold"))
    with gr.Row():
        selection = gr.Number(label="Selection noise", info="K in the paper", **noise, **options("selection_noise"))
        kind = gr.Dropdown(
            list(get_args(NoiseKind)), label="Kind of noise", info="The critic's", **options("noise_kind")
        )
    text = "Of t/T; confidence chooses before. 1: from the first step"
    start = gr.Slider(0.05, 1, step=0.01, label="Critic window, start", info=text, **options("start"))
    text = "Confidence chooses after. 0: to the last step"
    end = gr.Slider(0, 0.95, step=0.01, label="Critic window, end", info=text, **options("end"))
    early = gr.Number(label="Early noise", info="Of confidence before the window", **noise, **options("early_noise"))
    return [hot, cold, selection, kind, start, end, early]


def _ranker_controls(service: Service, shown: dict[str, Any], ranked: bool) -> list[Any]:
    """How many candidates, and who judges them; out of sight where none can be judged."""
    rankers = [name for name in get_args(RejectBy) if name in service.pipe.parts]
    possible = ranked and bool(rankers)
    candidates = gr.Slider(
        1,
        service.limits.candidates,
        value=shown["candidates"] if possible else 1,
        step=1,
        label="Candidates for each image",
        info="The best is kept; 1 keeps all",
        visible=possible,
    )
    if not ranked:
        return [candidates]
    value = shown["reject_by"] if shown["reject_by"] in rankers else next(iter(rankers), None)
    return [candidates, gr.Dropdown(rankers, value=value, label="Best as judged by", visible=possible)]


def settings_values(values: Sequence[Any]) -> dict[str, Any]:
    """What the controls hold, as `Requests` takes it; what a sampler does not have is left out."""
    given: dict[str, Any] = dict(zip(NAMES, values, strict=False))
    if given["sampler"] in SAMPLERS:
        given = {name: value for name, value in given.items() if name not in _OWN or _has(given["sampler"], name)}
    for first, last in (("hot", "cold"), ("start", "end")):
        pair = [value for value in (given.pop(first, None), given.pop(last, None)) if value is not None]
        if pair:  # one that was emptied is as the other
            given[_OWN[first]] = [pair[0], pair[-1]]
    return {name: value for name, value in given.items() if value is not None}


def _shown(settings: SamplingSettings, has_critic: bool) -> dict[str, Any]:
    """Settings as the controls hold them: the sampler by name, noise as a number."""
    (hot, cold), (start, end) = temperature_range(settings.temperature), settings.critic_window
    return vars(settings.of(has_critic)) | {"hot": hot, "cold": cold, "start": start, "end": end}
