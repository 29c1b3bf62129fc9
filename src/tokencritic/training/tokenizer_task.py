"""Learning to tokenize: the VQGAN objective on images, any term of it switched off by a weight of 0."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from tokencritic.tokenizers.quantizer import CodebookUpkeep, squared_distances
from tokencritic.tokenizers.tokenizer import Tokenizer, TokenizerOutput
from tokencritic.training import tokenizer_losses as losses
from tokencritic.training.discriminator import PatchDiscriminator

_SETTLED = 0.8  # of a run; after it no code is re-seeded, so that decoder and average can settle on the codebook


@dataclass(frozen=True)
class TokenizerObjective:
    """The weight of each term.

    squared, absolute: of the pixel errors. commitment: draws latents to codes. entropy: sharp choices, even use.
    perceptual: LPIPS. adversarial: of the patch discriminator, times the adaptive weight if `adaptive`; it joins in after
    `adversarial_after` steps. gradient_penalty: R1, every 16th step. discriminator_filters, _levels: its size.
    """

    squared: float = 1.0
    absolute: float = 0.2
    commitment: float = 0.025
    entropy: float = 0.0
    perceptual: float = 0.0
    adversarial: float = 0.0
    adaptive: bool = False
    adversarial_after: int = 1000
    gradient_penalty: float = 0.0
    discriminator_filters: int = 16
    discriminator_levels: int = 2
    discriminator_rate: float = 5e-4


class TokenizerTask:
    """images: step -> (b, c, h, w) float in [0, 1], a pure function of the step. perceptual: LPIPS, if its weight is not 0."""

    name = "tokenizer"

    def __init__(
        self,
        model: Tokenizer,
        images: Callable[[int], Tensor],
        objective: TokenizerObjective,
        perceptual: Callable[[Tensor, Tensor], Tensor] | None = None,
        seed: int = 0,
    ) -> None:
        self.model, self.images, self.objective, self.perceptual, self.seed = model, images, objective, perceptual, seed
        model.quantizer.codebook.requires_grad_(False)  # moved by the upkeep, as the mean of the latents that chose it
        self.upkeep = CodebookUpkeep(model.quantizer)
        self.discriminator: PatchDiscriminator | None = None
        if objective.adversarial:
            self.discriminator = PatchDiscriminator(
                model.channels, objective.discriminator_filters, objective.discriminator_levels
            )
            rate = objective.discriminator_rate
            self.optimizer = torch.optim.AdamW(self.discriminator.parameters(), rate, betas=(0.5, 0.9), fused=True)
        self._last: tuple[Tensor, TokenizerOutput] | None = None

    def loss(self, step: int) -> tuple[Tensor, dict[str, float]]:
        images = self.images(step)
        out = self.model(images)
        weights = self.objective
        squared = losses.squared_error(out.reconstruction, images).mean()
        likeness = (
            weights.squared * squared + weights.absolute * losses.absolute_error(out.reconstruction, images).mean()
        )
        if self.perceptual is not None and weights.perceptual:
            likeness = likeness + weights.perceptual * self.perceptual(out.reconstruction, images).mean()
        total = likeness + weights.commitment * losses.commitment_error(out.latents, out.quantized).mean()
        if weights.entropy:
            rows = out.latents.permute(0, 2, 3, 1).flatten(0, 2)
            distances = squared_distances(rows, self.model.quantizer.codebook)
            total = total + weights.entropy * losses.affinity_entropy(distances).mean()
        if self._adversarial(step):
            total = total + self._fooling(out, likeness)
        self._last = images, out
        return total, {"squared_error": squared.item(), "perplexity": self.upkeep.perplexity()}

    def after_step(self, step: int, progress: float) -> None:
        assert self._last is not None
        images, out = self._last
        rng = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        self.upkeep.update(self.model.quantizer, out.latents, out.tokens, rng, reseed=progress < _SETTLED)
        if (
            self.discriminator is not None and step >= self.objective.adversarial_after // 2
        ):  # it learns before it is heard
            self._train_discriminator(step, images, out.reconstruction.detach())
        self._last = None

    def facts(self) -> dict[str, Any]:
        return {"config": asdict(self.model.config), "objective": asdict(self.objective), "seed": self.seed}

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"upkeep": self.upkeep.state_dict()}
        if self.discriminator is not None:
            state |= {"discriminator": self.discriminator.state_dict(), "optimizer": self.optimizer.state_dict()}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.upkeep.load_state_dict(state["upkeep"])
        if self.discriminator is not None:
            self.discriminator.load_state_dict(state["discriminator"])
            self.optimizer.load_state_dict(state["optimizer"])

    def _adversarial(self, step: int) -> bool:
        return self.discriminator is not None and step >= self.objective.adversarial_after

    def _fooling(self, out: TokenizerOutput, likeness: Tensor) -> Tensor:
        assert self.discriminator is not None
        self.discriminator.requires_grad_(False)
        fooling = losses.fooling_loss(self.discriminator(out.reconstruction)).mean()
        self.discriminator.requires_grad_(True)
        weight = self.objective.adversarial
        if self.objective.adaptive:
            weight = weight * losses.adaptive_weight(likeness, fooling, self.model.last_layer)
        return weight * fooling

    def _train_discriminator(self, step: int, images: Tensor, fakes: Tensor) -> None:
        assert self.discriminator is not None
        loss = losses.discriminator_loss(self.discriminator(images), self.discriminator(fakes)).mean()
        if self.objective.gradient_penalty and step % 16 == 0:
            loss = (
                loss + 16 * self.objective.gradient_penalty * losses.gradient_penalty(self.discriminator, images).mean()
            )
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
