"""One model measured at many settings: the trade-off of quality and diversity."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokencritic.errors import InputError
from tokencritic.evaluation.evaluate import Evaluation, Meter
from tokencritic.evaluation.samples import ModelSamples, SampleSets
from tokencritic.sampling.loop import Temperature
from tokencritic.sampling.settings import RejectBy, Sampler, SamplingSettings

# Values for every sampler under None; those of a sampler by its name, which then has no others.
Axis = Mapping[Sampler | None, Sequence[Any]]

WITHOUT_NOISE: frozenset[Sampler] = frozenset({"chance", "random", "halton"})


@dataclass(frozen=True)
class Grid:
    """The settings to try: all combinations, for each sampler. An axis without values stays as the sampler starts."""

    samplers: Sequence[Sampler]
    steps: Axis = field(default_factory=dict)
    temperatures: Axis = field(default_factory=dict)
    noises: Axis = field(default_factory=dict)
    guidances: Axis = field(default_factory=dict)
    candidates: Axis = field(default_factory=dict)
    reject_by: RejectBy = "classifier"

    def settings(self, start: Callable[[Sampler], SamplingSettings]) -> list[SamplingSettings]:
        """Every combination once, in the order in which the values were given. start: the settings of a sampler."""
        if not self.samplers:
            raise InputError("samplers is empty; name at least one")
        axes: dict[str, Axis] = {
            "steps": self.steps,
            "temperature": self.temperatures,
            "selection_noise": self.noises,
            "guidance": self.guidances,
            "candidates": self.candidates,
        }
        found: list[SamplingSettings] = []
        for sampler in self.samplers:
            values = {name: list(axis.get(sampler, axis.get(None, ()))) for name, axis in axes.items()}
            if sampler in WITHOUT_NOISE:
                values["selection_noise"] = []
            given = {name: some for name, some in values.items() if some}
            own = dataclasses.replace(start(sampler), reject_by=self.reject_by)
            for combination in itertools.product(*given.values()):
                changes = dict(zip(given, combination, strict=True))
                found.append(dataclasses.replace(own, **changes))
        return list(dict.fromkeys(found))


def sweep(
    sets: SampleSets,
    meter: Meter,
    settings: Sequence[SamplingSettings],
    on_row: Callable[[list[dict[str, Any]]], None] | None = None,
) -> list[dict[str, Any]]:
    """One row for each of the settings: what they are, what they cost, and the measures.

    on_row: called with the rows so far after each one. What was done before is in the cache, so a sweep that was cut off
    goes on.
    """
    if not settings:
        raise InputError("settings is empty; there is nothing to sweep over")
    rows: list[dict[str, Any]] = []
    for number, one in enumerate(settings):
        samples = sets.of(one)
        found = meter(samples, f"settings {number + 1} of {len(settings)}")
        rows.append(row_of(samples, found))
        if on_row is not None:
            on_row(rows)
    return rows


def row_of(samples: Sequence[ModelSamples], found: Evaluation) -> dict[str, Any]:
    """An evaluation as one flat row. seconds_per_image: of sampling, as it was when the samples were made."""
    made: dict[str, Any] = samples[0].facts["settings"]
    start, end = made["temperature"]
    row = {
        "sampler": made["sampler"],
        "steps": made["steps"],
        "temperature_start": start,
        "temperature_end": end,
        **{name: made[name] for name in ("selection_noise", "noise_on", "critic_from", "critic_until", "schedule")},
        **{name: made[name] for name in ("passes_per_level", "guidance", "candidates", "reject_by")},
        "passes": samples[0].passes,
        "seconds_per_image": sum(one.seconds for one in samples) / len(samples),
        "num": len(samples[0]),
        "sets": len(samples),
    }
    for name, measured in found.measures.items():
        row |= {name: measured.value, f"{name}_spread": measured.spread}
    return row


def parse_temperature(text: str) -> Temperature:
    """ "0.9" -> 0.9 and "1.1:0.7" -> (1.1, 0.7), from start to end."""
    start, colon, end = text.partition(":")
    try:
        return (float(start), float(end)) if colon else float(start)
    except ValueError as error:
        raise InputError(f"temperature {text!r} is no number and no START:END") from error
