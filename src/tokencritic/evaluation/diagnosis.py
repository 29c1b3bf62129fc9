"""Diagnosis of a critic: its scores of held-out images, and the effect of its choices during sampling.

Held-out images are masked, filled in and scored exactly as in critic training, so the numbers match those of training.

During sampling, scores are always the critic's, without selection noise, even if another scorer selects the tokens.
Low scores tend to rise by regression to the mean. Compare the re-masked tokens with the other groups for this reason.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokencritic.contracts import evaluating
from tokencritic.data.order import hold_out, spaced
from tokencritic.data.tokens import TokenArrays
from tokencritic.errors import InputError, check_at_least
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.progress import Progress
from tokencritic.sampling.scorers import CriticScorer
from tokencritic.sampling.settings import SamplingSettings, Temperature
from tokencritic.sampling.trace import Trace, TraceStep
from tokencritic.scoring import Proposal
from tokencritic.training.losses import critic_auc, critic_auc_within_image, critic_loss
from tokencritic.training.token_tasks import read_rows

RATIO_BINS = 4
SCORE_BINS = 20
CALIBRATION_BINS = 10
# Groups of tokens at a step: visible before and hidden after; sampled and hidden again; visible after.
GROUPS = ("remasked", "resampled", "kept")
_OUTCOMES = ("per_image", "same", "higher", "gain")


class Judged(NamedTuple):
    """Partly resampled images with the critic's logits. All tensors are (b, n) on the CPU.

    logits: float, the critic's logits, including the log-odds offset if the critic is ratio-conditioned.
    mask: bool, True where a token was hidden and resampled.
    unchanged: bool, True where the token equals the original, which includes every position outside the mask.
    log_probs: float, the generator's log-probability of each resampled token; +inf elsewhere.
    """

    logits: Tensor
    mask: Tensor
    unchanged: Tensor
    log_probs: Tensor


def held_out_rows(arrays: TokenArrays, num: int, share: float) -> Tensor:
    """Return up to `num` evenly spaced rows that training holds out: (k,) int64.

    share: the `held_out` of the training run; 1 selects from all rows, for tokens that no training has seen.
    """
    check_at_least(1, num=num)
    if not (0 < share <= 0.5 or share == 1):
        raise InputError(f"held_out is {share}; expected a value in (0, 0.5], or 1 for tokens that training never saw")
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
    """Mask, fill in and score rows of token arrays, with the masks and seeds of the validation in critic training.

    rows: (b,) int64.
    temperature: sampling temperature of the generator.
    """
    assert pipe.critic is not None
    parts = []
    with evaluating(*pipe.critic.networks), Progress(len(rows), "judging held-out images", "images") as progress:
        for part in rows.split(batch_size):
            tokens, labels, seeds = read_rows(arrays, part, None, seed, pipe.device)
            known = labels if pipe.generator.num_classes else None
            found = critic_loss(pipe.critic, pipe.generator, tokens, known, seeds, temperature=temperature)
            unchanged, log_probs = found.proposal.tokens == tokens, found.proposal.confidence()
            parts.append([value.cpu() for value in (found.logits.float(), found.mask, unchanged, log_probs)])
            progress.advance(len(part))
    return Judged(*map(torch.cat, zip(*parts, strict=True)))


def held_out_report(judged: Judged) -> dict[str, Any]:
    """Summarise judged images as JSON values: over `all` images, and `by_ratio` in bins of the mask ratio.

    A bin with `ratio` (low, high) contains the images whose mask ratio is in (low, high]. A critic that is not
    ratio-conditioned does not know the mask ratio. If calibrated over all images, it is not calibrated within a bin.
    """
    num_tokens = judged.mask.shape[1]
    bins = ((judged.mask.sum(1) * RATIO_BINS + num_tokens - 1) // num_tokens).clamp(min=1)  # rounded up, in integers
    sections = []
    for high in range(1, RATIO_BINS + 1):
        inside = Judged(*(values[bins == high] for values in judged))
        sections.append({"ratio": ((high - 1) / RATIO_BINS, high / RATIO_BINS), **_section(inside)})
    return {"all": _section(judged), "by_ratio": sections}


def _section(judged: Judged) -> dict[str, Any]:
    """Compute counts, mean scores and histograms by kind of token, AUC and calibration.

    auc: over all tokens, for both training targets.
    auc_within_image: over pairs of tokens of the same image. Sampling only compares tokens within an image. A critic
    that only detects how much of an image was resampled has a high `auc` and an `auc_within_image` of 0.5.
    auc_of_resampled: unchanged against changed tokens among the resampled ones, for the critic and for the generator's
    confidence. The confidence of an exact generator is the probability of being unchanged.
    """
    logits, mask, unchanged, log_probs = judged
    scores = logits.double().sigmoid()
    kinds = {"original": ~mask, "equal": mask & unchanged, "changed": ~unchanged}.items()
    targets = {"masked": ~mask, "changed": unchanged}.items()  # the label 1 of each training `target`
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
    """Count scores in [0, 1] in bins of equal width. A score of 1 belongs to the last bin."""
    return _places(scores, bins).bincount(minlength=bins).tolist()


def reliability(scores: Tensor, real: Tensor, bins: int = CALIBRATION_BINS) -> dict[str, Any]:
    """Compute a reliability curve over bins of equal width in [0, 1], as JSON values.

    scores: any shape, in [0, 1].
    real: bool, the shape of `scores`.

    Returns for each bin the number of tokens (`counts`), their mean score (`scores`) and the share of them that are
    real (`shares`). Both means are NaN for an empty bin. `error` is the expected calibration error: the mean over
    tokens of |mean score - share| of their bin, NaN without tokens.
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
    """Sums over all tokens of a number of images at one sampling step.

    tokens: the number of tokens.
    score: the sum of the critic's scores of the proposal.
    hidden: the number of tokens hidden after the step.
    visible: the number of tokens that were visible before the step.
    outcomes: (3, 4) float64, one row for each of `GROUPS`, 0 at the last step. The columns compare a group with
    the next proposal: number of tokens, number with the same code, number with a higher score, sum of the changes in
    score.
    """

    images: int
    tokens: int
    score: float
    hidden: int
    visible: int
    outcomes: Tensor


