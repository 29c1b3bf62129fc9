"""Rejection sampling (the paper's Table 2): draw several candidates for each image and keep the best.

A ranker says which is best: the classifier's probability of the image's class, as in the paper, or the critic's own mean
score, which needs no classifier.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokencritic.errors import InputError, check_range
from tokencritic.randomness import candidate_seeds
from tokencritic.sampling.propose import Proposal, evaluating
from tokencritic.sampling.scorers import AnyCritic, CriticScorer
from tokencritic.sampling.settings import SamplingSettings

Resize = Literal["bicubic", "bilinear"]


class Draw(Protocol):
    """Draws images: rows (b,), the numbers of the images, and seeds (b,) -> tokens (b, n)."""

    def __call__(self, rows: Tensor, seeds: Tensor, /) -> Tensor: ...


class Ranker(Protocol):
    """Complete tokens (b, n) and labels (b,) -> (b,), higher = better, each image judged by itself."""

    def __call__(self, tokens: Tensor, labels: Tensor, /) -> Tensor: ...


@torch.no_grad()
def best_of(
    draw: Draw,
    rank: Ranker | None,
    labels: Tensor,
    seeds: Tensor,
    candidates: int = 1,
    batch_size: int = 64,
) -> Tensor:
    """For each image the best of `candidates` draws, the first of equals.

    draw: such as `sample` with everything but rows and seeds decided; a row's tokens must depend on that row and its seed
    alone. rank: None if there is but one candidate. labels, seeds: (b,) int64.
    batch_size: how many candidates are drawn and ranked at a time; it changes no result.
    Returns tokens (b, n) on the CPU. Beside them, memory holds `batch_size` candidates, or all those of one image.
    """
    if candidates < 1 or (rank is None and candidates > 1):
        raise InputError(f"candidates is {candidates}; it must be at least 1, and 1 without a ranker")
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; it must be at least 1")
    kept = []
    for rows in torch.arange(len(seeds)).split(max(1, batch_size // candidates)):
        every = rows.repeat_interleave(candidates)
        tried = torch.stack([candidate_seeds(seeds[rows], j) for j in range(candidates)], dim=1).flatten()
        tokens, ranks = [], []
        for part, part_seeds in zip(every.split(batch_size), tried.split(batch_size), strict=True):
            drawn = draw(part, part_seeds)
            tokens.append(drawn.cpu())
            if rank is not None and candidates > 1:
                ranks.append(_check_ranks(rank(drawn, labels[part].to(drawn.device)), len(part)))
        chosen = every.new_zeros(len(rows)) if not ranks else torch.cat(ranks).view(-1, candidates).argmax(dim=1)
        kept.append(torch.cat(tokens)[chosen + candidates * torch.arange(len(rows))])
    return torch.cat(kept)


@torch.no_grad()
def best_among(candidates: Sequence[Tensor], rank: Ranker, labels: Tensor, batch_size: int = 64) -> Tensor:
    """What `best_of` keeps, of candidates that are there already: those of number 0 for every image, of number 1, and so on.

    candidates: each (b, n) int64. labels: (b,) int64. All on the ranker's device. Returns tokens (b, n).
    """
    ranks = []
    for tokens in candidates:
        parts = zip(tokens.split(batch_size), labels.split(batch_size), strict=True)
        ranks.append(torch.cat([_check_ranks(rank(some, classes), len(some)) for some, classes in parts]))
    chosen = torch.stack(ranks, dim=1).argmax(dim=1).to(labels.device)
    return torch.stack(list(candidates))[chosen, torch.arange(len(labels), device=labels.device)]


def _check_ranks(ranks: Tensor, count: int) -> Tensor:
    if ranks.shape != (count,) or ranks.isnan().any():
        came = f"shape {tuple(ranks.shape)}" if ranks.shape != (count,) else "NaN"
        raise InputError(f"the ranker returned {came} for {count} candidates; expected one number for each")
    return ranks.double().cpu()


@dataclass(frozen=True)
class ClassifierRanker:
    """The classifier's probability of the image's class.

    classifier: images (b, c, h, w) in [0, 1] -> logits (b, classes). decode: tokens (b, n) -> such images.
    """

    classifier: Callable[[Tensor], Tensor]
    decode: Callable[[Tensor], Tensor]

    def __call__(self, tokens: Tensor, labels: Tensor) -> Tensor:
        with evaluating(self.classifier):
            logits = self.classifier(fitting(self.decode(tokens), self.classifier))
        if logits.ndim != 2 or len(logits) != len(tokens) or logits.shape[1] <= int(labels.max()):
            right = f"({len(tokens)}, classes), with more than {int(labels.max())} classes"
            raise InputError(f"the classifier returned logits of shape {tuple(logits.shape)}; expected {right}")
        # The logarithm ranks alike; in float64 it tells apart what float32 would round to a probability of 1.
        return logits.double().log_softmax(dim=1).gather(1, labels.to(logits.device)[:, None])[:, 0]


@dataclass(frozen=True)
class CriticRanker:
    """The mean over tokens of the critic's probability of being real, given the image's class."""

    critic: AnyCritic

    def __call__(self, tokens: Tensor, labels: Tensor) -> Tensor:
        everything = torch.ones_like(tokens, dtype=torch.bool)  # for a critic that reads which tokens were drawn
        given = Proposal(tokens, everything, labels, seeds=torch.zeros_like(labels))
        with evaluating(self.critic):
            return CriticScorer(self.critic, selection_noise=0.0)(given).double().mean(dim=1)


def choose_ranker(
    settings: SamplingSettings,
    critic: AnyCritic | None,
    classifier: Callable[[Tensor], Tensor] | None,
    decode: Callable[[Tensor], Tensor],
) -> Ranker | None:
    """The ranker that the settings name, from a model's parts; None where there is nothing to choose."""
    if settings.candidates == 1:
        return None
    if settings.reject_by == "critic":
        if critic is None:
            raise InputError(f"candidates is {settings.candidates} and reject_by is critic, but the model has none")
        return CriticRanker(critic)
    if classifier is None:
        raise InputError(
            f"candidates is {settings.candidates} and reject_by is classifier, but the model has none; "
            "choose critic, or from Python give one as reject_with"
        )
    return ClassifierRanker(classifier, decode)


