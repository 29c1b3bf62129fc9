"""The tasks on token arrays: training a generator (MaskGIT), a critic (Algorithm 1) and an inline critic."""

import hashlib
import json
from abc import abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from tokencritic.adapters import as_generator
from tokencritic.contracts import ImageTokenizer, MaskedGenerator, TokenCritic
from tokencritic.data.tokens import TokenArrays
from tokencritic.distribution import send, unwrapped
from tokencritic.errors import InputError, check_at_least
from tokencritic.image_forms import to_pil
from tokencritic.models.generator import Generator
from tokencritic.models.inline_critic import InlineCritic
from tokencritic.pictures.grids import image_grid
from tokencritic.randomness import example_seeds
from tokencritic.sampling.scorers import ConfidenceScorer, CriticScorer, InlineScorer
from tokencritic.sampling.settings import Temperature, temperature_range
from tokencritic.sampling.starts import sample
from tokencritic.scoring import Scorer
from tokencritic.training.losses import (
    CriticLoss,
    critic_auc,
    critic_auc_within_image,
    critic_loss,
    generator_loss,
    inline_critic_loss,
)
from tokencritic.training.task import VALIDATION_BATCH, Loss, Task

_VALIDATION_STEP = 2**62  # validation uses the seeds of this step, which no run reaches
_COLUMNS, _ROWS = 10, 2  # the grid of samples in a picture
_STEPS = 12  # sampling steps of a picture
_BINS = 4  # bins of the mask ratio in the critic's validation


