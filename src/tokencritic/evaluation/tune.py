"""The best settings of a sampler for a model: trials near the first and anywhere, halved on growing sample counts."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokencritic.errors import InputError
from tokencritic.evaluation.evaluate import Meter
from tokencritic.evaluation.report import write_json
from tokencritic.evaluation.samples import SampleSets, effective
from tokencritic.evaluation.sweep import WITHOUT_NOISE
from tokencritic.models.saved import read_json
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.pipeline_folder import PIPELINE
from tokencritic.sampling.scorers import NoiseOn
from tokencritic.sampling.settings import REVOKING, Sampler, SamplingSettings

TUNED = "tuned"
TUNING_SEED = 2**56  # of the first image: far from the seeds of an evaluation, which must not measure what was tuned on

# Ranges of the search; noise on a logarithmic scale. A temperature falls from end + fall to end. One number says when
# the critic chooses: first until a time above 0, where it is positive, or only from a time below 1 on, where it is negative;
# near 0 all the time.
_CONFIDENCE_NOISES = (2.0, 32.0)
_CRITIC_NOISES: dict[NoiseOn, tuple[float, float]] = {
    "probability": (0.1, 4.0),
    "logit": (0.5, 8.0),
    "odds": (0.5, 6.0),
}
_ENDS, _FALLS, _GUIDANCES, _TIMES = (0.4, 1.1), (0.0, 0.7), (1.1, 4.0), (-1.0, 1.0)
_ALL_THE_TIME = 0.15
# Half of the trials are no further than this share of a range from the first, which somebody had reason to begin with.
_NEAR = 0.15
# Powers of 1/x with x^5 = x + 1: multiples of them, modulo 1, leave no large hole in the cube (Roberts, 2018), so that few
# trials see more of it than random ones would.
_STRIDES = 1.1673039782614187 ** -np.arange(1.0, 5.0)


@dataclass(frozen=True)
class Trial:
    """Settings and the FID they had in each round, by the number of images."""

    settings: SamplingSettings
    fids: dict[int, float]

    @property
    def last(self) -> tuple[int, float]:
        """Sorts by what is known best: trials that came further come first, then the lower FID."""
        count = max(self.fids)
        return -count, self.fids[count]


@dataclass(frozen=True)
class Tuning:
    """trials: the best first. images: how many were made or taken from the cache. facts: of the measurement."""

    trials: list[Trial]
    images: int
    facts: dict[str, Any]

    @property
    def best(self) -> SamplingSettings:
        return self.trials[0].settings


def rounds(budget: int, first: int) -> list[tuple[int, int]]:
    """(how many trials, how many images of each) of every round: as many trials as the budget of images allows.

    Each round keeps the better half and doubles the images, those of the round before among them; the last decides between
    two.
    """
    if first < 2:
        raise InputError(f"first is {first}; the first round needs at least 2 images for each trial")

    def plan(trials: int) -> list[tuple[int, int]]:
        found, count = [(trials, first)], first
        while trials > 2:
            trials, count = -(-trials // 2), 2 * count
            found.append((trials, count))
        return found

    trials = 2
    if (least := _cost(plan(2))) > budget:
        raise InputError(f"budget is {budget} images; two trials of {first} images need {least}")
    while _cost(plan(trials + 1)) <= budget:
        trials += 1
    return plan(trials)


def _cost(plan: list[tuple[int, int]]) -> int:
    before = [0, *(count for _, count in plan[:-1])]
    return sum(trials * (count - less) for (trials, count), less in zip(plan, before, strict=True))


def tune(
    sets: SampleSets,
    meter: Meter,
    start: SamplingSettings,
    passes: int,
    budget: int,
    *,
    first: int = 1000,
    seed: int = 0,
    on_round: Callable[[list[Trial]], None] | None = None,
) -> Tuning:
    """Search temperature, selection noise, when the critic chooses and, where the generator allows it, guidance, for the
    lowest FID.

    start: the first trial; the others have its sampler and all of it that is not sought. passes: network passes per image;
    each trial has the steps that come nearest to them from below. budget: images in all. first: images of each trial in
    the first round. seed: of the search. on_round: called after each round with its trials, the best first.
    """
    plan = rounds(budget, first)
    meter = dataclasses.replace(meter, measures=("fid",), resamples=0)
    sets = dataclasses.replace(sets, seed=TUNING_SEED + sets.seed, seeds=1)
    trials = [Trial(settings, {}) for settings in draw_settings(sets.pipe, start, passes, plan[0][0], seed)]
    done: list[Trial] = []
    facts: dict[str, Any] = {}
    for number, (kept, count) in enumerate(plan):
        done, trials = trials[kept:] + done, trials[:kept]
        for place, trial in enumerate(trials):
            what = f"round {number + 1} of {len(plan)}, trial {place + 1} of {kept}"
            found = meter(sets.of(trial.settings, num=count), what)
            trial.fids[count] = found.measures["fid"].value
            facts = found.facts
        trials.sort(key=lambda trial: trial.last)
        if on_round is not None:
            on_round(trials)
    return Tuning(trials + done, _cost(plan), facts)


def draw_settings(
    pipe: TokenCriticPipeline, start: SamplingSettings, passes: int, count: int, seed: int
) -> list[SamplingSettings]:
    """`start`, and `count` - 1 settings of its sampler, half of them near it, with its guidance, and half anywhere in the
    ranges, both spread evenly from a random place; all of the same passes.
    """
    sampler = start.chosen_sampler(pipe.critic is not None)
    rng = np.random.default_rng(seed)
    guided = bool(getattr(getattr(pipe.generator, "config", None), "null_class", False))
    found = [start]
    noises = _CRITIC_NOISES[start.noise_on] if sampler == "critic" else _CONFIDENCE_NOISES
    anywhere = (rng.random(4) + np.arange(count // 2)[:, None] * _STRIDES) % 1
    near = _place(effective(start, pipe), noises) + _NEAR * (2 * anywhere - 1)
    for number, place in enumerate([*near.clip(0, 1), *anywhere][: count - 1]):
        end = np.interp(place[0], (0, 1), _ENDS)
        fall = np.interp(place[1], (0, 1), _FALLS)
        noise = None if sampler in WITHOUT_NOISE else np.exp(np.interp(place[2], (0, 1), np.log(noises)))
        time = float(np.interp(place[3], (0, 1), _TIMES)) if sampler in REVOKING else 0.0
        guidance = start.guidance
        if guided and number >= len(near):
            guidance = float(rng.uniform(*_GUIDANCES)) if rng.random() < 0.5 else 1.0
        found.append(
            dataclasses.replace(
                start,
                temperature=(round(float(end + fall), 3), round(float(end), 3)),
                selection_noise=None if noise is None else round(float(noise), 3),
                critic_from=round(min(1.0, 1 + _ALL_THE_TIME + time), 2),
                critic_until=round(max(0.0, time - _ALL_THE_TIME), 2),
                guidance=round(guidance, 2),
            )
        )
    return [at_passes(pipe, one, passes) for one in found]


def _place(settings: dict[str, Any], noises: tuple[float, float]) -> np.ndarray:
    """Where in the ranges effective settings lie, each from 0 to 1: end and fall of the temperature, noise, time."""
    hot, end = settings["temperature"]
    noise = np.log(np.clip(settings["selection_noise"] or noises[0], *noises))
    time = 0.0
    if settings["critic_until"]:
        time = settings["critic_until"] + _ALL_THE_TIME
    elif settings["critic_from"] is not None and settings["critic_from"] < 1:
        time = settings["critic_from"] - 1 - _ALL_THE_TIME
    values = (end, hot - end, noise, time)
    ranges = (_ENDS, _FALLS, np.log(noises), _TIMES)
    return np.array([np.interp(value, ends, (0, 1)) for value, ends in zip(values, ranges, strict=True)])


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


def evidence_file(folder: Path, sampler: Sampler, passes: int) -> Path:
    """Where the evidence of a tuning lies."""
    return folder / f"tuning-{sampler}-{passes}.json"


def write_evidence(folder: Path, pipe: TokenCriticPipeline, passes: int, found: Tuning) -> Path:
    """Every trial beside the model, the best first, with what they were measured with."""
    sampler = found.best.chosen_sampler(pipe.critic is not None)
    file = evidence_file(folder, sampler, passes)
    trials = [
        {"settings": effective(trial.settings, pipe), "fid": {str(count): fid for count, fid in trial.fids.items()}}
        for trial in found.trials
    ]
    facts = {name: found.facts[name] for name in ("features", "reference", "versions")}
    best = {"sampler": sampler, "passes": passes, "best": dataclasses.asdict(found.best), "images": found.images}
    write_json(file, {**best, **facts, "models": found.facts["images"]["models"], "trials": trials})
    return file


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


def write_defaults(folder: Path, settings: SamplingSettings) -> None:
    """Make settings the defaults of a model folder; nothing else in it changes."""
    facts = read_json(folder / PIPELINE)
    write_json(folder / PIPELINE, facts | {"sampling": json.loads(json.dumps(dataclasses.asdict(settings)))})
