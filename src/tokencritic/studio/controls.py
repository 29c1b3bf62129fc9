"""The data of the page's controls: the model, its samplers and their settings, the bounds, and the offline FID."""

import dataclasses
from pathlib import Path
from typing import Any, get_args

from tokencritic.errors import InputError
from tokencritic.files import check_fields, read_json
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.sampling.samplers import SAMPLERS, Sampler
from tokencritic.sampling.settings import GUIDANCE, NoiseKind, RejectBy, SamplingSettings, settings_from
from tokencritic.schedules import SCHEDULES, GuidanceSchedule
from tokencritic.studio.service import Service
from tokencritic.tokenizers.regions import place_grid

REFINE_SHARE = 0.3  # on the bundled model, more pictures improve than with the paper's 0.6, see docs/studio.md
_STEPS = {"steps": 1, "candidates": 1}  # of the sliders; 0.01 for other settings
_CRITICS = {"critic": "Token-Critic", "inline": "inline"}

# The label and the explanation of each advanced setting.
_TEXTS = {
    "temperature": ("Temperature", "At the first and at the last step; 0 always samples the likeliest code"),
    "selection_noise": ("Selection noise", "Randomness in which tokens are kept, K in the paper"),
    "noise_kind": ("Kind of noise", "Of the critic's scores"),
    "critic_window": ("Critic active", "From and until which part of the run the critic may resample"),
    "early_noise": ("Early noise", "Selection noise before the critic is active"),
    "remask_quota": ("Re-masking quota", "Share of the visible tokens that may be resampled at a step"),
    "remask_noise": ("Re-masking noise", "Randomness in which visible tokens are resampled"),
    "schedule": ("Schedule", "How many tokens are kept at each step, and how noise and temperature fall"),
    "halton_roll": ("Random start", "Each image's order starts at another place"),
    "guidance": ("Guidance", "Classifier-free guidance; 1 is none"),
    "guidance_schedule": ("Guidance over the steps", "Constant, or growing from 1"),
    "guidance_power": ("Power of the cosine", "Of a guidance that grows as a cosine; higher grows later"),
    "candidates": ("Candidates", "Images sampled for each that is kept; 1 keeps all"),
    "reject_by": ("Best judged by", "Which candidate is kept"),
}


def about(service: Service) -> dict[str, Any]:
    """Return the facts about the model that the page needs, as a JSON value."""
    pipe, requests = service.pipe, service.requests
    tokenizer, has_critic = pipe.tokenizer, pipe.critic is not None
    own = pipe.settings().row(has_critic).name
    return {
        "model": service.model.rstrip("/").rpartition("/")[2],
        "tooltip": f"{tokenizer.image_size} x {tokenizer.image_size} pixels in {tokenizer.num_tokens} tokens, "
        f"{pipe.generator.num_classes or 'no'} classes",
        "critic": has_critic or pipe.inline_critic is not None,
        "refines": has_critic,
        "classifier": pipe.classifier is not None,
        "grid": None if tokenizer.grid is None else place_grid(tokenizer),  # the places that the user can paint
        "splits": tokenizer.splits,
        "size": tokenizer.image_size,
        "margin": tokenizer.margin,
        "classes": pipe.names(range(pipe.generator.num_classes)),
        "limits": dataclasses.asdict(service.limits),
        "forms": [_form(service, name) for name in _TEXTS],
        "samplers": [_choice(pipe, row) for row in samplers(pipe)],
        "first": first_values(service),
        "compared": ["confidence", "halton" if own == "confidence" else own],
        "cost": requests.compare_cost,
        "share": REFINE_SHARE,
    }


def first_values(service: Service) -> dict[str, Any]:
    """Return the initial values of the controls in the Generate tab."""
    pipe = service.pipe
    row = pipe.settings().row(pipe.critic is not None)
    values = {"classes": [], "num": min(16, service.limits.images), "seed": "0", "sampler": row.name}
    return values | _choice(pipe, row)["settings"]


def samplers(pipe: TokenCriticPipeline) -> list[Sampler]:
    """Return the rows of `SAMPLERS` for which the pipeline has all parts."""
    critics = {"uses_critic": pipe.critic is not None, "uses_inline_critic": pipe.inline_critic is not None}
    return [row for row in SAMPLERS.values() if all(has or not vars(row)[name] for name, has in critics.items())]


