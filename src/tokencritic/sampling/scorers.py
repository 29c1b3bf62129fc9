"""The scorers: which tokens to trust. Each class implements one row of `SAMPLERS` in settings.py."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, get_args

import torch
from torch import Tensor, nn

from tokencritic.adapters import as_critic
from tokencritic.contracts import MaskedGenerator, Proposal, Scorer, TokenCritic
from tokencritic.errors import InputError
from tokencritic.plan import Step, check_window, in_window
from tokencritic.sampling.settings import NoiseKind, SamplingSettings, check_noise

Grid = tuple[int, int]


class NamedScorer(Scorer):
    """A scorer that a name in `SAMPLERS` stands for: `class MyScorer(NamedScorer, name="mine")`."""

    named: ClassVar[dict[str, type["NamedScorer"]]] = {}

    def __init_subclass__(cls, name: str) -> None:
        NamedScorer.named[name] = cls

    @classmethod
    def from_settings(cls, settings: SamplingSettings, critic: TokenCritic | None, grid: Grid | None) -> Scorer:
        """The scorer that settings ask for. critic: the model's, or None; grid: (height, width) of the tokens, or None."""
        return cls()


def make_scorer(settings: SamplingSettings, critic: TokenCritic | None, grid: Grid | None = None) -> Scorer:
    """The scorer that settings ask for, of a model with these parts."""
    settings = settings.of(critic is not None)
    return NamedScorer.named[str(settings.sampler)].from_settings(settings, critic, grid)


@dataclass(frozen=True)
class CriticScorer(NamedScorer, name="critic"):
    """Token-Critic, Algorithm 2 line 5: p_phi + n(t), with n(t) = K u t/T and u uniform in [-0.5, 0.5].

    critic: any callable from complete tokens and labels to one logit per token. selection_noise: K.
    noise_kind: "uniform" is the paper's. "gumbel" adds Gumbel noise of size K to the logit, the same at all steps: tokens are
    then kept in proportion to their odds of being original, to the power of 1/K.
    """

    critic: TokenCritic | Callable[..., Tensor]
    selection_noise: float = 0.2
    noise_kind: NoiseKind = "uniform"

    def __post_init__(self) -> None:
        check_noise(self.selection_noise)
        if self.noise_kind not in get_args(NoiseKind):
            raise InputError(f"noise_kind is {self.noise_kind!r}; choose one of {', '.join(get_args(NoiseKind))}")
        object.__setattr__(self, "critic", as_critic(self.critic))

    @classmethod
    def from_settings(cls, settings: SamplingSettings, critic: TokenCritic | None, grid: Grid | None) -> Scorer:
        if critic is None:
            raise InputError("sampler is critic but the model has none; choose another sampler")
        return windowed(cls(critic, settings.selection_noise or 0.0, settings.noise_kind), settings)

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        return self.critic.networks  # pyright: ignore[reportFunctionMemberAccess]

    def score(self, proposal: Proposal) -> Tensor:
        critic: TokenCritic = self.critic  # pyright: ignore[reportAssignmentType]
        asked = (proposal.tokens, proposal.labels)
        logits = (critic(*asked, proposal.mask) if critic.reads_mask else critic(*asked)).float()
        return logits.sigmoid() if self.noise_kind == "uniform" else logits

    def noise(self, proposal: Proposal) -> Tensor | float:
        if self.selection_noise == 0:
            return 0.0
        if self.noise_kind == "gumbel":
            return self.selection_noise * proposal.selection_gumbel()
        return self.selection_noise * proposal.step.time * (proposal.selection_uniforms() - 0.5)

    def check(self, generator: MaskedGenerator) -> None:
        critic: TokenCritic = self.critic  # pyright: ignore[reportAssignmentType]
        sizes = {
            "num_tokens": (critic.num_tokens, generator.num_tokens),
            "codebook_size": (critic.codebook_size, generator.codebook_size),
            "num_classes": (critic.num_classes, generator.num_classes),
        }
        for name, (theirs, ours) in sizes.items():
            if theirs not in (None, ours):
                raise InputError(f"the critic's {name} is {theirs} but the generator's is {ours}; they must be equal")


@dataclass(frozen=True)
class RandomRemaskScorer(NamedScorer, name="random-remask"):
    """The critic's control: random scores for all tokens alike, without a network.

    What a `CriticScorer` gains over this is due to the critic's choice, and what this gains over MaskGIT to re-masking.
    """

    @classmethod
    def from_settings(cls, settings: SamplingSettings, critic: TokenCritic | None, grid: Grid | None) -> Scorer:
        return windowed(cls(), settings)

    def score(self, proposal: Proposal) -> Tensor:
        return proposal.selection_uniforms()


