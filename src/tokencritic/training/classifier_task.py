"""Learning to name the class of an image."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokencritic.data.images import ImageBatches
from tokencritic.errors import InputError, check_at_least
from tokencritic.models.classifier import Classifier
from tokencritic.randomness import example_seeds
from tokencritic.training.task import Loss, Task


@dataclass(frozen=True)
class ClassifierObjective:
    """What the classifier's loss is made of.

    label_smoothing: the share of each target that is spread evenly over all classes.
    shift: each image is moved by up to so many pixels along each side, at random.
    """

    label_smoothing: float = 0.1
    shift: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise InputError(f"label_smoothing is {self.label_smoothing}; it must lie in [0, 1)")
        check_at_least(0, shift=self.shift)


class ClassifierTask(Task[Classifier]):
    """A classifier learns to name the classes of images. seed: of the shifts."""

    name = "classifier"

    def __init__(self, model: Classifier, images: ImageBatches, objective: ClassifierObjective, seed: int = 0) -> None:
        classes, size = len(images.source.class_names), model.config.image_size
        if model.num_classes != classes:
            raise InputError(f"the classifier's num_classes is {model.num_classes} but the images' is {classes}")
        if objective.shift >= size:
            raise InputError(f"shift is {objective.shift}; it must be below the image's {size} pixels")
        super().__init__(model, images, objective, seed)
        self.images = images

    def loss(self, network: nn.Module, rows: Tensor, step: int | None) -> Loss:
        device = self.model.device
        images, labels = (tensor.to(device) for tensor in self.images.labelled(rows, step))
        if self.objective.shift and step is not None:
            images = shifted(images, example_seeds(self.seed, step, rows).to(device), self.objective.shift)
        logits, smoothing = network(images).float(), self.objective.label_smoothing
        values = F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
        return Loss(values, {"accuracy": logits.argmax(1) == labels})

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"class_names": list(self.images.source.class_names)}


def shifted(images: Tensor, seeds: Tensor, most: int) -> Tensor:
    """Each image moved by up to `most` pixels along each side, black coming in. images: (b, c, h, w); seeds: (b,) int64."""
    height, width = images.shape[2:]
    choices = 2 * most + 1  # a seed is a hash: its remainders are as good as draws
    down, right = seeds % choices, seeds // choices % choices
    # fmt: off
    padded = F.pad(images, (most, most, most, most))                                           # b c h+2m w+2m
    rows = torch.arange(height, device=images.device) + down[:, None]                          # b h
    columns = torch.arange(width, device=images.device) + right[:, None]                       # b w
    examples = torch.arange(len(images), device=images.device)[:, None, None]                  # b 1 1
    moved = padded.permute(0, 2, 3, 1)[examples, rows[:, :, None], columns[:, None]]           # b h w c
    # fmt: on
    return moved.permute(0, 3, 1, 2)
