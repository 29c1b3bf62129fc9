"""The controls that tabs share, filled with the model's own settings, and back again from controls to values."""

import dataclasses
import random
from collections.abc import Sequence
from typing import Any, cast, get_args

import gradio as gr

from tokencritic.sampling.loop import temperature_range
from tokencritic.sampling.scorers import ConfidenceScorer, CriticScorer, NoiseOn
from tokencritic.sampling.settings import RejectBy, Sampler, SamplingSettings
from tokencritic.studio.requests import has_guidance
from tokencritic.studio.service import Service
from tokencritic.studio.views import names_of

# The settings that differ from sampler to sampler; the two temperatures become one setting.
_OWN = ("hot", "cold", "selection_noise", "noise_on", "critic_from", "critic_until")
# In the order of the controls; the last is left out where there is one candidate alone.
NAMES = ("sampler", "steps", *_OWN, "guidance", "candidates", "reject_by")

# For every event of the page: our own progress instead of gradio's, no queue of gradio's, no place in its API.
QUIET: dict[str, Any] = {"show_progress": "hidden", "concurrency_limit": None, "api_visibility": "private"}


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
    """Controls in the order of NAMES, without the last unless `ranked`; the number of candidates then stays 1.

    refining: begins with a choice among given tokens, which confidence cannot make.
    """
    pipe, shown = service.pipe, _shown(service, defaults)
    samplers = [name for name in get_args(Sampler) if name != "critic" or pipe.critic is not None]
    if refining:
        samplers.remove("confidence")
    sampler = gr.Dropdown(samplers, value=shown["sampler"], label="Sampler", info="Who chooses the tokens to keep")
    steps = gr.Slider(1, service.limits.steps, value=shown["steps"], step=1, label="Steps")
    with gr.Accordion("More settings", open=False):
        own = _own_controls(service, shown, refining)
        guided = has_guidance(pipe)
        guidance = gr.Slider(
            1, 10, value=shown["guidance"], step=0.1, label="Guidance", info="1 is none", visible=guided
        )
        controls = [sampler, steps, *own, guidance, *_ranker_controls(service, shown, ranked)]

    def with_own_settings(name: str) -> tuple[Any, ...]:
        values = shown
        if name in samplers:
            found = pipe.refinement_settings(sampler=name) if refining else service.own_settings(cast("Sampler", name))
            values = _shown(service, found)
        return tuple(values[setting] for setting in _OWN)

    sampler.input(with_own_settings, sampler, own, **QUIET)
    return controls


def _own_controls(service: Service, shown: dict[str, Any], refining: bool) -> list[Any]:
    """Controls in the order of _OWN."""
    narrow: dict[str, Any] = {"minimum": 0, "step": 0.05, "min_width": 120}
    with gr.Row():
        hot, cold = (
            gr.Number(shown[name], label=f"Temperature at {when}", maximum=100, **narrow)
            for name, when in (("hot", "first"), ("cold", "last"))
        )
    with gr.Row():
        noise = gr.Number(
            shown["selection_noise"], label="Selection noise", info="K in the paper", maximum=1000, **narrow
        )
        noise_on = gr.Dropdown(
            list(get_args(NoiseOn)),
            value=shown["noise_on"],
            label="Noise on",
            info="The critic's",
            min_width=120,
            visible=service.pipe.critic is not None,
        )
    text = "Or chance, if it is the sampler; confidence before; 1: from the first step"
    since = gr.Slider(
        0.05, 1, value=shown["critic_from"], step=0.01, label="Critic from t/T", info=text, visible=not refining
    )
    text = "Or chance; confidence after; 0: to the end"
    until = gr.Slider(0, 0.95, value=shown["critic_until"], step=0.01, label="Critic until t/T", info=text)
    return [hot, cold, noise, noise_on, since, until]


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
    """What the controls hold, as `Requests` takes it."""
    given: dict[str, Any] = dict(zip(NAMES, values, strict=False))
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
        "selection_noise": scorer.selection_noise if isinstance(scorer, CriticScorer | ConfidenceScorer) else None,
        "hot": hot,
        "cold": cold,
    }
