"""Learning to judge: Algorithm 1 of the paper, on token arrays and a frozen generator."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tokencritic.adapters import as_generator
from tokencritic.contracts import MaskedGenerator, Scorer
from tokencritic.data.tokens import TokenArrays
from tokencritic.models.critic import Critic, CriticConfig
from tokencritic.sampling.scorers import CriticScorer
from tokencritic.sampling.settings import Temperature, temperature_range
from tokencritic.tokenizers.tokenizer import Tokenizer
from tokencritic.training.losses import CriticLoss, critic_auc, critic_auc_within_image, critic_loss
from tokencritic.training.task import VALIDATION_BATCH, Loss
from tokencritic.training.token_rows import TokenTask, check_fit

_BINS = 4  # of the mask ratio, in validation


@dataclass(frozen=True)
class CriticObjective:
    """What the critic's loss is made of.

    target: what counts as a filling: "masked", every token that was hidden, as in the paper; or "changed", only those
    where the generator drew another code than there had been.
    temperature: of the generator's draws, one number or the start and end of a sampler's.
    """

    target: Literal["masked", "changed"] = "masked"
    temperature: Temperature = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.temperature, list):  # as YAML has it
            object.__setattr__(self, "temperature", tuple(self.temperature))
        temperature_range(self.temperature)


class CriticTask(TokenTask):
    """A critic learns to tell original tokens from fillings; see `TokenTask`.

    generator: by the contract or as `as_generator` makes it whole; it is frozen, and not part of what is kept.
    """

    name = "critic"

    def __init__(
        self,
        model: Critic,
        generator: Any,
        arrays: TokenArrays,
        objective: CriticObjective,
        tokenizer: Tokenizer | None = None,
        seed: int = 0,
    ) -> None:
        self.generator = as_generator(generator)
        check_fit("generator", self.generator, arrays)
        super().__init__(model, arrays, objective, tokenizer, seed, *self.generator.networks)
        for network in self.generator.networks:
            network.eval().requires_grad_(False)

    def loss(self, network: nn.Module, rows: Tensor, step: int | None) -> Loss:
        found = self._judged(network, rows, step)
        return Loss(found.values, {"accuracy": found.hits})

    @torch.no_grad()
    def validate(self, network: nn.Module, rows: Tensor) -> dict[str, float]:
        """`loss`, `accuracy`, `auc`, `auc_within_image`; accuracy and AUC also by mask ratio, as `auc_ratio_00_25` to
        `auc_ratio_75_100`: of images with so many tokens hidden, in per cent. What cannot be told, such as the AUC of no
        image, is left out.
        """
        parts = []
        for part in rows.split(VALIDATION_BATCH):
            found = self._judged(network, part, None)  # of which the generator's logits are not kept
            parts.append((found.values, found.logits.float(), found.originals, found.mask))
        values, logits, originals, mask = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        hits = (logits > 0) == originals
        numbers = {
            "loss": values.mean(),
            "accuracy": hits.float().mean(),
            "auc": critic_auc(logits, originals),
            "auc_within_image": critic_auc_within_image(logits, originals),
        }
        bins = (mask.float().mean(1) * _BINS).ceil().clamp(min=1)
        for index in range(1, _BINS + 1):
            chosen, ratio = bins == index, f"ratio_{100 * (index - 1) // _BINS:02}_{100 * index // _BINS}"
            numbers[f"accuracy_{ratio}"] = hits[chosen].float().mean()
            numbers[f"auc_{ratio}"] = critic_auc(logits[chosen], originals[chosen])
        return {name: value.item() for name, value in numbers.items() if value.isfinite()}

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"generator": self.generator.identity()}

    def sampler(self, model: Any) -> tuple[MaskedGenerator, Scorer]:
        return self.generator, CriticScorer(model)

    def _judged(self, network: nn.Module, rows: Tensor, step: int | None) -> CriticLoss:
        batch = self.rows(rows, step, self.model.device)
        return critic_loss(network, self.generator, *batch, **asdict(self.objective))


def make_critic(
    config: CriticConfig, generator: MaskedGenerator, start: Literal["generator", "random"] = "generator"
) -> Critic:
    """A critic to train for a generator, of the config's sizes.

    start: "generator" copies the first layers of the generator's trunk, where it has one. "random" is the paper's.
    """
    trunk = generator.critic_trunk(config.layers, config.dropout) if start == "generator" else None
    return Critic(config, trunk)