def read_rows(
    arrays: TokenArrays, rows: Tensor, step: int | None, seed: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Read the tokens (b, n), labels (b,) and seeds (b,) of a batch: int64.

    rows: (b,) int64.
    step: the training step; None is validation.
    """
    indices = rows.cpu().numpy()
    tokens = arrays.tokens.view(np.ndarray).take(indices, axis=0)  # faster than indexing a memory map
    seeds = example_seeds(seed, _VALIDATION_STEP if step is None else step, rows)
    numbers = (torch.from_numpy(array.astype(np.int64)) for array in (tokens, arrays.labels.take(indices)))
    tokens, labels, seeds = (send(tensor, device) for tensor in (*numbers, seeds))
    return tokens, labels, seeds


def sizes_of(arrays: TokenArrays) -> dict[str, int]:
    """Return the sizes of a model for these tokens, as fields of its config."""
    num_tokens, num_classes = arrays.tokens.shape[1], len(arrays.class_names)
    return {"num_tokens": num_tokens, "codebook_size": arrays.codebook_size, "num_classes": num_classes}


def check_fit(what: str, model: MaskedGenerator | TokenCritic, arrays: TokenArrays) -> None:
    """Raise InputError unless the model's sizes match the tokens. A model without classes is allowed.

    what: the name of the model in the error message.
    """
    own = (model.num_tokens, model.codebook_size, model.num_classes or None)
    for (name, right), value in zip(sizes_of(arrays).items(), own, strict=True):
        if value not in (None, right):
            raise InputError(f"the {what}'s {name} is {value}; expected {right}, as in the tokens")


class TokenTask(Task):
    """The base class of tasks on token arrays. The sizes of the model must match the tokens.

    tokenizer: the tokenizer that made the tokens, used for pictures of samples; None for no pictures.
    seed: determines masks and samples.
    """

    def __init__(
        self, model: Any, arrays: TokenArrays, objective: Any, tokenizer: ImageTokenizer | None = None, seed: int = 0
    ) -> None:
        check_fit(self.name, model, arrays)
        made = arrays.tokenizer_fingerprint[:16]
        if tokenizer is not None and (own := tokenizer.fingerprint()[:16]) != made:
            raise InputError(f"the tokenizer is {own}; expected {made}, which made the tokens")
        super().__init__(model, len(arrays), objective, seed, *(() if tokenizer is None else tokenizer.networks))
        self.arrays, self.tokenizer, self.num_images = arrays, tokenizer, arrays.num_images

    def batch(self, rows: Tensor, step: int | None) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return the tokens, labels and seeds of a batch (`read_rows`). Labels are None for a model without classes."""
        tokens, labels, seeds = read_rows(self.arrays, rows, step, self.seed, self.model.device)
        return tokens, labels if self.model.num_classes else None, seeds

    @abstractmethod
    def sampler(self, model: Any) -> tuple[MaskedGenerator, Scorer]:
        """Return the generator and the scorer that sample the pictures.

        model: the trained model, without a wrapper.
        """

    @torch.no_grad()
    def pictures(self, network: nn.Module) -> dict[str, Image.Image]:
        """Return a grid of samples with the seeds 0, 1, ... Each column has one class. Classes are evenly spaced."""
        if self.tokenizer is None:
            return {}
        classes = self.model.num_classes
        labels = [column * classes // _COLUMNS for column in range(_COLUMNS)] * _ROWS if classes else None
        tokens = sample(*self.sampler(unwrapped(network)), labels, range(_COLUMNS * _ROWS), steps=_STEPS)
        images = self.tokenizer.decode(tokens).float().cpu().permute(0, 2, 3, 1).numpy()
        return {"samples": image_grid([to_pil(image) for image in images], _COLUMNS)}

    def facts(self) -> dict[str, Any]:
        arrays = self.arrays
        tokens = hashlib.sha256(json.dumps(arrays.facts, sort_keys=True).encode()).hexdigest()
        names = list(arrays.class_names) if self.model.num_classes else []
        made_with = {"tokenizer_fingerprint": arrays.tokenizer_fingerprint, "class_names": names}
        return super().facts() | {"tokens": tokens, **made_with}


@dataclass(frozen=True)
class GeneratorObjective:
    """Settings of the generator's loss.

    label_smoothing: the share of each target that is spread evenly over all codes, in [0, 1).
    drop_label: the share of examples whose label is replaced by the null class, in [0, 1). The model needs null_class.
    """

    label_smoothing: float = 0.1
    drop_label: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < 1:
                raise InputError(f"{name} is {value}; it must lie in [0, 1)")


class GeneratorTask(TokenTask):
    """Training of a generator to predict hidden tokens. Arguments are those of `TokenTask`."""

    name = "generator"

    def __init__(self, model: Generator, *given: Any, **options: Any) -> None:
        super().__init__(model, *given, **options)
        if (share := self.objective.drop_label) and not model.null_class:
            raise InputError(f"drop_label is {share}; expected 0 for a generator without null_class")

    def loss(self, network: nn.Module, rows: Tensor, step: int | None) -> Loss:
        options = asdict(self.objective) | ({"drop_label": 0.0} if step is None else {})
        found = generator_loss(network, *self.batch(rows, step), **options)
        # Only in validation, because it reads all logits once more.
        return Loss(found.values, {"accuracy": found.correct} if step is None else {}, found.mask)

    def sampler(self, model: Any) -> tuple[MaskedGenerator, Scorer]:
        return model, ConfidenceScorer()


class FillingsTask(TokenTask):
    """The base class of tasks that train a model to detect tokens that a frozen generator filled in.

    generator: a `MaskedGenerator`, or a callable that `as_generator` accepts. It is frozen and not saved.
    The other arguments are those of `TokenTask`.
    """

    def __init__(
        self,
        model: Any,
        generator: Any,
        arrays: TokenArrays,
        objective: Any,
        tokenizer: ImageTokenizer | None = None,
        seed: int = 0,
    ) -> None:
        self.generator = as_generator(generator)
        check_fit("generator", self.generator, arrays)
        super().__init__(model, arrays, objective, tokenizer, seed)
        for network in self.generator.networks:
            self.parts.append(network.eval().requires_grad_(False))

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"generator": self.generator.identity()}


@dataclass(frozen=True)
class CriticObjective:
    """Settings of the critic's loss.

    target: which tokens have the label 0. "masked" is every token that was hidden, as in the paper. "changed" is every
    hidden token where the generator sampled another code than the original.
    temperature: sampling temperature of the generator, one number or (start, end) of a sampler.
    """

    target: Literal["masked", "changed"] = "masked"
    temperature: Temperature = 1.0

    def __post_init__(self) -> None:
        temperature_range(self.temperature)


class CriticTask(FillingsTask):
    """Training of a critic on complete images in which the generator filled in some tokens."""

    name = "critic"

    def loss(self, network: nn.Module, rows: Tensor, step: int | None) -> Loss:
        found = self._judged(network, rows, step)
        return Loss(found.values, {"accuracy": (found.logits.detach() > 0) == found.originals})

    @torch.no_grad()
    def validate(self, network: nn.Module, rows: Tensor) -> dict[str, float]:
        """Compute `loss`, `accuracy`, `auc` and `auc_within_image` on held-out examples.

        Accuracy and AUC are also computed in bins of the mask ratio in per cent, from `auc_ratio_00_25` to
        `auc_ratio_75_100`. Undefined values, such as the AUC of an empty bin, are left out.
        """
        parts = []
        for part in rows.split(VALIDATION_BATCH):
            found = self._judged(network, part, None)
            # Only these are kept: the proposal would keep the generator's logits in memory.
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

    def sampler(self, model: Any) -> tuple[MaskedGenerator, Scorer]:
        return self.generator, CriticScorer(model)

    def _judged(self, network: nn.Module, rows: Tensor, step: int | None) -> CriticLoss:
        return critic_loss(network, self.generator, *self.batch(rows, step), **asdict(self.objective))


@dataclass(frozen=True)
class InlineCriticObjective:
    """Settings of the inline critic's loss.

    temperature: sampling temperature of the generator, one number or (start, end) of a sampler.
    fills: how many times the generator fills in tokens of an image before the critic scores it.
    """

    temperature: Temperature = 1.0
    fills: int = 1

    def __post_init__(self) -> None:
        temperature_range(self.temperature)
        check_at_least(1, fills=self.fills)


class InlineCriticTask(FillingsTask):
    """Training of an inline critic on the generator's features of partly hidden images."""

    name = "inline_critic"

    def __init__(self, model: InlineCritic, generator: MaskedGenerator, *given: Any, **options: Any) -> None:
        super().__init__(model, generator, *given, **options)
        model.check(self.generator, weights=True)

    def loss(self, network: nn.Module, rows: Tensor, step: int | None) -> Loss:
        batch = self.batch(rows, step)
        found = inline_critic_loss(network, self.generator, *batch, **asdict(self.objective))
        return Loss(found.values, {}, found.visible)

    @torch.no_grad()
    def validate(self, network: nn.Module, rows: Tensor) -> dict[str, float]:
        """Compute `loss` and, if defined, `auc_within_image` over the visible tokens of held-out examples."""
        batches = (self.batch(part, None) for part in rows.split(VALIDATION_BATCH))
        found = [inline_critic_loss(network, self.generator, *batch, **asdict(self.objective)) for batch in batches]
        judged = (torch.cat([vars(one)[name] for one in found]) for name in ("logits", "originals", "visible"))
        numbers = {
            "loss": torch.cat([one.values[one.visible] for one in found]).mean(),
            "auc_within_image": critic_auc_within_image(*judged),
        }
        return {name: value.item() for name, value in numbers.items() if value.isfinite()}

    def sampler(self, model: Any) -> tuple[MaskedGenerator, Scorer]:
        return self.generator, InlineScorer(model)
