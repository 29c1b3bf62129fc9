"""The contract between the sampling loop and scorers: a `Proposal` in, scores out."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tokencritic.contracts import Features, MaskedGenerator
from tokencritic.errors import InputError
from tokencritic.masking import hide_lowest, put, take
from tokencritic.plan import Step
from tokencritic.randomness import Use, uniforms
from tokencritic.schedules import Confidence

COLDEST = 1e-6  # replaces temperature 0 in divisions
_OUTSIDE = Step()  # the step of a proposal that was not made in the loop


@dataclass(frozen=True)
class Proposal:
    """A batch of complete images, filled in by the generator, for a scorer to rank (x-hat_0 in the paper).

    tokens: (b, n) int64, without hidden tokens.
    mask: (b, n) bool, True where the token was sampled in this step.
    labels: (b,) int64 or None.
    seeds: (b,) int64, one random stream per image.
    step: the step of the loop.
    positions: where logits were computed, see `MaskedGenerator.logits_at`; None for given tokens.
    logits: the logits at these positions; None for given tokens.
    features: the generator's features if the scorer needs them, else None.
    temperature: the sampling temperature, a number or (b,).
    """

    tokens: Tensor
    mask: Tensor
    labels: Tensor | None
    seeds: Tensor
    step: Step = _OUTSIDE
    positions: Tensor | None = None
    logits: Tensor | None = None
    features: Features | None = None
    temperature: float | Tensor = 1.0

    @classmethod
    def given(
        cls,
        tokens: Tensor,
        labels: Tensor | None,
        seeds: Tensor | None = None,
        step: Step = _OUTSIDE,
        features: Features | None = None,
    ) -> "Proposal":
        """Return a proposal of given tokens (b, n), which were not sampled in the loop. The mask covers all tokens."""
        seeds = torch.zeros(len(tokens), dtype=torch.int64, device=tokens.device) if seeds is None else seeds
        return cls(tokens, torch.ones_like(tokens, dtype=torch.bool), labels, seeds, step, features=features)

    def confidence(self, kind: Confidence = "log_prob") -> Tensor:
        """Return the generator's confidence in each sampled token: (b, n) float32, +inf where the token was visible.

        kind: one of these.
        - "log_prob": log p_theta at temperature 1, as in MaskGIT.
        - "tempered_log_prob": log p_theta at the sampling temperature.
        - "tempered_logit": the logit divided by the sampling temperature.
        """
        if self.logits is None or self.positions is None:
            raise InputError("the proposal has no logits; confidence is only defined for sampled tokens")
        logits = self.logits.float()
        if kind != "log_prob" and not isinstance(self.temperature, Tensor):
            logits = logits / max(self.temperature, COLDEST)
        sampled = take(self.tokens, self.positions)
        values = logits.gather(-1, sampled[..., None])[..., 0]
        if kind != "tempered_logit":
            values = values - logits.logsumexp(-1)
        kept = torch.full(self.tokens.shape, torch.inf, device=self.tokens.device)
        return torch.where(self.mask, put(kept, self.positions, values), kept)

    def selection_uniforms(self) -> Tensor:
        """Return this step's uniform noise for choosing the tokens to hide: (b, n) float32 in (0, 1)."""
        return uniforms(self.seeds, self.tokens.shape[1], Use.SELECT, self.step.index)

    def selection_gumbel(self) -> Tensor:
        """Return this step's standard Gumbel noise for choosing the tokens to hide: (b, n) float32."""
        return -(-self.selection_uniforms().log()).log()


class Scorer:
    """A ranking of tokens. The loop adds noise to the scores and hides the tokens with the lowest sums.

    Scores are deterministic and appear in pictures; noise only affects which tokens are hidden. At a step where
    `revokes` is False, visible tokens score +inf, so that they stay visible.
    """

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        """The torch modules that the scorer calls."""
        return ()

    @abstractmethod
    def score(self, proposal: Proposal) -> Tensor:
        """Return scores (b, n) float, higher = more real."""

    def noise(self, proposal: Proposal) -> Tensor | float:
        """Return the noise (b, n) or 0 that is added to the scores for selection."""
        return 0.0

    def revokes(self, step: Step) -> bool:
        """Return True if visible tokens may be re-masked at a step."""
        return True

    def code_noise(self, step: Step) -> float:
        """Return the factor of the sampling temperature at a step."""
        return 1.0

    def needs_features(self, step: Step) -> bool:
        """Return True if `score` reads the generator's features at a step."""
        return False

    def select(self, noisy: Tensor, proposal: Proposal, free: Tensor, num_masked: Tensor) -> Tensor:
        """Return a mask (b, n) bool that hides exactly `num_masked` tokens of each image.

        noisy: (b, n) float, scores plus noise, +inf where a token is not free.
        free: (b, n) bool, the tokens that may be hidden.
        num_masked: (b,) int64.
        """
        return hide_lowest(noisy, num_masked)

    def check(self, generator: MaskedGenerator) -> None:
        """Raise InputError unless the scorer fits the generator."""
