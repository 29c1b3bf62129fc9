"""Which tokens to trust: each scorer is a callable from a `Proposal` to scores (b, n), higher = more real.

The loop hides the lowest, after adding the scorer's `noise(proposal)` if it has such a method: scores are what it thinks,
and what pictures show; noise is chance in what is hidden. A scorer whose `revokes` is False gives +inf to tokens that
were visible, so that a kept token stays kept; one without the attribute is taken to revoke. `revokes` may also be a
function of the step.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.sampling.propose import Proposal, Step

NoiseOn = Literal["probability", "logit", "odds"]
_EARLY_NOISE = 12.0  # of confidence before the critic: little more than a random choice


class Scorer(Protocol):
    """Anything callable on a proposal."""

    def __call__(self, proposal: Proposal, /) -> Tensor: ...


class AnyCritic(Protocol):
    """Anything callable on complete tokens and labels that gives one logit per token, higher = more real."""

    def __call__(self, tokens: Tensor, labels: Tensor | None, /) -> Tensor: ...


@dataclass(frozen=True)
class CriticScorer:
    """Token-Critic, Algorithm 2 line 5: p_phi + n(t), with n(t) = K u t/T and u uniform in [-0.5, 0.5].

    selection_noise: K. noise_on: what the noise is added to: the probability, as in the paper, or the logit; or "odds",
    Gumbel noise of size K on the logit, the same at all steps: tokens are then kept in proportion to their odds of being
    original, to the power of 1/K. A ranking always keeps the typical; a draw by the odds keeps the rare too, as often as
    it is real.
    critic_from, critic_until: the critic chooses while critic_until < t/T <= critic_from, MaskGIT's confidence before and
    after, and what is kept then stays kept. 1 and 0, the paper's, are the critic from the first step to the last. Before,
    confidence has so much noise that it chooses almost at random, which leaves the images their variety; after, its
    published noise. Where a critic knows little, its passes are better spent on more steps.
    A critic with a true `reads_mask` is also given the mask the proposal was drawn under (the paper's ablation).
    """

    critic: AnyCritic
    selection_noise: float = 0.2
    noise_on: NoiseOn = "probability"
    critic_from: float = 1.0
    critic_until: float = 0.0

    def __post_init__(self) -> None:
        check_noise(self.selection_noise)
        check_times(self.critic_from, self.critic_until)
        if self.noise_on not in get_args(NoiseOn):
            raise InputError(f"noise_on is {self.noise_on!r}; choose one of {', '.join(get_args(NoiseOn))}")

    def revokes(self, step: Step) -> bool:
        return chooses(step, self.critic_from, self.critic_until)

    def __call__(self, proposal: Proposal) -> Tensor:
        if not self.revokes(proposal.step):
            return ConfidenceScorer()(proposal)
        if getattr(self.critic, "reads_mask", False):
            logits = self.critic(proposal.tokens, proposal.labels, mask=proposal.mask)  # pyright: ignore[reportCallIssue]
        else:
            logits = self.critic(proposal.tokens, proposal.labels)
        return logits.float().sigmoid() if self.noise_on == "probability" else logits.float()

    def noise(self, proposal: Proposal) -> Tensor | float:
        if not self.revokes(proposal.step):
            return _noise_of_confidence(proposal, self.critic_from)
        if self.selection_noise == 0:
            return 0.0
        if self.noise_on == "odds":
            return self.selection_noise * _gumbel(proposal)
        return self.selection_noise * proposal.step.time * (proposal.selection_uniforms() - 0.5)


@dataclass(frozen=True)
class ChanceScorer:
    """The critic's control: chance chooses in its place, among all tokens alike, and needs no network for it.

    critic_from, critic_until: chance chooses while the critic would, MaskGIT's confidence before and after. What a
    `CriticScorer` gains over this is due to the critic's choice, and what this gains over MaskGIT to taking tokens back.
    """

    critic_from: float = 1.0
    critic_until: float = 0.0

    def __post_init__(self) -> None:
        check_times(self.critic_from, self.critic_until)

    def revokes(self, step: Step) -> bool:
        return chooses(step, self.critic_from, self.critic_until)

    def __call__(self, proposal: Proposal) -> Tensor:
        if not self.revokes(proposal.step):
            return ConfidenceScorer()(proposal)
        return proposal.selection_uniforms()

    def noise(self, proposal: Proposal) -> Tensor | float:
        if not self.revokes(proposal.step):
            return _noise_of_confidence(proposal, self.critic_from)
        return 0.0


@dataclass(frozen=True)
class ConfidenceScorer:
    """MaskGIT: the generator's own log probability plus Gumbel noise, annealed to 0; kept tokens stay kept.

    selection_noise: the published choice temperature, 4.5 at 256 x 256.
    """

    selection_noise: float = 4.5
    revokes = False

    def __post_init__(self) -> None:
        check_noise(self.selection_noise)

    def __call__(self, proposal: Proposal) -> Tensor:
        return proposal.log_probs()

    def noise(self, proposal: Proposal) -> Tensor | float:
        if self.selection_noise == 0:
            return 0.0
        return self.selection_noise * proposal.step.time_after * _gumbel(proposal)


@dataclass(frozen=True)
class RandomScorer:
    """A uniformly random choice among the tokens just drawn; kept tokens stay kept."""

    revokes = False

    def __call__(self, proposal: Proposal) -> Tensor:
        return proposal.selection_uniforms().masked_fill(~proposal.mask, torch.inf)


@dataclass(frozen=True)
class HaltonScorer:
    """Tokens are kept in the order of a Halton sequence over the grid, which spreads each step's tokens evenly.

    grid: (height, width); None for a square. The order is the same for every image.
    """

    grid: tuple[int, int] | None = None
    revokes = False

    def __call__(self, proposal: Proposal) -> Tensor:
        num_tokens = proposal.tokens.shape[1]
        grid = self.grid or (math.isqrt(num_tokens), math.isqrt(num_tokens))
        if math.prod(grid) != num_tokens:
            raise InputError(
                f"grid is {self.grid} for {num_tokens} tokens; give a height and width whose product that is"
            )
        ranks = torch.tensor(halton_ranks(*grid), dtype=torch.float32, device=proposal.tokens.device)
        return torch.where(proposal.mask, -ranks, torch.inf)


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


def _noise_of_confidence(proposal: Proposal, critic_from: float) -> Tensor | float:
    """Of confidence where it is not the critic's turn: much before it, the published one after it."""
    early = proposal.step.time > critic_from
    return (ConfidenceScorer(_EARLY_NOISE) if early else ConfidenceScorer()).noise(proposal)


def _gumbel(proposal: Proposal) -> Tensor:
    """This step's standard Gumbel noise, (b, n)."""
    return -(-proposal.selection_uniforms().log()).log()


def revokes_at(scorer: Scorer, step: Step) -> bool:
    """Whether a scorer may hide a kept token again at a step."""
    revokes: Any = getattr(scorer, "revokes", True)
    return bool(revokes(step) if callable(revokes) else revokes)


def chooses(step: Step, critic_from: float, critic_until: float) -> bool:
    """Whether it is the critic's turn."""
    return critic_until < step.time <= critic_from


def check_times(critic_from: float, critic_until: float) -> None:
    """Times t/T. Whether the critic has chosen before it hands over is for `SamplingSettings.check_critic_chooses` to say."""
    if not 0 <= critic_until < 1:
        raise InputError(f"critic_until is {critic_until}; it must be 0 or more, and less than 1")
    if not critic_until < critic_from <= 1:
        raise InputError(
            f"critic_from is {critic_from:g} and critic_until {critic_until:g}; the first must be the larger, and 1 at most"
        )


def check_noise(selection_noise: float) -> None:
    """Selection noise is a finite number of 0 or more."""
    if not (math.isfinite(selection_noise) and selection_noise >= 0):
        raise InputError(f"selection_noise is {selection_noise}; it must be a number of 0 or more")