@dataclass(frozen=True)
class ConfidenceScorer(NamedScorer, name="confidence"):
    """MaskGIT: the generator's own log probability plus Gumbel noise, annealed to 0; kept tokens stay kept.

    selection_noise: the published choice temperature, 4.5 at 256 x 256.
    """

    selection_noise: float = 4.5

    def __post_init__(self) -> None:
        check_noise(self.selection_noise)

    @classmethod
    def from_settings(cls, settings: SamplingSettings, critic: TokenCritic | None, grid: Grid | None) -> Scorer:
        return cls(settings.selection_noise or 0.0)

    def score(self, proposal: Proposal) -> Tensor:
        return proposal.log_probs()

    def noise(self, proposal: Proposal) -> Tensor | float:
        if self.selection_noise == 0:
            return 0.0
        return self.selection_noise * proposal.step.time_after * proposal.selection_gumbel()

    def revokes(self, step: Step) -> bool:
        return False


@dataclass(frozen=True)
class RandomOrderScorer(NamedScorer, name="random-order"):
    """A uniformly random choice among the tokens just sampled; kept tokens stay kept."""

    def score(self, proposal: Proposal) -> Tensor:
        return proposal.selection_uniforms().masked_fill(~proposal.mask, torch.inf)

    def revokes(self, step: Step) -> bool:
        return False


@dataclass(frozen=True)
class HaltonScorer(NamedScorer, name="halton"):
    """Tokens are kept in the order of a Halton sequence over the grid, which spreads each step's tokens evenly.

    grid: (height, width); None for a square. The order is the same for every image.
    """

    grid: Grid | None = None

    @classmethod
    def from_settings(cls, settings: SamplingSettings, critic: TokenCritic | None, grid: Grid | None) -> Scorer:
        return cls(grid)

    def score(self, proposal: Proposal) -> Tensor:
        num_tokens = proposal.tokens.shape[1]
        grid = self.grid or (math.isqrt(num_tokens), math.isqrt(num_tokens))
        if math.prod(grid) != num_tokens:
            raise InputError(
                f"grid is {self.grid} for {num_tokens} tokens; give a height and width whose product that is"
            )
        ranks = torch.tensor(halton_ranks(*grid), dtype=torch.float32, device=proposal.tokens.device)
        return torch.where(proposal.mask, -ranks, torch.inf)

    def revokes(self, step: Step) -> bool:
        return False


@dataclass(frozen=True)
class WindowScorer(Scorer):
    """Three scorers, one after the other: `inside` while t/T is in the window (end, start], `before` and `after` around it."""

    window: tuple[float, float]
    inside: Scorer
    before: Scorer
    after: Scorer

    def __post_init__(self) -> None:
        check_window(self.window)

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        return (*self.inside.networks, *self.before.networks, *self.after.networks)

    def at(self, step: Step) -> Scorer:
        """The scorer of a step."""
        if in_window(self.window, step):
            return self.inside
        return self.before if step.time > self.window[0] else self.after

    def score(self, proposal: Proposal) -> Tensor:
        return self.at(proposal.step).score(proposal)

    def noise(self, proposal: Proposal) -> Tensor | float:
        return self.at(proposal.step).noise(proposal)

    def revokes(self, step: Step) -> bool:
        return self.at(step).revokes(step)

    def check(self, generator: MaskedGenerator) -> None:
        for scorer in (self.inside, self.before, self.after):
            scorer.check(generator)


def windowed(scorer: Scorer, settings: SamplingSettings) -> Scorer:
    """The scorer inside the settings' critic window, and MaskGIT's confidence around it.

    Before the window, confidence has so much noise that it chooses almost at random, which leaves the images their variety.
    """
    if settings.critic_window == (1, 0):
        return scorer
    return WindowScorer(settings.critic_window, scorer, ConfidenceScorer(settings.early_noise), ConfidenceScorer())


@lru_cache
def halton_ranks(height: int, width: int) -> tuple[int, ...]:
    """The rank of each grid position (row-major) in the Halton order with bases 2 (rows) and 3 (columns)."""
    ranks: dict[int, int] = {}
    index = 0
    while len(ranks) < height * width:
        index += 1
        position = _place(index, 2, height) * width + _place(index, 3, width)
        ranks.setdefault(position, len(ranks))
    return tuple(ranks[position] for position in range(height * width))


def _place(index: int, base: int, size: int) -> int:
    """Where among `size` cells the Halton number lies: the digits of `index` mirrored at the point. In integers, exactly."""
    mirrored, scale = 0, 1
    while index:
        index, digit = divmod(index, base)
        mirrored, scale = mirrored * base + digit, scale * base
    return mirrored * size // scale
