"""The scorers, which rank tokens for re-masking. Each class implements one row of `SAMPLERS` in samplers.py."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, get_args

import torch
from torch import Tensor, nn

from tokencritic.adapters import as_critic
from tokencritic.contracts import FeatureCritic, MaskedGenerator, TokenCritic
from tokencritic.errors import InputError
from tokencritic.masking import hide_lowest
from tokencritic.plan import Step, check_window, in_window
from tokencritic.randomness import Use, uniforms
from tokencritic.sampling.halton_order import Grid, halton_ranks_on
from tokencritic.sampling.settings import NoiseKind, SamplingSettings, check_noise, check_quota
from tokencritic.schedules import SCHEDULES, find_schedule
from tokencritic.scoring import Proposal, Scorer


@dataclass(frozen=True)
class Judges:
    """The parts of a model that scorers use, None if missing. grid: (height, width) of the tokens."""

    critic: TokenCritic | None = None
    inline_critic: FeatureCritic | None = None
    grid: Grid | None = None


class NamedScorer(Scorer):
    """A scorer with a name in `SAMPLERS`: `class MyScorer(NamedScorer, name="mine")`."""

    named: ClassVar[dict[str, type["NamedScorer"]]] = {}

    def __init_subclass__(cls, name: str) -> None:
        NamedScorer.named[name] = cls

    @classmethod
    def from_settings(cls, settings: SamplingSettings, judges: Judges) -> Scorer:
        """Return the scorer for these settings."""
        return cls()


def make_scorer(settings: SamplingSettings, judges: Judges) -> Scorer:
    """Return the scorer for these settings of a model with these parts."""
    settings = settings.of(judges.critic is not None)
    return NamedScorer.named[str(settings.sampler)].from_settings(settings, judges)


@dataclass(frozen=True)
class CriticScorer(NamedScorer, name="critic"):
    """The Token-Critic scorer (Algorithm 2, line 5): p_phi + n(t), with n(t) = K u t/T and u uniform in [-0.5, 0.5].

    critic: a `TokenCritic`, or a callable that `as_critic` accepts.
    selection_noise: K, 0 or more.
    noise_kind: "uniform" is the paper's n(t). "gumbel" adds Gumbel noise of scale K to the logits at every step. Tokens
    are then kept in proportion to their odds of being original, to the power of 1/K.
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
    def from_settings(cls, settings: SamplingSettings, judges: Judges) -> Scorer:
        if judges.critic is None:
            raise InputError("sampler is critic but the model has none; choose another sampler")
        return windowed(cls(judges.critic, settings.selection_noise or 0.0, settings.noise_kind), settings)

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
    """Random re-masking, the control of the critic: random scores for all tokens, without a network.

    It separates the effect of the critic's choice from the effect of re-masking.
    """

    @classmethod
    def from_settings(cls, settings: SamplingSettings, judges: Judges) -> Scorer:
        return windowed(cls(), settings)

    def score(self, proposal: Proposal) -> Tensor:
        return proposal.selection_uniforms()


@dataclass(frozen=True)
class ConfidenceScorer(NamedScorer, name="confidence"):
    """MaskGIT's scorer: the generator's log probability plus Gumbel noise, annealed to 0. Visible tokens are kept.

    selection_noise: the scale of the noise, 0 or more; 4.5 is MaskGIT's choice temperature at 256 x 256.
    schedule: a name of `SCHEDULES`, which defines the form of confidence and the annealing.
    """

    selection_noise: float = 4.5
    schedule: str = "paper"

    def __post_init__(self) -> None:
        check_noise(self.selection_noise)
        find_schedule(self.schedule)

    @classmethod
    def from_settings(cls, settings: SamplingSettings, judges: Judges) -> Scorer:
        return cls(settings.selection_noise or 0.0, settings.schedule)

    def score(self, proposal: Proposal) -> Tensor:
        return proposal.confidence(SCHEDULES[self.schedule].confidence)

    def noise(self, proposal: Proposal) -> Tensor | float:
        if self.selection_noise == 0:
            return 0.0
        return self.noise_at(proposal.step) * proposal.selection_gumbel()

    def revokes(self, step: Step) -> bool:
        return False

    def code_noise(self, step: Step) -> float:
        return self.noise_at(step) if SCHEDULES[self.schedule].codes_by_noise else 1.0

    def noise_at(self, step: Step) -> float:
        """Return the scale of the Gumbel noise at a step."""
        return self.selection_noise * SCHEDULES[self.schedule].noise_left(step.done, step.steps)