class AdaptedClassifier(nn.Module):
    """A classifier made for other images, such as one of ImageNet, as `reject_with=` takes it.

    EfficientNet-Lite0, for one, takes 224 x 224 pixels as (x - 127) / 128 with x from 0 to 255:

        AdaptedClassifier(network, 224, mean=127 / 255, std=128 / 255)
    """

    def __init__(
        self,
        classifier: Callable[[Tensor], Tensor],
        size: int,
        mean: float | Sequence[float] = 0.0,
        std: float | Sequence[float] = 1.0,
        *,
        channels: int = 3,
        resize: Resize = "bicubic",
        class_map: Sequence[int] | None = None,
    ) -> None:
        """classifier: images (b, channels, size, size) -> logits. mean, std: of pixels in [0, 1], one number or one a channel.

        resize: how images come to its size, antialiased. channels: what it takes; grey images are repeated.
        class_map: for each class of the model, the classifier's number of it; probabilities are then among these alone.
        """
        super().__init__()
        if size < 1:
            raise InputError(f"size is {size}; it must be at least 1")
        if resize not in get_args(Resize):
            raise InputError(f"resize is {resize!r}; choose one of {', '.join(get_args(Resize))}")
        mean_and_std = [torch.tensor(value, dtype=torch.float32).reshape(-1, 1, 1) for value in (mean, std)]
        for name, value in zip(("mean", "std"), mean_and_std, strict=True):
            if len(value) not in (1, channels) or not value.isfinite().all() or (name == "std" and (value <= 0).any()):
                raise InputError(
                    f"{name} is {value.flatten().tolist()}; expected one number, or {channels}, one a channel"
                    + (", above 0" if name == "std" else "")
                )
        self.classifier, self.size, self.channels, self.resize = classifier, size, channels, resize
        self.class_map = None if class_map is None else list(class_map)
        self.mean, self.std = mean_and_std

    def forward(self, images: Tensor) -> Tensor:
        """images: (b, c, h, w) float in [0, 1], c 1 or `channels`. Returns (b, classes) logits."""
        if images.ndim != 4 or images.shape[1] not in (1, self.channels):
            raise InputError(
                f"images has shape {tuple(images.shape)}; expected (images, 1 or {self.channels}, height, width)"
            )
        # fmt: off
        x = images.expand(-1, self.channels, -1, -1)                                             # b c h w
        if x.shape[2:] != (self.size, self.size):
            size = (self.size, self.size)
            x = F.interpolate(x, size, mode=self.resize, antialias=True).clamp(0, 1)             # b c size size
        logits = self.classifier((x - self.mean.to(x)) / self.std.to(x))                         # b k
        # fmt: on
        if self.class_map is None:
            return logits
        check_range("class_map", torch.tensor(self.class_map), logits.shape[1])
        return logits[:, self.class_map]


def fitting(images: Tensor, classifier: Any) -> Tensor:
    """On the device and in the precision of a network that has them; else float32 where they are."""
    parameters = classifier.parameters() if isinstance(classifier, nn.Module) else iter(())
    first = next((parameter for parameter in parameters if parameter.is_floating_point()), None)
    return images.float() if first is None else images.to(first.device, first.dtype)
