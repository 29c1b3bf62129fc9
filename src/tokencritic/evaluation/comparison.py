"""The paper's tables for one model: baseline, critic, control, refinement and rejection, each with its cost."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokencritic.evaluation.evaluate import METRICS, Evaluation, Meter
from tokencritic.evaluation.report import explain, number, settings_text, table
from tokencritic.evaluation.samples import Refinement, SampleSets
from tokencritic.evaluation.search import row_of
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.sampling.model_settings import REFINING, Spent, Tuned
from tokencritic.sampling.samplers import SAMPLERS
from tokencritic.sampling.settings import REFINEMENT_RATIO, SamplingSettings


@dataclass(frozen=True)
class Line:
    """One row of the comparison before evaluation.

    tuned: whether the settings were tuned, in words.
    refinement: None for images that are not refined.
    """

    name: str
    settings: SamplingSettings
    tuned: str
    refinement: Refinement | None = None


@dataclass(frozen=True)
class Compared:
    """One row of the comparison after evaluation.

    row: name, settings, cost and metrics in one flat dictionary.
    """

    line: Line
    row: dict[str, Any]
    evaluation: Evaluation


def comparison_lines(pipe: TokenCriticPipeline, steps: int, candidates: Sequence[int] = ()) -> list[Line]:
    """Return the lines of the paper's protocol.

    The lines are:
    - all samplers at T steps;
    - MaskGIT refined by the critic and, as the control, at random;
    - MaskGIT at 2T steps;
    - MaskGIT and the critic with rejection.

    Lines that need a missing part are left out. Tuned settings are used if there are any.

    steps: T.
    candidates: numbers of candidates for rejection. The paper's acceptance rates of 20 % and 10 % are 5 and 10.
    """
    once, twice = (
        _lines(pipe, lambda settings, count=count: pipe.sampling.opened(dataclasses.replace(settings, steps=count)))
        for count in (steps, 2 * steps)
    )
    baseline, critic = once.pop("confidence"), once.get("critic")
    lines, plain = [baseline, *once.values()], [baseline]
    if critic is not None:
        chosen = dataclasses.replace(critic.settings, **REFINING)
        for how, settings in (("by the critic", chosen), ("at random", chosen.with_random_remasking())):
            refinement = Refinement(REFINEMENT_RATIO, settings)
            lines.append(dataclasses.replace(baseline, name=f"{baseline.name}, refined {how}", refinement=refinement))
        plain.append(critic)
    lines.append(twice["confidence"])
    for ranker in ("classifier", "critic"):
        for one in plain if ranker in pipe.parts else ():
            for count in candidates:
                chosen = dataclasses.replace(one.settings, candidates=count, reject_by=ranker)
                name = f"{one.name}, best {100 / count:.3g} % by the {ranker}"
                lines.append(dataclasses.replace(one, name=name, settings=chosen))
    return lines


def lines_at_nfe(pipe: TokenCriticPipeline, nfe: Sequence[float], spent: Spent | None = None) -> list[Line]:
    """Return the lines of all samplers at equal NFE, each with the settings tuned at the nearest NFE.

    nfe: the budgets, one group of lines for each.
    spent: the quantity that the budgets limit instead of NFE, see `ModelSettings.fitted`.

    The paper's Table 1 compares at equal steps, where the critic needs twice the network evaluations.
    """
    at_each = (_lines(pipe, lambda one, count=count: pipe.sampling.fitted(one, count, spent), count) for count in nfe)
    return [line for lines in at_each for line in lines.values()]


def _lines(
    pipe: TokenCriticPipeline, fit: Callable[[SamplingSettings], SamplingSettings], nfe: float | None = None
) -> dict[str, Line]:
    """Return one line per sampler, by name. Samplers whose critic is missing are left out.

    fit: sets the number of steps.
    nfe: the NFE at which tuned settings are looked up; None for that of the fitted settings.
    """
    lines: dict[str, Line] = {}
    for row in sorted(SAMPLERS.values(), key=lambda row: row.revokes):  # the baselines first
        judges = pipe.critic, pipe.inline_critic
        needed = (
            judges[0] if row.uses_critic else judges[1] if row.uses_inline_critic else any(judges) or not row.revokes
        )
        if not row.compared or not needed:
            continue
        settings = pipe.settings(sampler=row.name, candidates=1)
        at = nfe or pipe.nfe(fit(settings))
        found = pipe.sampling.tuned(row.name, at)
        as_critic = found is None and row.name == "random-remask" and "critic" in lines
        if found is not None:
            settings = dataclasses.replace(found.settings, sampler=row.name, candidates=1)
        elif as_critic:
            settings = lines["critic"].settings.with_random_remasking()
        settings = fit(settings)
        worth = "not tuned: the critic's settings" if as_critic else _worth(found, pipe, pipe.nfe(settings))
        lines[row.name] = Line(f"{row.title}, {settings.steps} steps", settings, worth)
    return lines


def _worth(found: Tuned | None, pipe: TokenCriticPipeline, nfe: int) -> str:
    """Describe whether settings were tuned for this model and this NFE."""
    if found is None:
        return "not tuned"
    for name, tuned_for in found.models.items():
        part = pipe.parts.get(name)
        if part is None or part.fingerprint() != tuned_for:
            return f"tuned for another {name}"
    return "tuned" if found.nfe == nfe else f"tuned at {found.nfe} NFE"


def compare(sets: SampleSets, meter: Meter, lines: Sequence[Line]) -> Iterator[Compared]:
    """Evaluate all lines, one after the other, with the same seeds, features and reference."""
    for place, line in enumerate(lines):
        samples = sets.of(line.settings, line.refinement)
        found = meter(samples, f"{line.name} ({place + 1} of {len(lines)})")
        refined = None if line.refinement is None else line.refinement.ratio
        yield Compared(line, {"name": line.name, **row_of(samples, found), "refined": refined}, found)


def comparison_text(done: Sequence[Compared]) -> str:
    """Format the comparison as Markdown: facts of the evaluation, table of cost and metrics, and settings."""
    first = done[0].evaluation
    made: dict[str, Any] = first.facts["images"]
    over = "; ".join(sorted({metric.std_over for metric in first.metrics.values() if metric.std_over}))
    about = [f"{made['num']} images in each of {made['seed_sets']} seed sets; {explain(first.facts)}"]
    about += [f"standard deviation over {over}"] if over else []
    rows = []
    for one in done:
        metrics = [number(name, metric) for name, metric in one.evaluation.metrics.items()]
        spent = [one.row["nfe"], f"{one.row['cost']:.2f}", f"{1000 * one.row['seconds_per_image']:.1f}"]
        rows.append([one.line.name, *spent, *metrics])
    shown = table(["", "NFE", "cost", "ms/image", *(METRICS[name].title for name in first.metrics)], rows)
    plain = [one for one in done if one.line.refinement is None and one.line.settings.candidates == 1]
    used = [
        f"{one.line.name}: {settings_text(one.evaluation.facts['images']['settings'])}, {one.line.tuned}"
        for one in plain
    ]
    if len({one.line.tuned.startswith("tuned") for one in plain}) > 1:
        used.append(
            "Not all samplers are tuned; run `token-critic tune --keep_defaults` on the others for a fair comparison."
        )
    return "\n".join([*about, "", shown, "", *used])