def title(row: Sampler) -> str:
    """Return a sampler's title for users who do not know the paper or the code."""
    if row.name == "confidence":
        return f"Without critic ({row.title})"
    return f"With critic ({_CRITICS[row.name]})" if row.name in _CRITICS else row.title


def _choice(pipe: TokenCriticPipeline, row: Sampler) -> dict[str, Any]:
    """Return a sampler with its settings at the cost of the model's defaults, and its settings for refinement."""
    own = _values(pipe, pipe.sampling.for_sampler(row.name, pipe.cost))
    refining = _values(pipe, pipe.sampling.for_refinement(sampler=row.name)) if row.refines else None
    text = f"Which tokens are kept is decided by {row.summary}."
    return {"name": row.name, "title": title(row), "text": text, "settings": own, "refining": refining}


def _values(pipe: TokenCriticPipeline, settings: SamplingSettings) -> dict[str, Any]:
    """Return the settings of the sampler, with those of guidance and rejection if the model supports them."""
    found = _plain(settings.in_effect(pipe.critic is not None))
    found |= {name: vars(settings)[name] for name in GUIDANCE}
    if not pipe.generator.null_class:
        found = {name: value for name, value in found.items() if name not in GUIDANCE}
    del found["sampler"]
    rankers = _rankers(pipe)
    if not rankers:
        del found["candidates"]
        return found
    return found | {"candidates": 1, "reject_by": settings.reject_by if settings.reject_by in rankers else rankers[0]}


def _form(service: Service, name: str) -> dict[str, Any]:
    """Return the control of a setting: `choices` as [value, text] pairs, or the bounds of a number or of a pair."""
    label, text = _TEXTS[name]
    form = {"name": name, "label": label, "text": text}
    words = {
        "noise_kind": get_args(NoiseKind),
        "schedule": tuple(SCHEDULES),
        "guidance_schedule": get_args(GuidanceSchedule),
        "reject_by": _rankers(service.pipe),
    }
    if name in words:
        return form | {"choices": [[word, word] for word in words[name]]}
    if name == "halton_roll":
        return form | {"choices": [[False, "no"], [True, "yes"]]}
    low, high = service.requests.bounds[name]
    return form | {"low": low, "high": high, "step": _STEPS.get(name, 0.01)}


def _rankers(pipe: TokenCriticPipeline) -> list[str]:
    """Return the parts that can choose among candidates: the critic, and the classifier of a model with classes."""
    able = pipe.parts.keys() - (set() if pipe.generator.num_classes else {"classifier"})
    return [name for name in get_args(RejectBy) if name in able]


def offline_fid(service: Service, settings: SamplingSettings) -> dict[int, float]:
    """Return the FID of tuning with exactly these settings on exactly this model, by the number of images.

    The result is empty if there is no such FID.
    """
    has_critic, folder, found = service.pipe.critic is not None, service.pipe.folder, {}
    wanted, sampler = settings.in_effect(has_critic), settings.row(has_critic).name
    for file in [] if folder is None else sorted(folder.glob(f"tuning-{sampler}-*.json")):
        told = read_json(file)
        check_fields(file, told, {"models": dict, "trials": list})
        if told["models"].items() <= service.identities.items():
            for trial in told["trials"]:
                settings, fids = _trial(file, trial)
                if settings.in_effect(has_critic) == wanted:
                    found |= fids
    return found


def _trial(file: Path, trial: Any) -> tuple[SamplingSettings, dict[int, float]]:
    """Return the settings of a trial, and its FID by the number of images."""
    if not isinstance(trial, dict):
        raise InputError(f"{file}: a trial is {trial!r:.60}; expected an object")
    check_fields(file, trial, {"settings": dict, "fid": dict})
    fids = trial["fid"]
    if not all(count.isdecimal() and isinstance(fid, float | None) for count, fid in fids.items()):
        raise InputError(f"{file}: fid is {fids!r:.60}; expected numbers by the number of images")
    # A setting that the file does not contain has its default, for instance a setting that is newer than the file.
    return settings_from(_plain(trial["settings"])), {int(count): fid for count, fid in fids.items() if fid is not None}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that are not None. None marks a setting that has no effect."""
    return {name: value for name, value in values.items() if value is not None}
