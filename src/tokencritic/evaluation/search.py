"""Evaluation of one model at many settings: a sweep over a grid, or tuning by successive halving."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokencritic.bounds import SETTINGS, TRIALS
from tokencritic.errors import InputError
from tokencritic.evaluation.evaluate import Evaluation, Meter
from tokencritic.evaluation.samples import ModelSamples, SampleSets
from tokencritic.files import write_json
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.sampling.model_settings import tuning_file
from tokencritic.sampling.samplers import SAMPLERS
from tokencritic.sampling.settings import SamplingSettings, temperature_range

# The values of one setting, by the name of a sampler. The key None applies to all other samplers.
Axis = Mapping[str | None, Sequence[Any]]

# The seed of the first image. Evaluations use other seeds, so that they do not measure the images used for tuning.
TUNING_SEED = 2**56

# Ranges of tuning, with noise on a logarithmic scale. The temperature falls from end + fall to end. One number t
# encodes the critic window: (start, end) = (min(1, 1 + a + t), max(0, t - a)) with a = _ALL_THE_TIME. For |t| <= a it
# is fully open.
_CONFIDENCE_NOISES = (2.0, 32.0)
_CRITIC_NOISES = {"uniform": (0.1, 4.0), "gumbel": (0.5, 6.0)}
_ENDS, _FALLS, _GUIDANCES, _TIMES = (0.4, 1.1), (0.0, 0.7), (1.1, 4.0), (-1.0, 1.0)
_ALL_THE_TIME = 0.15
_REMASKING = {"remask_quota": (0.2, 1.0), "remask_noise": (0.1, 2.0)}  # settings of the inline critic
# Half of the trials are within this share of each range of the first trial.
_NEAR = 0.15
# The root x of x^(d + 1) = x + 1 for d dimensions. Multiples of the powers of 1/x, modulo 1, cover the unit cube more
# evenly than random points (Roberts, 2018).
_ROOTS = {4: 1.1673039782614187, 6: 1.1127756842787055}


def settings_grid(
    samplers: Sequence[str], axes: Mapping[str, Axis], start: Callable[[str], SamplingSettings]
) -> list[SamplingSettings]:
    """Return all combinations of values for each sampler without duplicates, in the order of the values.

    axes: the values of each setting by its name. A setting without values keeps that of `start`.
    start: returns the initial settings of a sampler.
    """
    found: dict[SamplingSettings, None] = {}
    for sampler in samplers:
        values = {name: axis.get(sampler, axis.get(None, ())) for name, axis in axes.items()}
        if "selection_noise" not in SAMPLERS[sampler].settings:
            values["selection_noise"] = ()
        given, own = {name: some for name, some in values.items() if some}, start(sampler)
        if (count := math.prod(map(len, given.values()))) > SETTINGS:
            raise InputError(f"the values make {count} settings of {sampler}; expected at most {SETTINGS}")
        for some in itertools.product(*given.values()):
            found[dataclasses.replace(own, **dict(zip(given, some, strict=True)))] = None
    return list(found)


def sweep(sets: SampleSets, meter: Meter, settings: Sequence[SamplingSettings]) -> Iterator[dict[str, Any]]:
    """Evaluate each of the settings and yield one row with settings, cost and metrics."""
    for number, one in enumerate(settings):
        samples = sets.of(one)
        yield row_of(samples, meter(samples, f"settings {number + 1} of {len(settings)}"))


def row_of(samples: Sequence[ModelSamples], found: Evaluation) -> dict[str, Any]:
    """Convert an evaluation to one flat row with settings, cost and metrics.

    `seconds_per_image` is the sampling time, recorded when the images were sampled.
    """
    row: dict[str, Any] = {}
    for name, value in samples[0].facts["settings"].items():
        if name in ("temperature", "critic_window"):
            row[f"{name}_start"], row[f"{name}_end"] = value or (None, None)
        else:
            row[name] = value
    row |= {name: found.facts[name] for name in ("nfe", "cost", "seconds_per_image")}
    row |= {"num": len(samples[0]), "seed_sets": len(samples)}
    for name, metric in found.metrics.items():
        row |= {name: metric.value, f"{name}_std": metric.std}
    return row


@dataclass(frozen=True)
class Trial:
    """Settings and their FID in each round.

    fids: FID by the number of images of the round.
    """

    settings: SamplingSettings
    fids: dict[int, float]

    @property
    def last(self) -> tuple[int, float]:
        """A sort key: trials with more images come first, then those with lower FID."""
        count = max(self.fids)
        return -count, self.fids[count]


def rounds(budget: int, first: int) -> list[tuple[int, int]]:
    """Plan the rounds of tuning: (trials, images per trial) of each round, with as many trials as the budget allows.

    budget: the total number of images to sample.
    first: images per trial in the first round.

    Each round keeps the better half of the trials and doubles the images of each. Images of earlier rounds are reused.
    The last round has two trials.
    """
    if first < 2:
        raise InputError(f"first is {first}; expected at least 2 images for each trial of the first round")
    if budget < 2 * first:
        raise InputError(f"budget is {budget} images; expected at least {2 * first} for two trials of {first}")
    if budget > TRIALS * first:
        raise InputError(f"budget is {budget} images; expected at most {TRIALS} times first, {TRIALS * first}")
    plan, cost = [(2, first)], 2 * first
    best = plan
    while cost <= budget:
        best, most = plan, plan[0][0] + 1
        plan, cost = [(most, first)], most * first
        while plan[-1][0] > 2:
            trials, count = plan[-1]
            plan.append((-(-trials // 2), 2 * count))
            cost += plan[-1][0] * count
    return best


def tune(
    sets: SampleSets,
    meter: Meter,
    start: SamplingSettings,
    nfe: int,
    budget: int,
    *,
    first: int = 1000,
    seed: int = 0,
    on_round: Callable[[list[Trial]], object] = lambda trials: None,
) -> tuple[list[Trial], dict[str, Any]]:
    """Tune the settings of a sampler for the lowest FID by successive halving.

    The temperature, the selection noise and the critic window are tuned. Guidance is tuned if the generator has a null
    class. Quota and noise of re-masking are tuned if the sampler uses an inline critic.

    start: the settings of the first trial. The other trials keep its sampler and the settings that are not tuned.
    nfe: network evaluations per image. Each trial takes the number of steps that fits.
    budget: the total number of images.
    first: images per trial in the first round.
    seed: determines the settings of the trials.
    on_round: called after each round with its trials, best first.

    Returns all trials, best first, and the facts of the evaluation.
    """
    plan = rounds(budget, first)
    meter = dataclasses.replace(meter, metrics=("fid",), resamples=0)
    sets = dataclasses.replace(sets, seed=TUNING_SEED + sets.seed, seed_sets=1)
    trials = [Trial(settings, {}) for settings in trial_settings(sets.pipe, start, nfe, plan[0][0], seed)]
    done: list[Trial] = []
    facts: dict[str, Any] = {}
    for number, (kept, count) in enumerate(plan):
        done, trials = trials[kept:] + done, trials[:kept]
        for place, trial in enumerate(trials):
            what = f"round {number + 1} of {len(plan)}, trial {place + 1} of {kept}"
            found = meter(sets.of(trial.settings, num=count), what)
            trial.fids[count] = found.metrics["fid"].value
            facts = found.facts
        trials.sort(key=lambda trial: trial.last)
        on_round(trials)
    return trials + done, facts


def trial_settings(
    pipe: TokenCriticPipeline, start: SamplingSettings, nfe: int, count: int, seed: int
) -> list[SamplingSettings]:
    """Return the settings of all trials: `start`, and `count` - 1 others of its sampler at the same NFE.

    Half of the others are near `start`, the other half anywhere in the ranges. Both halves are a low-discrepancy
    sequence with a random offset. The settings near `start` keep its guidance.
    """
    row = start.row(pipe.critic is not None)
    rng = np.random.default_rng(seed)
    found = [start]
    noises = _CRITIC_NOISES[start.noise_kind] if row.uses_critic else _CONFIDENCE_NOISES
    remasking = [name for name in _REMASKING if name in row.settings]
    ranges = np.array([_ENDS, _FALLS, np.log(noises), _TIMES, *(_REMASKING[name] for name in remasking)])
    strides = _ROOTS[len(ranges)] ** -np.arange(1.0, len(ranges) + 1)
    anywhere = (rng.random(len(ranges)) + np.arange(count // 2)[:, None] * strides) % 1
    near = _place(start.of(pipe.critic is not None), ranges) + _NEAR * (2 * anywhere - 1)
    for number, place in enumerate([*near.clip(0, 1), *anywhere][: count - 1]):
        end, fall, noise, time, *shares = (ranges[:, 0] + place * np.ptp(ranges, axis=1)).tolist()
        time, guidance = time if row.revokes else 0.0, start.guidance
        if pipe.generator.null_class and number >= len(near):
            guidance = float(rng.uniform(*_GUIDANCES)) if rng.random() < 0.5 else 1.0
        found.append(
            dataclasses.replace(
                start,
                temperature=(round(end + fall, 3), round(end, 3)),
                selection_noise=round(math.exp(noise), 3) if "selection_noise" in row.settings else None,
                critic_window=(round(min(1.0, 1 + _ALL_THE_TIME + time), 2), round(max(0.0, time - _ALL_THE_TIME), 2)),
                guidance=round(guidance, 2),
                **{name: round(share, 3) for name, share in zip(remasking, shares, strict=True)},
            )
        )
    return [pipe.sampling.fitted(one, nfe) for one in found]


def _place(settings: SamplingSettings, ranges: np.ndarray) -> np.ndarray:
    """Return the position of settings in the ranges, each coordinate in [0, 1].

    The coordinates are end and fall of the temperature, logarithm of the noise, and encoded critic window. For the
    inline critic, quota and noise of re-masking follow.
    """
    hot, end = temperature_range(settings.temperature)
    noise = math.log(settings.selection_noise) if settings.selection_noise else -math.inf
    (since, until), time = settings.critic_window, 0.0
    if until > 0:
        time = until + _ALL_THE_TIME
    elif since < 1:
        time = since - 1 - _ALL_THE_TIME
    remasking = (settings.remask_quota, settings.remask_noise)[: len(ranges) - 4]
    values = (end, hot - end, noise, time, *remasking)
    return np.array([np.interp(value, ends, (0, 1)) for value, ends in zip(values, ranges, strict=True)])


def write_tuning(
    folder: Path, pipe: TokenCriticPipeline, nfe: int, trials: Sequence[Trial], facts: Mapping[str, Any]
) -> Path:
    """Write all trials and the facts of their evaluation to the model folder.

    trials, facts: as returned by `tune`.
    """
    has_critic, best = pipe.critic is not None, trials[0].settings
    sampler = best.row(has_critic).name
    images = sum(max(one.fids) for one in trials)
    head = {"sampler": sampler, "nfe": nfe, "best": dataclasses.asdict(best), "images": images}
    shared = {name: facts[name] for name in ("features", "reference", "versions")}
    tried = [{"settings": one.settings.in_effect(has_critic), "fid": one.fids} for one in trials]
    file = tuning_file(folder, sampler, nfe)
    write_json(file, {**head, **shared, "models": facts["images"]["models"], "trials": tried})
    return file
