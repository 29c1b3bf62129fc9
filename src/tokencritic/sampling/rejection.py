"""Rejection sampling (the paper's Table 2): sample several candidates per image and keep the best.

Candidates are ranked by the classifier's probability of the class, as in the paper, or by the critic's mean score.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencritic.contracts import ImageClassifier, TokenCritic, evaluating
from tokencritic.errors import InputError, check_at_least
from tokencritic.sampling.scorers import CriticScorer
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.scoring import Proposal

SampleRows = Callable[[Tensor, Tensor], Tensor]
"""A function that samples candidates: image numbers (b,) and candidate numbers (b,) -> tokens (b, n)."""

RankRows = Callable[[Tensor, Tensor], Tensor]
"""A function that ranks candidates: tokens (b, n) and image numbers (b,) -> (b,), higher = better."""

Ranker = Callable[[Tensor, Tensor | None], Tensor]
"""A function that ranks images independently: tokens (b, n) and labels (b,) or None -> (b,), higher = better."""


@torch.no_grad()
def best_of(
    sample_rows: SampleRows, rank_rows: RankRows | None, count: int, candidates: int, batch_size: int
) -> Iterator[Tensor]:
    """Yield the best candidate of each image, the first of equals, in batches of tokens (b, n) on the CPU.

    sample_rows: samples candidates. Tokens may only depend on the image number and the candidate number.
    rank_rows: ranks candidates; may be None for one candidate.
    count: the number of images.
    candidates: candidates per image, at least 1.
    batch_size: candidates sampled and ranked in parallel; does not change the result.
    """
    check_at_least(1, candidates=candidates, batch_size=batch_size)
    if rank_rows is None and candidates > 1:
        raise InputError(f"candidates is {candidates}; it must be 1 without a ranker")
    for images in torch.arange(count).split(max(1, batch_size // candidates)):
        rows, numbers = images.repeat_interleave(candidates), torch.arange(candidates).repeat(len(images))
        tokens, ranks = [], []
        for part, part_numbers in zip(rows.split(batch_size), numbers.split(batch_size), strict=True):
            sampled = sample_rows(part, part_numbers)
            tokens.append(sampled.cpu())
            if rank_rows is not None and candidates > 1:
                ranks.append(_check_ranks(rank_rows(sampled, part), len(part)))
        chosen = torch.cat(ranks).view(-1, candidates).argmax(dim=1) if ranks else 0
        yield torch.cat(tokens)[chosen + candidates * torch.arange(len(images))]


def _check_ranks(ranks: Tensor, count: int) -> Tensor:
    if ranks.shape != (count,) or ranks.isnan().any():
        got = f"shape {tuple(ranks.shape)}" if ranks.shape != (count,) else "NaN"
        raise InputError(f"the ranker returned {got} for {count} candidates; expected one number for each")
    return ranks.cpu().double()


@dataclass(frozen=True)
class ClassifierRanker:
    """A ranker by the classifier's probability of the image's class.

    decode: a function from tokens (b, n) to images (b, c, h, w) in [0, 1].
    """

    classifier: ImageClassifier
    decode: Callable[[Tensor], Tensor]

    def __call__(self, tokens: Tensor, labels: Tensor | None) -> Tensor:
        if labels is None:
            raise InputError("reject_by is classifier, which needs classes, and the model has none; choose critic")
        logits = self.classifier.classify(self.decode(tokens))
        if logits.ndim != 2 or len(logits) != len(tokens) or logits.shape[1] <= int(labels.max()):
            expected = f"({len(tokens)}, classes), with more than {int(labels.max())} classes"
            raise InputError(f"the classifier returned logits of shape {tuple(logits.shape)}; expected {expected}")
        # The logarithm gives the same ranking. In float64 it distinguishes probabilities that float32 would round to 1.
        return logits.cpu().double().log_softmax(dim=1).gather(1, labels.cpu()[:, None])[:, 0]


@dataclass(frozen=True)
class CriticRanker:
    """A ranker by the critic's probability that a token is an original, averaged over tokens."""

    critic: TokenCritic

    def __call__(self, tokens: Tensor, labels: Tensor | None) -> Tensor:
        with evaluating(*self.critic.networks):
            return CriticScorer(self.critic).score(Proposal.given(tokens, labels)).cpu().double().mean(dim=1)


def choose_ranker(
    settings: SamplingSettings,
    critic: TokenCritic | None,
    classifier: ImageClassifier | None,
    decode: Callable[[Tensor], Tensor],
) -> Ranker | None:
    """Return the ranker that the settings name; None for one candidate."""
    if settings.candidates == 1:
        return None
    if settings.reject_by == "critic" and critic is not None:
        return CriticRanker(critic)
    if settings.reject_by == "classifier" and classifier is not None:
        return ClassifierRanker(classifier, decode)
    why = f"candidates is {settings.candidates} and reject_by is {settings.reject_by}, but the model has none"
    raise InputError(f"{why}; choose the other, or make the pipeline with a classifier")
