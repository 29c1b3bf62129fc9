"""Learning to judge: Algorithm 1 of the paper, on token arrays and a frozen generator."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor, nn

from tokencritic.data.tokens import TokenArrays
from tokencritic.distribution import unwrapped
from tokencritic.errors import InputError
from tokencritic.masking import Schedule
from tokencritic.models.critic import Critic, CriticConfig
from tokencritic.models.generator import Generator
from tokencritic.sampling.inputs import device_of
from tokencritic.sampling.loop import Temperature, temperature_range
from tokencritic.sampling.propose import AnyGenerator
from tokencritic.sampling.scorers import CriticScorer
from tokencritic.tokenizers.tokenizer import Tokenizer
from tokencritic.training.generator_task import samples_picture
from tokencritic.training.losses import CriticLoss, critic_accuracy, critic_auc, critic_auc_within_image, critic_loss
from tokencritic.training.task import AT_ONCE, Loss
from tokencritic.training.token_rows import VALIDATION, TokenRows, check_fit, check_tokenizer

_BINS = 4  # of the mask ratio, in validation


@dataclass(frozen=True)
class CriticObjective:
    """target: what counts as a filling: "masked", every token that was hidden, as in the paper; or "changed", only those
    where the generator drew another code than there had been.

    temperature: of the generator's draws, one number or the start and end of a sampler's. schedule: of the mask ratio.
    """

    target: Literal["masked", "changed"] = "masked"
    temperature: Temperature = 1.0
    schedule: Schedule = "cosine"

    def __post_init__(self) -> None:
        if isinstance(self.temperature, list):  # as YAML has it
            object.__setattr__(self, "temperature", tuple(self.temperature))
        temperature_range(self.temperature)


class CriticTask:
    """model: of the tokens' sizes. generator: ours or any other with `mask_id`; it is frozen, and not part of what is kept.

    tokenizer: the one that made the tokens, to show samples; None, and there is no picture. seed: of masks and draws.
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
        check_fit("critic", model, arrays)
        check_tokenizer(tokenizer, arrays)
        if isinstance(generator, nn.Module):
            generator.eval().requires_grad_(False)
        self.model, self.generator, self.objective, self.tokenizer = model, generator, objective, tokenizer
        self.rows = TokenRows(arrays, seed, labelled=model.num_classes > 0)

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    @property
    def num_images(self) -> int:
        return self.rows.num_images

    def to(self, device: torch.device) -> None:
        for part in (self.model, self.generator, self.tokenizer):
            if isinstance(part, nn.Module):
                part.to(device)

    def loss(self, network: nn.Module, rows: Tensor, step: int) -> Loss:
        found = self._judged(network, rows, step)
        return Loss(found.values, {"accuracy": critic_accuracy(found.logits.detach(), found.originals)})

    def after_step(self, step: int, progress: float) -> None:
        """Nothing else moves."""

    @torch.no_grad()
    def validate(self, network: nn.Module, rows: Tensor) -> dict[str, float]:
        """`loss`, `accuracy`, `auc`, `auc_within_image`; accuracy and AUC also by mask ratio, as `auc_ratio_00_25` to
        `auc_ratio_75_100`: of images with so many tokens hidden, in per cent. What cannot be told, such as the AUC of no
        image, is left out.
        """
        parts = [self._judged(network, part, VALIDATION) for part in rows.split(AT_ONCE)]
        fields = ("values", "logits", "originals", "mask")
        values, logits, originals, mask = (torch.cat([getattr(part, name) for part in parts]) for name in fields)
        logits = logits.float()
        numbers = {
            "loss": values.mean(),
            "accuracy": critic_accuracy(logits, originals),
            "auc": critic_auc(logits, originals),
            "auc_within_image": critic_auc_within_image(logits, originals),
        }
        bins = (mask.float().mean(1) * _BINS).ceil().clamp(min=1)
        for index in range(1, _BINS + 1):
            low, high = (100 * edge // _BINS for edge in (index - 1, index))
            for name, measure in (("accuracy", critic_accuracy), ("auc", critic_auc)):
                numbers[f"{name}_ratio_{low:02}_{high}"] = measure(logits[bins == index], originals[bins == index])
        return {name: value.item() for name, value in numbers.items() if value.isfinite()}

    def pictures(self, network: nn.Module) -> dict[str, Image.Image]:
        if self.tokenizer is None:
            return {}
        return {"samples": samples_picture(self.generator, CriticScorer(unwrapped(network)), self.tokenizer)}

    def facts(self) -> dict[str, Any]:
        fingerprint = getattr(self.generator, "fingerprint", None)
        return {
            "config": asdict(self.model.config),
            "objective": asdict(self.objective),
            "generator": type(self.generator).__name__ if fingerprint is None else fingerprint(),
            **self.rows.facts(),
        }

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def _judged(self, network: nn.Module, rows: Tensor, step: int) -> CriticLoss:
        tokens, labels, seeds = self.rows(rows, step, device_of(network))
        return critic_loss(network, self.generator, tokens, labels, seeds, **asdict(self.objective))


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
