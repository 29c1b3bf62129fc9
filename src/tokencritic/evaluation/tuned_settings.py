"""The settings that tuning found best for a sampler of a model, looked up in its folder."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from tokencritic.errors import InputError
from tokencritic.models.saved import read_json
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.sampling.settings import Sampler, SamplingSettings

TUNED = "tuned"


@dataclass(frozen=True)
class Evidence:
    """What a tuning found best. passes: at which. models: fingerprints of the parts that it was made with, by name."""

    settings: SamplingSettings
    passes: int
    models: dict[str, str]

    def worth(self, pipe: TokenCriticPipeline, passes: int) -> str:
        """ "tuned", if that is true of this model at so many passes, or in what it is not."""
        for name, made_with in self.models.items():
            part = pipe.parts.get(name)
            if part is None or part.fingerprint() != made_with:
                return f"tuned for another {name}"
        return TUNED if self.passes == passes else f"tuned at {self.passes} passes"


def evidence_file(folder: Path, sampler: Sampler, passes: int) -> Path:
    """Where the evidence of a tuning lies."""
    return folder / f"tuning-{sampler}-{passes}.json"


def read_evidence(folder: Path, sampler: Sampler, passes: int) -> Evidence | None:
    """What was found best for a sampler: at these passes, else at those nearest to them; None without any."""
    files = {}
    for file in sorted(folder.glob(f"tuning-{sampler}-*.json")):
        number = file.stem.rsplit("-", maxsplit=1)[1]
        if number.isdecimal():
            files[int(number)] = file
    if not files:
        return None
    nearest = min(files, key=lambda number: abs(number - passes))
    file = files[nearest]
    try:
        found = read_json(file)
        return Evidence(SamplingSettings(**found["best"]), nearest, dict(found["models"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file} is not what tuning wrote: {error}") from error


def settings_at(folder: Path, pipe: TokenCriticPipeline, sampler: Sampler, passes: int) -> SamplingSettings:
    """The settings of a sampler at so many passes: those that tuning found best where it was run, else the model's own."""
    return settings_from(read_evidence(folder, sampler, passes), pipe, sampler, passes)


def settings_from(found: Evidence | None, pipe: TokenCriticPipeline, sampler: Sampler, passes: int) -> SamplingSettings:
    """As `settings_at`, with what `read_evidence` gave."""
    settings = pipe.settings(sampler=sampler) if found is None else found.settings
    return at_passes(pipe, dataclasses.replace(settings, sampler=sampler, candidates=1), passes)


def own_settings(folder: Path, pipe: TokenCriticPipeline, sampler: Sampler) -> SamplingSettings:
    """What suits a sampler of a model, without rejection: the model's defaults for the sampler that they are made for; for
    another what `settings_at` finds, at the network passes of those defaults.
    """
    plain, has_critic = pipe.settings(candidates=1), pipe.critic is not None
    if sampler == plain.chosen_sampler(has_critic):
        return dataclasses.replace(plain, sampler=sampler)
    return settings_at(folder, pipe, sampler, plain.passes(pipe.tokenizer.num_tokens, has_critic))


def at_passes(pipe: TokenCriticPipeline, settings: SamplingSettings, passes: int) -> SamplingSettings:
    """The settings with the steps that `steps_for` finds; a critic that would never get to choose hands over later."""
    while True:
        fitted = dataclasses.replace(settings, steps=steps_for(pipe, settings, passes))
        try:
            fitted.check_critic_chooses(pipe.tokenizer.num_tokens, pipe.critic is not None)
        except InputError:
            settings = dataclasses.replace(settings, critic_until=round(max(0.0, settings.critic_until - 0.05), 2))
        else:
            return fitted


def steps_for(pipe: TokenCriticPipeline, settings: SamplingSettings, passes: int) -> int:
    """The fewest steps that come nearest to so many network passes per image, from below."""
    num_tokens, has_critic = pipe.tokenizer.num_tokens, pipe.critic is not None
    best, most = 0, 0
    for steps in range(1, 2 * passes + 1):  # a sampler that skips steps without effect takes more steps than passes
        needed = dataclasses.replace(settings, steps=steps).passes(num_tokens, has_critic)
        if most < needed <= passes:
            best, most = steps, needed
    if best == 0:
        least = dataclasses.replace(settings, steps=1).passes(num_tokens, has_critic)
        raise InputError(f"passes is {passes}; one step of these settings takes {least} already")
    return best
