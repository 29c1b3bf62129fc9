"""What a critic says of real images whose tokens were partly drawn again: how well it tells, and how far it can be believed.

The images are hidden, filled in and judged exactly as in critic training, so all numbers here are those that training works on.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokencritic.data.order import hold_out
from tokencritic.data.tokens import TokenArrays
from tokencritic.errors import InputError
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.progress import Progress
from tokencritic.sampling.loop import Temperature
from tokencritic.sampling.propose import evaluating
from tokencritic.training.losses import critic_auc, critic_auc_within_image, critic_loss
from tokencritic.training.token_rows import TokenRows

RATIO_BINS = 4
SCORE_BINS = 20
CALIBRATION_BINS = 10


@dataclass(frozen=True)
class Judged:
    """Images as a critic judged them. All are (b, n), on the CPU.

    logits: float, the critic's, with the log odds of the image for one that is told the ratio. mask: bool, what was hidden and
    drawn again. unchanged: bool, where the original's code stands, so everywhere outside the mask.
    log_probs: float, the generator's confidence in what it drew; +inf elsewhere.
    """

    logits: Tensor
    mask: Tensor
    unchanged: Tensor
    log_probs: Tensor

    def __len__(self) -> int:
        return len(self.mask)

    def __getitem__(self, chosen: Tensor) -> "Judged":
        """Some of the images: by a (b,) bool tensor or by their numbers."""
        return Judged(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @classmethod
    def join(cls, parts: Sequence["Judged"]) -> "Judged":
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    @property
    def kinds(self) -> dict[str, Tensor]:
        """(b, n) bool each, and each token is of one kind: an original; drawn again and equal to it; or changed."""
        return {"original": ~self.mask, "equal": self.mask & self.unchanged, "changed": ~self.unchanged}

    @property
    def targets(self) -> dict[str, Tensor]:
        """(b, n) bool: what counts as real for a critic trained with `target` "masked", the paper's, or "changed"."""
        return {"masked": ~self.mask, "changed": self.unchanged}


@dataclass(frozen=True)
class Reliability:
    """A reliability curve, bin by bin of equal width over [0, 1].

    counts: tokens in the bin. scores: their mean score. shares: the share of them that is real; both NaN in an empty bin.
    error: the expected calibration error, the mean over tokens of |score - share| of their bins; NaN without tokens.
    """

    counts: list[int]
    scores: list[float]
    shares: list[float]
    error: float


def held_out_rows(arrays: TokenArrays, num: int, share: float) -> Tensor:
    """Up to `num` of the rows that a training with this `held_out` does not learn from, evenly chosen: (k,) int64.

    They are the same in every run, whatever its seed. share: 1 takes all rows, for tokens that no training has seen.
    """
    if num < 1:
        raise InputError(f"num is {num}; it must be at least 1")
    if not (0 < share <= 0.5 or share == 1):
        raise InputError(f"held_out is {share}; it must lie in (0, 0.5], or be 1 for tokens that training never saw")
    rows = TokenRows(arrays)
    held_out = np.arange(len(rows)) if share == 1 else hold_out(len(rows), rows.num_images, share)[1]
    chosen = np.linspace(0, len(held_out), min(num, len(held_out)), endpoint=False).astype(int)
    return torch.from_numpy(held_out[chosen])


@torch.no_grad()
def judge(
    pipe: TokenCriticPipeline,
    arrays: TokenArrays,
    rows: Tensor,
    seed: int = 0,
    temperature: Temperature = 1.0,
    batch_size: int = 64,
) -> Judged:
    """Hide, fill in and judge some rows of token arrays, with the masks and draws of validation in critic training.

    rows: (b,) int64. temperature: of the generator's draws. Kept are ten bytes for each token, and no logits of codes.
    """
    read, parts = TokenRows(arrays, seed), []
    with (
        evaluating(pipe.generator, pipe.critic),
        Progress(len(rows), "judging held-out images", "images", shown=len(rows) > batch_size) as progress,
    ):
        for part in rows.split(batch_size):
            parts.append(_judge(pipe, *read(part, None, pipe.device), temperature))
            progress.advance(len(part))
    return Judged.join(parts)


