"""The tasks on token arrays: learning to generate, MaskGIT's objective, and to judge, Algorithm 1 of the paper."""

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
from tokencritic.contracts import MaskedGenerator, Scorer, TokenCritic
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
from tokencritic.tokenizers.tokenizer import Tokenizer
from tokencritic.training.losses import (
    CriticLoss,
    critic_auc,
    critic_auc_within_image,
    critic_loss,
    generator_loss,
    inline_critic_loss,
)
from tokencritic.training.task import VALIDATION_BATCH, Loss, Task

_VALIDATION_STEP = 2**62  # whose seeds validation uses, always the same; no run gets so far
_COLUMNS, _ROWS = 10, 2  # of a picture of samples
_STEPS = 12
_BINS = 4  # of the mask ratio, in the critic's validation


def read_rows(
    arrays: TokenArrays, rows: Tensor, step: int | None, seed: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (b, n), labels (b,) and seeds (b,) of some examples: int64. rows: (b,) int64. step: None is validation."""
    indices = rows.cpu().numpy()
    tokens = arrays.tokens.view(np.ndarray).take(indices, axis=0)  # the map's own indexing is slower
    seeds = example_seeds(seed, _VALIDATION_STEP if step is None else step, rows)
    numbers = (torch.from_numpy(array.astype(np.int64)) for array in (tokens, arrays.labels.take(indices)))
    tokens, labels, seeds = (send(tensor, device) for tensor in (*numbers, seeds))
    return tokens, labels, seeds


def sizes_of(arrays: TokenArrays) -> dict[str, int]:
    """What a model for these tokens must have, by the names of its config."""
    num_tokens, num_classes = arrays.tokens.shape[1], len(arrays.class_names)
    return {"num_tokens": num_tokens, "codebook_size": arrays.codebook_size, "num_classes": num_classes}


def check_fit(what: str, model: MaskedGenerator | TokenCritic, arrays: TokenArrays) -> None:
    """Raises InputError unless the model has the tokens' sizes; it may be one without classes."""
    own = (model.num_tokens, model.codebook_size, model.num_classes or None)
    for (name, right), value in zip(sizes_of(arrays).items(), own, strict=True):
        if value not in (None, right):
            raise InputError(f"the {what}'s {name} is {value} but the tokens' is {right}; they must be equal")


class TokenTask(Task):
    """A task on token arrays, for a model of their sizes.

    tokenizer: the one that made the tokens, to show samples; None, and there is no picture. seed: of masks and samples.
    """

    def __init__(
        self, model: Any, arrays: TokenArrays, objective: Any, tokenizer: Tokenizer | None = None, seed: int = 0
    ) -> None:
        check_fit(self.name, model, arrays)
        made = arrays.tokenizer_fingerprint[:16]
        if tokenizer is not None and (own := tokenizer.fingerprint()[:16]) != made:
            raise InputError(f"the tokens were made with tokenizer {made}, and this tokenizer is {own}; give that one")
        super().__init__(model, len(arrays), objective, seed, tokenizer)
        self.arrays, self.tokenizer, self.num_images = arrays, tokenizer, arrays.num_images

    def batch(self, rows: Tensor, step: int | None) -> tuple[Tensor, Tensor | None, Tensor]:
        """Tokens, labels and seeds of some examples, see `read_rows`; a model without classes has None for labels."""
        tokens, labels, seeds = read_rows(self.arrays, rows, step, self.seed, self.model.device)
        return tokens, labels if self.model.num_classes else None, seeds

    @abstractmethod
    def sampler(self, model: Any) -> tuple[MaskedGenerator, Scorer]:
        """The generator and the scorer whose samples are shown. model: the trained one, without a wrapper."""

    @torch.no_grad()
    def pictures(self, network: nn.Module) -> dict[str, Image.Image]:
        """A grid of samples from the seeds 0, 1, ...: each column one class, and the columns spread over all classes."""
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
        made_with = {"tokenizer_fingerprint": arrays.tokenizer_fingerprint, "class_names": list(arrays.class_names)}
        return super().facts() | {"tokens": tokens, **made_with}


@dataclass(frozen=True)
class GeneratorObjective:
    """What the generator's loss is made of.

    label_smoothing: the share of each target that is spread evenly over all codes.
    drop_label: the share of examples that are shown the null class instead of their own; the model needs null_class.
    """

    label_smoothing: float = 0.1
    drop_label: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < 1:
                raise InputError(f"{name} is {value}; it must lie in [0, 1)")


class GeneratorTask(TokenTask):
    """A generator learns to fill in hidden tokens; see `TokenTask`."""

    name = "generator"

    def __init__(self, model: Generator, *given: Any, **options: Any) -> None:
        super().__init__(model, *given, **options)
        if (share := self.objective.drop_label) and not model.null_class:
            raise InputError(f"drop_label is {share} but the generator's null_class is false")

    def loss(self, network: nn.Module, rows: Tensor, step: int | None) -> Loss:
        options = asdict(self.objective) | ({"drop_label": 0.0} if step is None else {})
        found = generator_loss(network, *self.batch(rows, step), **options)
        # In validation alone: it takes another pass over all logits.
        return Loss(found.values, {"accuracy": found.correct} if step is None else {}, found.mask)

    def sampler(self, model: Any) -> tuple[MaskedGenerator, Scorer]:
        return model, ConfidenceScorer()


class FillingsTask(TokenTask):
    """A model learns to tell original tokens from what a frozen generator fills in; see `TokenTask`.

    generator: by the contract or as `as_generator` makes it whole; it is frozen, and not part of what is kept.
    """

    def __init__(
        self,
        model: Any,
        generator: Any,
        arrays: TokenArrays,
        objective: Any,
        tokenizer: Tokenizer | None = None,
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
    """What the critic's loss is made of.

    target: what counts as a filling: "masked", every token that was hidden, as in the paper; or "changed", only those
    where the generator sampled another code than the original.
    temperature: of the generator's samples, one number or the start and end of a sampler's.
    """

    target: Literal["masked", "changed"] = "masked"
    temperature: Temperature = 1.0

    def __post_init__(self) -> None:
        temperature_range(self.temperature)


class CriticTask(FillingsTask):
    """A critic learns from complete images, some of whose tokens were filled in."""

    name = "critic"

    def loss(self, network: nn.Module, rows: Tensor, step: int | None) -> Loss:
        found = self._judged(network, rows, step)
        return Loss(found.values, {"accuracy": (found.logits.detach() > 0) == found.originals})

    @torch.no_grad()
    def validate(self, network: nn.Module, rows: Tensor) -> dict[str, float]:
        """`loss`, `accuracy`, `auc`, `auc_within_image`; accuracy and AUC also by mask ratio, as `auc_ratio_00_25` to
        `auc_ratio_75_100`: of images with so many tokens hidden, in per cent. What is not defined, such as the AUC of
        no image, is left out.
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

    def sampler(self, model: Any) -> tuple[MaskedGenerator, Scorer]:
        return self.generator, CriticScorer(model)

    def _judged(self, network: nn.Module, rows: Tensor, step: int | None) -> CriticLoss:
        return critic_loss(network, self.generator, *self.batch(rows, step), **asdict(self.objective))


@dataclass(frozen=True)
class InlineCriticObjective:
    """What the inline critic's loss is made of.

    temperature: of the generator's samples, one number or the start and end of a sampler's.
    fills: how many times the generator fills in an image before the critic sees it.
    """

    temperature: Temperature = 1.0
    fills: int = 1

    def __post_init__(self) -> None:
        temperature_range(self.temperature)
        check_at_least(1, fills=self.fills)


class InlineCriticTask(FillingsTask):
    """A head on the generator learns from its features of partly hidden images."""

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
        """`loss` and, if it is defined, `auc_within_image`, among visible tokens."""
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
