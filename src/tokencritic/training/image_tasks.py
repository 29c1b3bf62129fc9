"""The tasks on images: training a tokenizer, and training a classifier."""

import hashlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from tokencritic.data.transforms import ImageBatches
from tokencritic.errors import InputError, check_at_least
from tokencritic.fingerprints import with_weights
from tokencritic.image_forms import to_pil
from tokencritic.models.classifier import Classifier
from tokencritic.pictures.grids import image_grid
from tokencritic.randomness import example_seeds, torch_rng
from tokencritic.tokenizers.quantizer import CodebookUpkeep, code_counts, perplexity
from tokencritic.tokenizers.tokenizer import Tokenizer, TokenizerOutput
from tokencritic.training.perceptual import Lpips
from tokencritic.training.task import VALIDATION_BATCH, Loss, Task

_SETTLED = 0.8  # after this share of a run no code is re-seeded, so that decoder and average fit the final codebook


@dataclass(frozen=True)
class TokenizerObjective:
    """The weights of the terms of the tokenizer's loss. The squared pixel error has weight 1.

    absolute: weight of the absolute pixel error.
    commitment: weight of the squared distance of latents to their codes.
    perceptual: weight of LPIPS.
    perceptual_scale: the factor by which images are enlarged for LPIPS, which does not resolve small images.
    perceptual_after: the step from which LPIPS is used. It dominates the cost of a step on small images.
    """

    absolute: float = 0.2
    commitment: float = 0.025
    perceptual: float = 0.0
    perceptual_scale: int = 1
    perceptual_after: int = 0

    def __post_init__(self) -> None:
        check_at_least(1, perceptual_scale=self.perceptual_scale)


class ImageTask(Task):
    """The base class of tasks on images.

    images: (rows, step, device) -> (b, c, h, w) float in [0, 1]. A step of None disables random augmentation.
    The other arguments are those of `Task`.
    """

    def __init__(self, model: Any, images: ImageBatches, objective: Any, seed: int, *others: Any) -> None:
        super().__init__(model, len(images), objective, seed, *others)
        self.images = images

    def reading_ahead(self, parts: Iterable[tuple[Tensor, int]], images: int) -> AbstractContextManager[None]:
        return self.images.reading_ahead(parts, images, self.model.device)

    def facts(self) -> dict[str, Any]:
        return super().facts() | self.images.facts()


