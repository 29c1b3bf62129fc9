"""What happens to tokens while images are sampled: which are taken back, and whether the critic likes the next draw better.

A score here is always the critic's own, without selection noise, also where another scorer chose. "Better" is in the eyes
of the very critic that chose: tokens of low score are drawn again, and a low score tends to rise by chance alone. So what
became of tokens taken back is to be held against what became of the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.progress import Progress
from tokencritic.sampling.propose import Proposal, evaluating
from tokencritic.sampling.scorers import CriticScorer
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.sampling.trace import Trace, TraceStep


@dataclass(frozen=True)
class Outcome:
    """What became of some tokens from one proposal to the next, as sums.

    tokens: how many there are. same: those that have the same code again. higher: those of a higher score. gain: the sum of
    the changes of their scores.
    """

    tokens: int = 0
    same: int = 0
    higher: int = 0
    gain: float = 0.0

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.tokens + other.tokens, self.same + other.same, self.higher + other.higher, self.gain + other.gain
        )

    def as_json(self, images: int) -> dict[str, float]:
        """tokens per image, and of them the shares and the mean; NaN where there are no tokens."""
        of_tokens = {name: _ratio(getattr(self, name), self.tokens) for name in ("same", "higher", "gain")}
        return {"per_image": _ratio(self.tokens, images), **of_tokens}


@dataclass(frozen=True)
class StepCounts:
    """One step of some images, as sums over their tokens.

    index: of the step. tokens: of all images. score: the sum of the proposal's scores. hidden: how many are hidden next.
    kept_before: how many were visible when the step began.
    taken_back: what became of tokens that were visible and are hidden now; drawn_again: of those that have just been drawn
    and are hidden again; kept: of those that stay or become visible. All are empty after the last step.
    """

    index: int
    images: int
    tokens: int
    score: float
    hidden: int
    kept_before: int
    taken_back: Outcome
    drawn_again: Outcome
    kept: Outcome

    def __add__(self, other: "StepCounts") -> "StepCounts":
        """The same step of other images."""
        if self.index != other.index:
            raise InputError(f"step {self.index} and step {other.index} cannot be counted together")
        names = [name for name in self.__dataclass_fields__ if name != "index"]
        return StepCounts(self.index, *(getattr(self, name) + getattr(other, name) for name in names))


def count_redraws(steps: Sequence[TraceStep], scores: Sequence[Tensor]) -> list[StepCounts]:
    """steps: of one trace, in order. scores: the critic's for the proposal of each step, (b, n) in [0, 1]."""
    if len(steps) != len(scores):
        raise InputError(f"there are scores of {len(scores)} steps for {len(steps)} steps; give one for each")
    counts = []
    for place, step in enumerate(steps):
        groups = {"taken_back": step.taken_back, "drawn_again": step.hidden & step.drawn, "kept": ~step.hidden}
        if place + 1 < len(steps):
            same = steps[place + 1].proposal == step.proposal
            gain = scores[place + 1].double() - scores[place].double()
            outcomes = {name: _outcome(same[where], gain[where]) for name, where in groups.items()}
        else:
            outcomes = {name: Outcome() for name in groups}
        counts.append(
            StepCounts(
                index=step.index,
                images=len(step.proposal),
                tokens=step.proposal.numel(),
                score=scores[place].double().sum().item(),
                hidden=int(step.hidden.sum()),
                kept_before=int((~step.drawn).sum()),
                **outcomes,
            )
        )
    return counts


def _outcome(same: Tensor, gain: Tensor) -> Outcome:
    return Outcome(len(same), int(same.sum()), int((gain > 0).sum()), gain.sum().item())


def watch(
    pipe: TokenCriticPipeline, labels: Tensor, seeds: Tensor, settings: SamplingSettings, batch_size: int = 64
) -> list[StepCounts]:
    """Sample images and count, step by step; memory does not grow with their number.

    labels, seeds: (b,). The critic looks at every proposal once more than sampling needs, at the last one too.
    """
    if settings.candidates > 1:
        raise InputError(f"candidates is {settings.candidates}; steps can be watched of images made without rejection")
    if pipe.critic is None:
        raise InputError("the model has no critic to say what it thinks of each step")
    sampler = settings.chosen_sampler(has_critic=True)
    totals: list[StepCounts] = []
    with Progress(len(labels), f"watching {sampler}", "images", shown=len(labels) > batch_size) as progress:
        for part, part_seeds in zip(labels.split(batch_size), seeds.split(batch_size), strict=True):
            trace = Trace()
            pipe.sample_tokens(part, part_seeds, settings, batch_size, trace.on_step_end)
            counts = count_redraws(trace.steps, _scores(pipe, trace.steps, part, part_seeds))
            totals = [total + count for total, count in zip(totals, counts, strict=True)] if totals else counts
            progress.advance(len(part))
    return totals


@torch.no_grad()
def _scores(pipe: TokenCriticPipeline, steps: Sequence[TraceStep], labels: Tensor, seeds: Tensor) -> list[Tensor]:
    scorer, found = CriticScorer(pipe.critic, selection_noise=0.0), []  # pyright: ignore[reportArgumentType]
    labels, seeds = labels.to(pipe.device), seeds.to(pipe.device)
    with evaluating(pipe.critic):
        for step in steps:
            proposal = Proposal(step.proposal.to(pipe.device), step.drawn.to(pipe.device), labels, seeds)
            found.append(scorer(proposal).cpu())
    return found


def sampling_report(counts: Sequence[StepCounts]) -> dict[str, Any]:
    """Counted steps as JSON values: `steps`, each by itself, and `total`, over all of them.

    `taken_back`, `drawn_again` and `kept` each have the tokens `per_image`, and of these the shares that came out the `same`
    and of `higher` score in the next proposal, and the mean `gain` in score; the last step has no next one. `of_kept` is the
    share of tokens visible when the step began that were taken back. In `total`, per_image is the sum over all steps.
    """
    images, last = counts[0].images, len(counts) - 1
    groups = ("taken_back", "drawn_again", "kept")
    steps = []
    for place, step in enumerate(counts):
        found: dict[str, Any] = {"step": step.index, "mean_score": _ratio(step.score, step.tokens)}
        found["hidden_per_image"] = _ratio(step.hidden, images)
        if place < last:
            found["of_kept"] = _ratio(step.taken_back.tokens, step.kept_before)
            found |= {name: getattr(step, name).as_json(images) for name in groups}
        steps.append(found)
    sums = {name: sum((getattr(step, name) for step in counts), Outcome()) for name in groups}
    total = {"mean_score": steps[-1]["mean_score"], **{name: some.as_json(images) for name, some in sums.items()}}
    return {"images": images, "steps": steps, "total": total}


def _ratio(part: float, whole: int) -> float:
    return part / whole if whole else float("nan")
