"""Learning to judge: Algorithm 1 of the paper, on token arrays and a frozen generator."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tokencritic.data.tokens import TokenArrays
from tokencritic.errors import InputError
from tokencritic.models.critic import Critic, CriticConfig
from tokencritic.models.generator import Generator
from tokencritic.models.saved import SavedModel
from tokencritic.sampling.inputs import device_of
from tokencritic.sampling.loop import Temperature, temperature_range
from tokencritic.sampling.propose import AnyGenerator
from tokencritic.sampling.scorers import CriticScorer, Scorer
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

    generator: ours or any other with `mask_id`; it is frozen, and not part of what is kept.
    """

    name = "critic"

    def __init__(
        self,
        model: Critic,
        generator: AnyGenerator | Generator,
        arrays: TokenArrays,
        objective: CriticObjective,
        tokenizer: Tokenizer | None = None,
        seed: int = 0,
    ) -> None:
        if getattr(generator, "mask_id", None) is None:
            raise InputError("the generator has no attribute mask_id, the token that means hidden; give it one")
        check_fit("generator", generator, arrays)
        super().__init__(model, arrays, objective, tokenizer, seed, generator)
        if isinstance(generator, nn.Module):
            generator.eval().requires_grad_(False)
        self.generator = generator

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
            found = self._judged(network, part, None)
            parts.append(
                (found.values, found.logits.float(), found.originals, found.mask)
            )  # not the generator's logits
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
        generator = self.generator
        name = generator.fingerprint() if isinstance(generator, SavedModel) else type(generator).__name__
        return super().facts() | {"generator": name}

    def sampler(self, model: Any) -> tuple[AnyGenerator, Scorer]:
        return self.generator, CriticScorer(model)

    def _judged(self, network: nn.Module, rows: Tensor, step: int | None) -> CriticLoss:
        return critic_loss(
            network, self.generator, *self.rows(rows, step, device_of(network)), **asdict(self.objective)
        )


def make_critic(
    config: CriticConfig, generator: AnyGenerator | Generator, start: Literal["generator", "random"] = "generator"
) -> Critic:
    """A critic to train for a generator.

    start: "generator" copies the trunk of one of ours, as many of its layers as the config has room for: the sizes are
    then the generator's, and the config's `dropout`, `reads_mask` and `told_ratio` are kept. "random" is the paper's, of the
    config's sizes; so is the start for a generator that is none of ours.
    """
    if start == "random" or not isinstance(generator, Generator):
        return Critic(config)
    layers = min(config.layers, generator.config.layers)
    kept = {name: getattr(config, name) for name in ("dropout", "reads_mask", "told_ratio")}
    return Critic.from_generator(generator, layers, **kept)
