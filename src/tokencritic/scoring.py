"""What a scorer is given, a `Proposal`, and what it answers. The loop knows scorers by this contract alone."""

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

COLDEST = 1e-6  # a temperature to divide by, for 0
_OUTSIDE = Step()  # of a proposal that was not made in the loop


@dataclass(frozen=True)
class Proposal:
    """A complete image as the generator filled it in: what a scorer judges (x-hat_0 in the paper).

    tokens: (b, n) int64, nothing hidden. mask: (b, n) bool, True where the token has just been sampled.
    labels: (b,) int64 or None. seeds: (b,) int64, one random stream per image. step: where in the loop this is.
    positions, logits: where logits were computed and what they are (see `MaskedGenerator.logits_at`); None for given tokens.
    temperature: by which the logits were divided to sample.
    features: of the same evaluation, if the scorer needs them; of given tokens, from one of their own.
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
        """Complete tokens (b, n) that nobody sampled here, all of them to be judged."""
        seeds = torch.zeros(len(tokens), dtype=torch.int64, device=tokens.device) if seeds is None else seeds
        return cls(tokens, torch.ones_like(tokens, dtype=torch.bool), labels, seeds, step, features=features)

    def confidence(self, kind: Confidence = "log_prob") -> Tensor:
        """How sure the generator is of each token just sampled, +inf where the token was visible. (b, n) float32.

        kind: "log_prob": log p_theta at temperature 1, MaskGIT's; "tempered_log_prob": that of the distribution which the
        token was sampled from; "tempered_logit": its logit divided by the temperature.
        """
        if self.logits is None or self.positions is None:
            raise InputError("these tokens were given, not sampled: the generator's confidence in them is not known")
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
        """This step's uniforms for choosing what to hide: (b, n) float32 in (0, 1)."""
        return uniforms(self.seeds, self.tokens.shape[1], Use.SELECT, self.step.index)

    def selection_gumbel(self) -> Tensor:
        """This step's standard Gumbel noise for choosing what to hide: (b, n) float32."""
        return -(-self.selection_uniforms().log()).log()


class Scorer:
    """Which tokens to trust. The loop hides the tokens of lowest score, once noise is added.

    Scores are what the scorer thinks and what pictures show; noise is randomness in what is hidden. A scorer that does not
    revoke at a step scores +inf at tokens that were visible, so that a kept token stays kept.
    """

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        """The torch modules that it calls."""
        return ()

    @abstractmethod
    def score(self, proposal: Proposal) -> Tensor:
        """(b, n) float, higher = more real."""

    def noise(self, proposal: Proposal) -> Tensor | float:
        """(b, n), added to the scores when tokens are chosen."""
        return 0.0

    def revokes(self, step: Step) -> bool:
        """Whether a visible token may be re-masked at a step."""
        return True

    def code_noise(self, step: Step) -> float:
        """By what the temperature of the sampled codes is multiplied at a step."""
        return 1.0

    def needs_features(self, step: Step) -> bool:
        """Whether `score` reads the generator's features at a step."""
        return False

    def select(self, noisy: Tensor, proposal: Proposal, free: Tensor, num_masked: Tensor) -> Tensor:
        """The mask (b, n) that hides exactly num_masked (b,) tokens of each image.

        noisy: (b, n), the scores with their noise, +inf where a token is not free (b, n).
        """
        return hide_lowest(noisy, num_masked)

    def check(self, generator: MaskedGenerator) -> None:
        """Raises InputError if this scorer cannot judge what the generator makes."""
