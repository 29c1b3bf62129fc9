"""What a critic says of held-out images whose tokens were partly resampled, and what becomes of tokens while sampling.

Held-out images are masked, filled in and judged exactly as in critic training, so all numbers are those that training works on.

While sampling, a score is always the critic's own, without selection noise, also where another scorer chooses. A low score
tends to rise by chance alone. So compare what becomes of re-masked tokens with what becomes of the others.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokencritic.contracts import Proposal, evaluating
from tokencritic.data.order import hold_out, spaced
from tokencritic.data.tokens import TokenArrays
from tokencritic.errors import InputError, check_at_least
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.progress import Progress
from tokencritic.sampling.scorers import CriticScorer
from tokencritic.sampling.settings import SamplingSettings, Temperature
from tokencritic.sampling.trace import Trace, TraceStep
from tokencritic.training.losses import critic_auc, critic_auc_within_image, critic_loss
from tokencritic.training.token_tasks import read_rows

RATIO_BINS = 4
SCORE_BINS = 20
CALIBRATION_BINS = 10
# Of the tokens at a step: visible and hidden now; just sampled and hidden again; the others, which stay or become visible.
GROUPS = ("remasked", "resampled", "kept")
_OUTCOMES = ("per_image", "same", "higher", "gain")


class Judged(NamedTuple):
    """Images as a critic judged them. All are (b, n), on the CPU.

    logits: float, the critic's, with the log odds of the image if it is ratio-conditioned. mask: bool, what was hidden and
    resampled. unchanged: bool, where the original's code stands, so everywhere outside the mask.
    log_probs: float, the generator's confidence in what it sampled; +inf elsewhere.
    """

    logits: Tensor
    mask: Tensor
    unchanged: Tensor
    log_probs: Tensor


def held_out_rows(arrays: TokenArrays, num: int, share: float) -> Tensor:
    """Up to `num` of the rows that a training with this `held_out` does not learn from, evenly spaced: (k,) int64.

    share: 1 takes all rows, for tokens that no training has seen.
    """
    check_at_least(1, num=num)
    if not (0 < share <= 0.5 or share == 1):
        raise InputError(f"held_out is {share}; it must lie in (0, 0.5], or be 1 for tokens that training never saw")
    held_out = np.arange(len(arrays)) if share == 1 else hold_out(len(arrays), arrays.num_images, share)[1]
    return torch.from_numpy(spaced(held_out, num))


@torch.no_grad()
def judge(
    pipe: TokenCriticPipeline,
    arrays: TokenArrays,
    rows: Tensor,
    seed: int = 0,
    temperature: Temperature = 1.0,
    batch_size: int = 64,
) -> Judged:
    """Hide, fill in and judge some rows of token arrays, with the masks and samples of validation in critic training.

    rows: (b,) int64. temperature: of the sampled tokens.
    """
    assert pipe.critic is not None
    parts = []
    with evaluating(*pipe.critic.networks), Progress(len(rows), "judging held-out images", "images") as progress:
        for part in rows.split(batch_size):
            tokens, labels, seeds = read_rows(arrays, part, None, seed, pipe.device)
            found = critic_loss(pipe.critic, pipe.generator, tokens, labels, seeds, temperature=temperature)
            unchanged, log_probs = found.proposal.tokens == tokens, found.proposal.confidence()
            parts.append([value.cpu() for value in (found.logits.float(), found.mask, unchanged, log_probs)])
            progress.advance(len(part))
    return Judged(*map(torch.cat, zip(*parts, strict=True)))


def held_out_report(judged: Judged) -> dict[str, Any]:
    """Everything that can be said of judged images, as JSON values: of `all` of them, and `by_ratio` in bins of the mask ratio.

    A bin's `ratio` (low, high) takes images with more than `low` and at most `high` of their tokens hidden. A critic that is
    not ratio-conditioned does not know the ratio: calibrated over all images, it is not calibrated within a bin.
    """
    num_tokens = judged.mask.shape[1]
    bins = ((judged.mask.sum(1) * RATIO_BINS + num_tokens - 1) // num_tokens).clamp(min=1)  # rounded up, in integers
    sections = []
    for high in range(1, RATIO_BINS + 1):
        inside = Judged(*(values[bins == high] for values in judged))
        sections.append({"ratio": ((high - 1) / RATIO_BINS, high / RATIO_BINS), **_section(inside)})
    return {"all": _section(judged), "by_ratio": sections}


def _section(judged: Judged) -> dict[str, Any]:
    """Counts, mean scores and histograms by kind of token, and AUC for both targets, over all tokens and within an image.

    Sampling compares tokens of one image alone: a critic that only tells how much of an image was resampled has a high AUC
    over all tokens and 0.5 within an image, and cannot help. auc_of_resampled: equal to the original or changed, among the
    resampled tokens alone, where the generator's confidence can judge too. For an exact generator, confidence is the very
    probability of being equal.
    """
    logits, mask, unchanged, log_probs = judged
    scores = logits.double().sigmoid()
    kinds = {"original": ~mask, "equal": mask & unchanged, "changed": ~unchanged}.items()
    targets = {"masked": ~mask, "changed": unchanged}.items()  # real for a critic of that `target` in training
    judges = {"critic": logits, "confidence": log_probs}.items()
    return {
        "images": len(mask),
        "tokens": {kind: int(where.sum()) for kind, where in kinds},
        "mean_score": {kind: scores[where].mean().item() for kind, where in kinds},
        "histogram": {kind: histogram(scores[where]) for kind, where in kinds},
        "auc": {target: critic_auc(logits, real).item() for target, real in targets},
        "auc_within_image": {target: critic_auc_within_image(logits, real).item() for target, real in targets},
        "auc_of_resampled": {name: critic_auc(some[mask], unchanged[mask]).item() for name, some in judges},
        "calibration": {target: reliability(scores, real) for target, real in targets},
    }


def histogram(scores: Tensor, bins: int = SCORE_BINS) -> list[int]:
    """How many scores lie in each bin of equal width over [0, 1]; 1 is in the last one."""
    return _places(scores, bins).bincount(minlength=bins).tolist()


def reliability(scores: Tensor, real: Tensor, bins: int = CALIBRATION_BINS) -> dict[str, Any]:
    """A reliability curve as JSON values, bin by bin of equal width over [0, 1].

    scores: any shape, in [0, 1]. real: bool, of that shape. Returns the `counts` of tokens in each bin, their mean `scores`
    and the `shares` of them that are real, NaN in an empty bin; and the expected calibration `error`, the mean over tokens of
    |score - share| of their bins, NaN without tokens.
    """
    places = _places(scores, bins)
    counts = places.bincount(minlength=bins)
    sums, reals = (places.bincount(values.flatten().double(), minlength=bins).double() for values in (scores, real))
    error = (sums - reals).abs().sum() / counts.sum()
    curve = {"counts": counts, "scores": sums / counts, "shares": reals / counts, "error": error}
    return {name: values.tolist() for name, values in curve.items()}


def _places(scores: Tensor, bins: int) -> Tensor:
    return (scores.flatten() * bins).long().clamp(max=bins - 1)


class StepSums(NamedTuple):
    """One step of some images, as sums over their tokens.

    tokens: of all images. score: of the step's proposal. hidden: tokens masked next. visible: tokens visible when it began.
    outcomes: (3, 4) float64, a row for each of `GROUPS`. The columns say what becomes of them in the next proposal: how many
    tokens there are, how many have the same code, how many a higher score, and the sum of the changes of their scores. All
    are 0 for the last step.
    """

    images: int
    tokens: int
    score: float
    hidden: int
    visible: int
    outcomes: Tensor


def step_sums(steps: Sequence[TraceStep], scores: Sequence[Tensor]) -> list[StepSums]:
    """steps: of one trace, in order. scores: the critic's for the proposal of each step, (b, n) in [0, 1]."""
    found = []
    for place, step in enumerate(steps):
        outcomes = torch.zeros(len(GROUPS), 4, dtype=torch.float64)
        if place + 1 < len(steps):
            same = steps[place + 1].proposal == step.proposal
            gain = scores[place + 1].double() - scores[place].double()
            for row, where in zip(outcomes, (step.remasked, step.hidden & step.sampled, ~step.hidden), strict=True):
                row[:] = torch.stack([where.sum(), same[where].sum(), (gain[where] > 0).sum(), gain[where].sum()])
        score, hidden, visible = scores[place].double().sum().item(), int(step.hidden.sum()), int((~step.sampled).sum())
        found.append(StepSums(len(step.hidden), step.hidden.numel(), score, hidden, visible, outcomes))
    return found