@dataclass(frozen=True)
class InlineScorer(NamedScorer, name="inline"):
    """The inline critic's scorer: MaskGIT's, which also re-masks visible tokens with low scores of the inline critic.

    The inline critic reads features of the generator evaluation that predicts the hidden tokens: it adds no NFE.

    critic: the inline critic.
    quota: b in [0, 1]. If v of n free tokens are visible, a step that hides k tokens re-masks round(b v k / n).
    remask_noise: the scale of the Gumbel noise on the inline critic's logits, 0 or more.
    confidence: ranks the sampled tokens.
    """

    critic: FeatureCritic
    quota: float = 0.5
    remask_noise: float = 0.5
    confidence: ConfidenceScorer = ConfidenceScorer()

    def __post_init__(self) -> None:
        if not isinstance(self.critic, FeatureCritic):
            raise InputError(f"critic is a {type(self.critic).__name__}; expected a FeatureCritic such as InlineCritic")
        check_quota(self.quota)
        check_noise(self.remask_noise, "remask_noise")

    @classmethod
    def from_settings(cls, settings: SamplingSettings, judges: Judges) -> Scorer:
        if judges.inline_critic is None:
            raise InputError("sampler is inline but the model has no inline critic; choose another sampler")
        confidence = ConfidenceScorer(settings.selection_noise or 0.0, settings.schedule)
        inline = cls(judges.inline_critic, settings.remask_quota, settings.remask_noise, confidence)
        if settings.critic_window == (1, 0):
            return inline
        return WindowScorer(settings.critic_window, inline, confidence, confidence)

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        return self.critic.networks

    def needs_features(self, step: Step) -> bool:
        return True

    def code_noise(self, step: Step) -> float:
        return self.confidence.code_noise(step)

    def score(self, proposal: Proposal) -> Tensor:
        if proposal.features is None:  # nothing is re-masked
            return self.confidence.score(proposal)
        judged = self.critic(proposal.features).float()
        if proposal.logits is None:
            return judged
        return torch.where(proposal.mask, self.confidence.score(proposal), judged)

    def noise(self, proposal: Proposal) -> Tensor | float:
        scale = self.remask_noise
        if proposal.logits is not None:
            scale = torch.where(proposal.mask, self.confidence.noise_at(proposal.step), scale)
        return scale * proposal.selection_gumbel()

    def select(self, noisy: Tensor, proposal: Proposal, free: Tensor, num_masked: Tensor) -> Tensor:
        if proposal.logits is None:  # the head scores all given tokens
            return hide_lowest(noisy, num_masked)
        visible = free & ~proposal.mask
        share = visible.sum(1) * num_masked / free.sum(1).clamp(min=1)
        quota = 0.0 if proposal.features is None else self.quota
        remasked = (quota * share).round().long()
        lowest_visible = hide_lowest(noisy.masked_fill(~visible, torch.inf), remasked)
        return lowest_visible | hide_lowest(noisy.masked_fill(~proposal.mask, torch.inf), num_masked - remasked)

    def check(self, generator: MaskedGenerator) -> None:
        self.critic.check(generator)


@dataclass(frozen=True)
class RandomOrderScorer(NamedScorer, name="random-order"):
    """A scorer with uniformly random scores for sampled tokens. Visible tokens are kept."""

    def score(self, proposal: Proposal) -> Tensor:
        return proposal.selection_uniforms().masked_fill(~proposal.mask, torch.inf)

    def revokes(self, step: Step) -> bool:
        return False


@dataclass(frozen=True)
class HaltonScorer(NamedScorer, name="halton"):
    """A scorer that reveals tokens in the order of a Halton sequence, which spreads them evenly over the grid.

    grid: (height, width) of the tokens; None for a square.
    roll: start each image's order at a random position of the sequence.
    """

    grid: Grid | None = None
    roll: bool = False

    @classmethod
    def from_settings(cls, settings: SamplingSettings, judges: Judges) -> Scorer:
        return cls(judges.grid, settings.halton_roll)

    def score(self, proposal: Proposal) -> Tensor:
        num_tokens = proposal.tokens.shape[1]
        grid = self.grid or (math.isqrt(num_tokens), math.isqrt(num_tokens))
        if math.prod(grid) != num_tokens:
            raise InputError(f"grid is {self.grid}; expected a height and width with the product {num_tokens}")
        ranks = halton_ranks_on(grid, proposal.tokens.device)
        if self.roll:
            ranks = (ranks + self.offsets(proposal.seeds, num_tokens)[:, None]) % num_tokens
        return torch.where(proposal.mask, -ranks.float(), torch.inf)

    def offsets(self, seeds: Tensor, num_tokens: int) -> Tensor:
        """Return the offset of each image's order: (b,) int64."""
        return (uniforms(seeds, 1, Use.SELECT, 0)[:, 0] * num_tokens).long()

    def revokes(self, step: Step) -> bool:
        return False


@dataclass(frozen=True)
class WindowScorer(Scorer):
    """A scorer that uses `inside` while t/T is in the window (end, start], and `before` and `after` otherwise."""

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
        """Return the scorer of a step."""
        if in_window(self.window, step):
            return self.inside
        return self.before if step.time > self.window[0] else self.after

    def score(self, proposal: Proposal) -> Tensor:
        return self.at(proposal.step).score(proposal)

    def noise(self, proposal: Proposal) -> Tensor | float:
        return self.at(proposal.step).noise(proposal)

    def revokes(self, step: Step) -> bool:
        return self.at(step).revokes(step)

    def needs_features(self, step: Step) -> bool:
        return self.at(step).needs_features(step)

    def code_noise(self, step: Step) -> float:
        return self.at(step).code_noise(step)

    def select(self, noisy: Tensor, proposal: Proposal, free: Tensor, num_masked: Tensor) -> Tensor:
        return self.at(proposal.step).select(noisy, proposal, free, num_masked)

    def check(self, generator: MaskedGenerator) -> None:
        for scorer in (self.inside, self.before, self.after):
            scorer.check(generator)


def windowed(scorer: Scorer, settings: SamplingSettings) -> Scorer:
    """Return a scorer that is active inside the critic window, with MaskGIT's confidence before and after it.

    Before the window, confidence has strong noise, which preserves the diversity of the images.
    """
    if settings.critic_window == (1, 0):
        return scorer
    return WindowScorer(settings.critic_window, scorer, ConfidenceScorer(settings.early_noise), ConfidenceScorer())
