"""The controls that tabs share, filled with the model's own settings, and back again from controls to values."""

import dataclasses
import random
from collections.abc import Sequence
from typing import Any, cast, get_args

import gradio as gr

from tokencritic.masking import Schedule
from tokencritic.sampling.loop import temperature_range
from tokencritic.sampling.scorers import NoiseOn
from tokencritic.sampling.settings import RejectBy, Sampler, SamplingSettings
from tokencritic.studio.following import client_of
from tokencritic.studio.requests import has_guidance
from tokencritic.studio.service import Service
from tokencritic.studio.views import names_of

# In the order of the controls. The two temperatures become one setting.
NAMES = (
    "sampler",
    "steps",
    "hot",
    "cold",
    "selection_noise",
    "noise_on",
    "critic_from",
    "critic_until",
    "guidance",
    "schedule",
    "passes_per_level",
    "candidates",
)
NAMES_WITH_RANKER = (*NAMES, "reject_by")


# For every event of the page: our own progress instead of gradio's, no queue of gradio's, no place in its API.
QUIET: dict[str, Any] = {"show_progress": "hidden", "concurrency_limit": None, "api_visibility": "private"}


def buttons(service: Service, name: str, kind: str) -> gr.Button:
    """A button that starts a run of a kind, which is returned, and one that cancels it."""

    def cancel(request: gr.Request) -> None:
        service.cancel(client_of(request), kind)

    with gr.Row():
        go = gr.Button(name, variant="primary", elem_id=f"{kind}-go", scale=3, min_width=120)
        gr.Button("Cancel", elem_id=f"{kind}-cancel", scale=1, min_width=90).click(cancel, **QUIET)
    return go


def class_names(service: Service) -> list[str]:
    return names_of(service.pipe, range(service.pipe.generator.num_classes))


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
    """Controls in the order of NAMES, or of NAMES_WITH_RANKER if `ranked`; without, the number of candidates stays 1.

    refining: begins with a choice among given tokens, which confidence cannot make.
    """
    pipe, limits = service.pipe, service.limits
    shown = _shown(service, defaults)
    samplers = [name for name in get_args(Sampler) if name != "critic" or pipe.critic is not None]
    if refining:
        samplers.remove("confidence")
    sampler = gr.Dropdown(
        list(samplers), value=shown["sampler"], label="Sampler", info="Who chooses the tokens to keep"
    )
    steps = gr.Slider(1, limits.steps, value=shown["steps"], step=1, label="Steps")
    with gr.Accordion("More settings", open=False):
        with gr.Row():
            hot = gr.Number(
                shown["hot"], label="Temperature at first", minimum=0, maximum=100, step=0.05, min_width=120
            )
            cold = gr.Number(
                shown["cold"], label="Temperature at last", minimum=0, maximum=100, step=0.05, min_width=120
            )
        with gr.Row():
            noise = gr.Number(
                shown["selection_noise"],
                label="Selection noise",
                info="K in the paper",
                minimum=0,
                maximum=1000,
                step=0.05,
                min_width=120,
            )
            noise_on = gr.Dropdown(
                list(get_args(NoiseOn)),
                value=shown["noise_on"],
                label="Noise on",
                info="The critic's",
                min_width=120,
                visible=pipe.critic is not None,
            )
        since = gr.Slider(
            0.05,
            1,
            value=shown["critic_from"],
            step=0.01,
            label="Critic from t/T",
            info="Or chance, if it is the sampler; confidence before; 1: from the first step",
            visible=not refining,
        )
        until = gr.Slider(
            0,
            0.95,
            value=shown["critic_until"],
            step=0.01,
            label="Critic until t/T",
            info="Or chance; confidence after; 0: to the end",
        )
        guidance = gr.Slider(
            1, 10, value=shown["guidance"], step=0.1, label="Guidance", info="1 is none", visible=has_guidance(pipe)
        )
        schedule = gr.Dropdown(list(get_args(Schedule)), value=shown["schedule"], label="Mask schedule")
        passes = gr.Slider(
            1, limits.passes_per_level, value=shown["passes_per_level"], step=1, label="Passes per level"
        )
        controls = [sampler, steps, hot, cold, noise, noise_on, since, until, guidance, schedule, passes]
        controls += _ranker_controls(service, shown, ranked)

    def with_own_settings(name: str) -> tuple[Any, ...]:
        own = shown
        if name in samplers:
            found = pipe.refinement_settings(sampler=name) if refining else service.own_settings(cast("Sampler", name))
            own = _shown(service, found)
        filled = ("hot", "cold", "selection_noise", "noise_on", "critic_from", "critic_until")
        return tuple(own[setting] for setting in filled)

    sampler.input(with_own_settings, sampler, [hot, cold, noise, noise_on, since, until], **QUIET)
    return controls


def _ranker_controls(service: Service, shown: dict[str, Any], ranked: bool) -> list[Any]:
    """How many candidates, and who judges them; out of sight where none can be judged."""
    rankers = [name for name in get_args(RejectBy) if getattr(service.pipe, name) is not None]
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
    """What the controls hold, as `Requests` takes it."""
    names = NAMES_WITH_RANKER if len(values) == len(NAMES_WITH_RANKER) else NAMES
    given: dict[str, Any] = dict(zip(names, values, strict=True))
    temperatures = [value for value in (given.pop("hot"), given.pop("cold")) if value is not None]
    if temperatures:  # one that was emptied is as the other
        given["temperature"] = [temperatures[0], temperatures[-1]]
    return {name: value for name, value in given.items() if value is not None}


def _shown(service: Service, settings: SamplingSettings) -> dict[str, Any]:
    """Settings as the controls hold them: who chooses by name, noise as a number."""
    pipe = service.pipe
    scorer = settings.scorer(pipe.critic, pipe.tokenizer.grid)
    hot, cold = temperature_range(settings.temperature)
    return dataclasses.asdict(settings) | {
        "sampler": settings.chosen_sampler(pipe.critic is not None),
        "selection_noise": getattr(scorer, "selection_noise", None),
        "hot": hot,
        "cold": cold,
    }