@torch.no_grad()
def watch(
    pipe: TokenCriticPipeline, labels: Tensor, seeds: Tensor, settings: SamplingSettings, batch_size: int = 64
) -> dict[int, StepSums]:
    """Sample images without rejection by a model with a critic, and sum up each step, by its index.

    labels, seeds: (b,). The critic scores every proposal once more than sampling needs, the last one too.
    """
    assert pipe.critic is not None
    what, scorer, device = f"watching {settings.row(True).name}", CriticScorer(pipe.critic), pipe.device
    batches: dict[int, list[StepSums]] = {}
    with evaluating(*scorer.networks), Progress(len(labels), what, "images") as progress:
        for part, part_seeds in zip(labels.split(batch_size), seeds.split(batch_size), strict=True):
            trace, here = Trace(), part.to(device)
            pipe.sample_tokens(part, part_seeds, settings, batch_size=batch_size, on_step=trace)
            made = (Proposal(one.proposal.to(device), one.sampled.to(device), here, here) for one in trace.steps)
            found = step_sums(trace.steps, [scorer.score(proposal).cpu() for proposal in made])
            for step, sums in zip(trace.steps, found, strict=True):
                batches.setdefault(step.index, []).append(sums)
            progress.advance(len(part))
    return {index: StepSums(*map(sum, zip(*sums, strict=True))) for index, sums in batches.items()}  # pyright: ignore[reportArgumentType]