def step_sums(steps: Sequence[TraceStep], scores: Sequence[Tensor]) -> list[StepSums]:
    """Sum up each step of a trace.

    steps: the steps of one trace, in order.
    scores: the critic's scores of each step's proposal, (b, n) in [0, 1].
    """
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
    pipe: TokenCriticPipeline, labels: Tensor | None, seeds: Tensor, settings: SamplingSettings, batch_size: int = 64
) -> dict[int, StepSums]:
    """Sample images without rejection and sum up each step. Returns the sums by step index.

    pipe: a pipeline with a critic, which scores every proposal, including the last one.
    labels: (b,) int64, or None without classes.
    seeds: (b,) int64.
    """
    assert pipe.critic is not None
    what, scorer, device = f"watching {settings.row(True).name}", CriticScorer(pipe.critic), pipe.device
    batches: dict[int, list[StepSums]] = {}
    with evaluating(*scorer.networks), Progress(len(seeds), what, "images") as progress:
        for rows in torch.arange(len(seeds)).split(batch_size):
            trace, part = Trace(), None if labels is None else labels[rows]
            pipe.sample_tokens(part, seeds[rows], settings, batch_size=batch_size, on_step=trace)
            here, unused = None if part is None else part.to(device), seeds[rows].to(device)
            made = (Proposal(one.proposal.to(device), one.sampled.to(device), here, unused) for one in trace.steps)
            found = step_sums(trace.steps, [scorer.score(proposal).cpu() for proposal in made])
            for step, sums in zip(trace.steps, found, strict=True):
                batches.setdefault(step.index, []).append(sums)
            progress.advance(len(rows))
    return {index: StepSums(*map(sum, zip(*sums, strict=True))) for index, sums in batches.items()}  # pyright: ignore[reportArgumentType]


def sampling_report(steps: Mapping[int, StepSums]) -> dict[str, Any]:
    """Convert sums of steps to JSON values: each of the `steps`, and their `total`.

    Each of `GROUPS` has these values. The last step has none of them.
    - `per_image`: the number of tokens; in `total`, the sum over all steps.
    - `same`, `higher`: the shares of tokens with the same code and with a higher score in the next proposal.
    - `gain`: the mean change in score.

    `of_visible` is the share of the visible tokens that the step re-masks. The last step does not have it.
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
    """Return the values of `_OUTCOMES` for each group; shares and means are NaN for a group without tokens."""
    counts = outcomes[:, :1]
    values = torch.cat([counts / images, outcomes[:, 1:] / counts], 1).tolist()
    return {name: dict(zip(_OUTCOMES, row, strict=True)) for name, row in zip(GROUPS, values, strict=True)}