class TokenizerTask(ImageTask):
    """Training of a tokenizer to encode and reconstruct images.

    images: as in `ImageTask`.
    perceptual: LPIPS, or None. It is unused if its weight is 0.
    seed: determines how dead codes are re-seeded.
    """

    name = "tokenizer"

    def __init__(
        self,
        model: Tokenizer,
        images: ImageBatches,
        objective: TokenizerObjective,
        perceptual: Lpips | None = None,
        seed: int = 0,
    ) -> None:
        self.perceptual = perceptual if objective.perceptual else None
        model.quantizer.codebook.requires_grad_(False)  # updated by the upkeep instead, as a mean of latents
        self.upkeep = CodebookUpkeep(model.quantizer)
        super().__init__(model, images, objective, seed, self.upkeep, self.perceptual)
        self._seen: list[tuple[Tensor, Tensor]] = []  # latents and tokens of each part of this step

    def loss(self, network: nn.Module, rows: Tensor, step: int | None) -> Loss:
        assert step is not None  # `validate` does not call this method
        images = self.images(rows, step, self.model.device)
        out: TokenizerOutput = network(images)
        weights = self.objective
        squared = (out.reconstruction - images).square().flatten(1).mean(1)  # b
        absolute = (out.reconstruction - images).abs().flatten(1).mean(1)  # reduces blur
        total = squared + weights.absolute * absolute
        if self.perceptual is not None and step >= weights.perceptual_after:
            pair = [out.reconstruction, images]
            if weights.perceptual_scale > 1:
                pair = [F.interpolate(side, scale_factor=weights.perceptual_scale, mode="bilinear") for side in pair]
            total = total + weights.perceptual * self.perceptual(*pair)
        commitment = (out.latents - out.quantized.detach()).square()  # trains the encoder, not the codes
        total = total + weights.commitment * commitment.flatten(1).mean(1)
        # The upkeep runs in float32, outside of autocast.
        self._seen.append((out.latents.detach().float(), out.tokens))
        return Loss(total, {"squared_error": squared.mean(), "perplexity": perplexity(self.upkeep.counts)})

    def after_step(self, step: int, progress: float) -> None:
        latents, tokens = (torch.cat(parts) for parts in zip(*self._seen, strict=True))
        self._seen.clear()
        rng = torch_rng(int(example_seeds(self.seed, step, torch.tensor([0]))))
        self.upkeep.update(self.model.quantizer, latents, tokens, rng, reseed=progress < _SETTLED)

    @torch.no_grad()
    def validate(self, network: nn.Module, rows: Tensor) -> dict[str, float]:
        squared, counts = [], torch.zeros(self.model.codebook_size)
        for part in rows.split(VALIDATION_BATCH):
            images = self.images(part, None, self.model.device)
            out: TokenizerOutput = network(images)
            squared.append((out.reconstruction.clamp(0, 1) - images).square().flatten(1).mean(1))
            counts += code_counts(out.tokens, self.model.codebook_size).cpu()
        error = torch.cat(squared)
        psnr = float(-10 * error.clamp(min=1e-10).log10().mean())
        return {"loss": float(error.mean()), "psnr": psnr, "perplexity": float(perplexity(counts))}

    def pictures(self, network: nn.Module) -> dict[str, Image.Image]:
        """Return a grid in which each row of originals is above the row of their reconstructions."""
        images = self.images(torch.arange(min(16, self.num_rows)), None, self.model.device)
        pairs = zip(images.split(8), network(images).reconstruction.clamp(0, 1).split(8), strict=True)
        arrays = torch.cat([image for pair in pairs for image in pair]).permute(0, 2, 3, 1).cpu().numpy()
        return {"reconstructions": image_grid([to_pil(array) for array in arrays], columns=8)}

    def facts(self) -> dict[str, Any]:
        perceptual = None if self.perceptual is None else with_weights(hashlib.sha256(), self.perceptual)
        return super().facts() | {"perceptual": perceptual}

    def state_dict(self) -> dict[str, Tensor]:
        return self.upkeep.state_dict()


@dataclass(frozen=True)
class ClassifierObjective:
    """Settings of the classifier's loss.

    label_smoothing: the share of each target that is spread evenly over all classes, in [0, 1).
    shift: the maximum random shift of an image along each side, in pixels.
    """

    label_smoothing: float = 0.1
    shift: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise InputError(f"label_smoothing is {self.label_smoothing}; it must lie in [0, 1)")
        check_at_least(0, shift=self.shift)


class ClassifierTask(ImageTask):
    """Training of a classifier on labelled images.

    seed: determines the random shifts.
    """

    name = "classifier"

    def __init__(self, model: Classifier, images: ImageBatches, objective: ClassifierObjective, seed: int = 0) -> None:
        classes, size = len(images.source.class_names), model.config.image_size
        if model.num_classes != classes:
            raise InputError(f"the classifier's num_classes is {model.num_classes}; the data set has {classes} classes")
        if objective.shift >= size:
            raise InputError(f"shift is {objective.shift}; expected less than the image size of {size} pixels")
        super().__init__(model, images, objective, seed)

    def loss(self, network: nn.Module, rows: Tensor, step: int | None) -> Loss:
        images, labels = self.images.labelled(rows, step, self.model.device)
        if self.objective.shift and step is not None:
            images = shifted(images, example_seeds(self.seed, step, rows), self.objective.shift)
        logits, smoothing = network(images).float(), self.objective.label_smoothing
        values = F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
        return Loss(values, {"accuracy": logits.argmax(1) == labels})

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"class_names": list(self.images.source.class_names)}


def shifted(images: Tensor, seeds: Tensor, most: int) -> Tensor:
    """Shift each image by up to `most` random pixels along each side and fill with black.

    images: (b, c, h, w).
    seeds: (b,) int64 on the CPU, wherever the images are, because the host computes the shifts.
    """
    (height, width), choices = images.shape[2:], 2 * most + 1
    down, right = seeds % choices, seeds // choices % choices  # a seed is a hash, so its remainders are random
    padded = F.pad(images, (most,) * 4).permute(0, 2, 3, 1)
    places = zip(padded, down.tolist(), right.tolist(), strict=True)
    return torch.stack([image[y : y + height, x : x + width] for image, y, x in places]).permute(0, 3, 1, 2)