def sampling_report(steps: Mapping[int, StepSums]) -> dict[str, Any]:
    """Summed-up steps as JSON values: `steps`, each by itself, and `total`, over all of them.

    Each of `GROUPS` has the tokens `per_image`, and of these the shares with the `same` code and a `higher` score in the next
    proposal, and the mean `gain` in score; the last step has no next one. `of_visible` is the share of tokens visible when the
    step began that are re-masked. In `total`, per_image is the sum over all steps.
    """
    images, reports = next(iter(steps.values())).images, []
    for index, step in steps.items():
        found: dict[str, Any] = {"step": index, "mean_score": step.score / step.tokens}
        found["hidden_per_image"] = step.hidden / images
        if index != max(steps):
            found["of_visible"] = (step.outcomes[0, 0] / step.visible).item()
            found |= _outcomes(step.outcomes, images)
        reports.append(found)
    outcomes = torch.stack([step.outcomes for step in steps.values()]).sum(0)
    total = {"mean_score": reports[-1]["mean_score"], **_outcomes(outcomes, images)}
    return {"images": images, "steps": reports, "total": total}


def _outcomes(outcomes: Tensor, images: int) -> dict[str, dict[str, float]]:
    """By group: tokens per image, and of them the shares and the mean; NaN where there are no tokens."""
    counts = outcomes[:, :1]
    values = torch.cat([counts / images, outcomes[:, 1:] / counts], 1).tolist()
    return {name: dict(zip(_OUTCOMES, row, strict=True)) for name, row in zip(GROUPS, values, strict=True)}