def _judge(
    pipe: TokenCriticPipeline, tokens: Tensor, labels: Tensor | None, seeds: Tensor, temperature: Temperature
) -> Judged:
    assert pipe.critic is not None
    found = critic_loss(pipe.critic, pipe.generator, tokens, labels, seeds, temperature=temperature)
    proposal = found.proposal
    values = (found.logits.float(), proposal.mask, proposal.tokens == tokens, proposal.log_probs())
    return Judged(*(value.cpu() for value in values))


def held_out_report(judged: Judged) -> dict[str, Any]:
    """Everything that can be said of judged images, as JSON values: of `all` of them, and of those in each bin of the mask
    ratio, `by_ratio`. A bin's `ratio` (low, high) takes images with more than `low` and at most `high` of their tokens hidden.

    A critic that is not told the ratio does not know it. So even one that is perfectly calibrated over all images is not so
    within a bin.
    """
    num_tokens = judged.mask.shape[1]
    bins = ((judged.mask.sum(1) * RATIO_BINS + num_tokens - 1) // num_tokens).clamp(min=1)  # rounded up, in integers
    edges = [(index / RATIO_BINS, (index + 1) / RATIO_BINS) for index in range(RATIO_BINS)]
    sections = [{"ratio": edge, **_section(judged[bins == index + 1])} for index, edge in enumerate(edges)]
    return {"all": _section(judged), "by_ratio": sections}


def _section(judged: Judged) -> dict[str, Any]:
    """Counts, mean scores and histograms by kind of token, and AUC for both targets, over all tokens and within an image.

    Sampling compares tokens of one image alone: a critic that only tells how much of an image was drawn again has a high AUC
    over all tokens and 0.5 within an image, and cannot help. auc_of_redrawn: among the redrawn tokens alone, where the
    generator's confidence can judge too: equal to the original, or changed. That baseline is strong: for an exact
    generator, confidence is the very probability of being equal.
    """
    scores, redrawn = judged.logits.double().sigmoid(), judged.mask
    return {
        "images": len(judged),
        "tokens": {kind: int(where.sum()) for kind, where in judged.kinds.items()},
        "mean_score": {kind: scores[where].mean().item() for kind, where in judged.kinds.items()},
        "histogram": {kind: histogram(scores[where]) for kind, where in judged.kinds.items()},
        "auc": {target: auc(judged.logits, real) for target, real in judged.targets.items()},
        "auc_within_image": {target: auc_within_image(judged.logits, real) for target, real in judged.targets.items()},
        "auc_of_redrawn": {
            "critic": auc(judged.logits[redrawn], judged.unchanged[redrawn]),
            "confidence": auc(judged.log_probs[redrawn], judged.unchanged[redrawn]),
        },
        "calibration": {target: asdict(reliability(scores, real)) for target, real in judged.targets.items()},
    }


def auc(scores: Tensor, real: Tensor) -> float:
    """That a real token scores above one that is not, ties counted half; NaN where one of the two is missing."""
    return critic_auc(scores, real).item()


def auc_within_image(scores: Tensor, real: Tensor) -> float:
    """The same for two tokens of one image, (b, n) each: the mean over images that have both kinds; NaN without such."""
    return critic_auc_within_image(scores, real).item()


def histogram(scores: Tensor, bins: int = SCORE_BINS) -> list[int]:
    """How many scores lie in each bin of equal width over [0, 1]; 1 is in the last one."""
    return _places(scores, bins).bincount(minlength=bins).tolist()


def reliability(scores: Tensor, real: Tensor, bins: int = CALIBRATION_BINS) -> Reliability:
    """scores: any shape, in [0, 1]. real: bool, of that shape."""
    places, scores, real = _places(scores, bins), scores.flatten().double(), real.flatten().double()
    counts = places.bincount(minlength=bins)
    sums = places.bincount(scores, minlength=bins).double()
    reals = places.bincount(real, minlength=bins).double()
    error = (sums - reals).abs().sum() / counts.sum()
    return Reliability(counts.tolist(), (sums / counts).tolist(), (reals / counts).tolist(), error.item())


def _places(scores: Tensor, bins: int) -> Tensor:
    return (scores.flatten() * bins).long().clamp(max=bins - 1)
