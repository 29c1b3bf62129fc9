"""The paper's tables for one model: baseline, critic and its control, refinement and rejection, each with what it costs."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tokencritic.evaluation.evaluate import Evaluation, Meter
from tokencritic.evaluation.report import TITLES, explain, number, settings_text, table
from tokencritic.evaluation.samples import Refinement, SampleSets
from tokencritic.evaluation.search import row_of
from tokencritic.evaluation.tuned_settings import TUNED, Evidence, at_passes, settings_from
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.sampling.settings import REFINING, Sampler, SamplingSettings

# Of the sampler that chooses by chance where the critic would: what is not gained over it is not the critic's doing.
CONTROL = "Taken back by chance"
_NOT_TUNED, _AS_THE_CRITIC = "not tuned", "not tuned: the critic's settings"


@dataclass(frozen=True)
class Line:
    """One row of the comparison: how its images are made. tuned: in words, whether a tuning found its settings."""

    name: str
    settings: SamplingSettings
    tuned: str
    refinement: Refinement | None = None


@dataclass(frozen=True)
class Compared:
    """A line with its numbers. row: all of it, flat, for a CSV."""

    line: Line
    row: dict[str, Any]
    evaluation: Evaluation


def comparison_lines(
    pipe: TokenCriticPipeline,
    steps: int,
    tuned: Callable[[Sampler, int], Evidence | None],
    candidates: Sequence[int] = (),
) -> list[Line]:
    """MaskGIT at T and 2T steps, the critic and its control at T, the baseline refined, and MaskGIT and critic with rejection.

    Lines that need a part which the model lacks are left out. steps: T. tuned: the settings known to be best for a sampler at
    a number of passes, or None. candidates: of rejection; the paper's acceptance rates of 20 % and 10 % are 5 and 10.
    """

    def line(name: str, sampler: Sampler, count: int) -> Line:
        plain = pipe.settings(sampler=sampler, steps=count, candidates=1)
        passes = plain.passes(pipe.tokenizer.num_tokens, pipe.critic is not None)
        found = tuned(sampler, passes)
        settings = plain if found is None else found.settings
        settings = dataclasses.replace(settings, sampler=sampler, steps=count, candidates=1)
        return Line(f"{name}, {count} steps", settings, _worth(found, pipe, passes))

    lines = [line("MaskGIT", "confidence", count) for count in (steps, 2 * steps)]
    plain = [lines[0]]
    if pipe.critic is not None:
        critic = line("Token-Critic", "critic", steps)
        refinement = Refinement(0.6, dataclasses.replace(critic.settings, **REFINING))
        refined = dataclasses.replace(plain[0], name=f"{plain[0].name}, refined by the critic", refinement=refinement)
        control = line(CONTROL, "chance", steps)
        if control.tuned == _NOT_TUNED:
            control = dataclasses.replace(control, settings=critic.settings.by_chance(), tuned=_AS_THE_CRITIC)
        lines += [critic, control, refined]
        plain.append(critic)
    rankers = [name for name in ("classifier", "critic") if name in pipe.parts]
    for ranker in rankers:
        for one in plain:
            for count in candidates:
                chosen = dataclasses.replace(one.settings, candidates=count, reject_by=ranker)
                name = f"{one.name}, best {100 / count:.3g} % by the {ranker}"
                lines.append(dataclasses.replace(one, name=name, settings=chosen))
    return lines


def lines_at_passes(
    pipe: TokenCriticPipeline, passes: Sequence[int], tuned: Callable[[Sampler, int], Evidence | None]
) -> list[Line]:
    """MaskGIT, the critic and its control at equal network passes, each with the settings known to be best there.

    The paper's Table 1 has equal steps, at which the critic takes twice the passes.
    """
    lines = []
    samplers: dict[Sampler, str] = {"confidence": "MaskGIT"}
    if pipe.critic is not None:
        samplers |= {"critic": "Token-Critic", "chance": CONTROL}
    for count in passes:
        for sampler, name in samplers.items():
            found = tuned(sampler, count)
            settings, worth = settings_from(found, pipe, sampler, count), _worth(found, pipe, count)
            if sampler == "chance" and found is None:
                settings, worth = at_passes(pipe, lines[-1].settings.by_chance(), count), _AS_THE_CRITIC
            lines.append(Line(f"{name}, {settings.steps} steps", settings, worth))
    return lines


def _worth(found: Evidence | None, pipe: TokenCriticPipeline, passes: int) -> str:
    return _NOT_TUNED if found is None else found.worth(pipe, passes)


def compare(sets: SampleSets, meter: Meter, lines: Sequence[Line]) -> list[Compared]:
    """Measure every line alike."""
    done: list[Compared] = []
    for place, line in enumerate(lines):
        samples = sets.of(line.settings, line.refinement)
        found = meter(samples, f"{line.name} ({place + 1} of {len(lines)})")
        row = {"name": line.name, **row_of(samples, found)}
        row["refined"] = None if line.refinement is None else line.refinement.ratio
        done.append(Compared(line, row, found))
    return done


def comparison_table(done: Sequence[Compared]) -> str:
    """The rows with passes, time and metrics."""
    names = list(done[0].evaluation.metrics)
    header = ["", "passes", "ms/image", *(TITLES[name] for name in names)]
    rows = []
    for one in done:
        costs = [str(one.row["passes"]), f"{1000 * one.row['seconds_per_image']:.1f}"]
        metrics = [number(name, one.evaluation.metrics[name]) for name in names]
        rows.append([one.line.name, *costs, *metrics])
    return table(header, rows)


def comparison_text(done: Sequence[Compared]) -> str:
    """The table between what it was measured with and the settings of its samplers."""
    first = done[0].evaluation
    made: dict[str, Any] = first.facts["images"]
    over = "; ".join(sorted({metric.std_over for metric in first.metrics.values() if metric.std_over}))
    about = [f"{made['num']} images in each of {made['seed_sets']} seed sets; {explain(first.facts)}"]
    about += [f"standard deviation over {over}"] if over else []
    plain = [one for one in done if one.line.refinement is None and one.line.settings.candidates == 1]
    used = [
        f"{one.line.name}: {settings_text(one.evaluation.facts['images']['settings'])}, {one.line.tuned}"
        for one in plain
    ]
    if len({one.line.tuned.startswith(TUNED) for one in plain}) > 1:
        used.append(
            "Not all samplers are tuned, which favours those that are: "
            "run `token-critic tune --set_defaults false` for the others."
        )
    return "\n".join([*about, "", comparison_table(done), "", *used])
