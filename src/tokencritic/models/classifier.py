"""A small image classifier for rejection sampling and cheap features.

It is trained on the data set that it evaluates, so results must name it.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokencritic.contracts import ImageClassifier
from tokencritic.errors import InputError, check_at_least
from tokencritic.models.saved import SavedModel

_GROUPS = 8


@dataclass(frozen=True)
class ClassifierConfig:
    """Sizes of a classifier. The defaults are for 28 x 28 grey images.

    image_size: pixels along each side, at least 8.
    channels: 3 for colour, 1 for grey.
    num_classes: number of classes.
    width: channels of the first stage; each later stage doubles them.
    blocks: residual blocks per stage.
    """

    image_size: int = 28
    channels: int = 1
    num_classes: int = 10
    width: int = 64
    blocks: int = 2

    def __post_init__(self) -> None:
        check_at_least(1, channels=self.channels, num_classes=self.num_classes, blocks=self.blocks)
        check_at_least(8, image_size=self.image_size)
        if self.width < 1 or self.width % _GROUPS:
            raise InputError(f"width is {self.width}; it must be a positive multiple of {_GROUPS}")


class Classifier(SavedModel, ImageClassifier):
    """A residual convolutional network at 1/2, 1/4 and 1/8 of the resolution, followed by mean pooling."""

    Config = ClassifierConfig

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__(config)
        widths = [config.width, 2 * config.width, 4 * config.width]
        # The stem halves the resolution, because convolutions at full resolution are slow on a CPU and add little.
        stages: list[nn.Module] = [nn.Conv2d(config.channels, widths[0], 4, stride=2, padding=1)]
        for index, width in enumerate(widths):
            if index:
                stages.append(nn.Conv2d(widths[index - 1], width, 2, stride=2))
            stages += [_Residual(width) for _ in range(config.blocks)]
        self.stages = nn.Sequential(*stages)
        self.norm = nn.GroupNorm(_GROUPS, widths[-1])
        self.head = nn.Linear(widths[-1], config.num_classes)
        self.num_classes, self.feature_width = config.num_classes, widths[-1]

    def features(self, images: Tensor) -> Tensor:
        """Return features (b, feature_width). images: (b, c, h, w) float in [0, 1]."""
        size = self.config.image_size
        if images.ndim != 4 or images.shape[1:] != (self.config.channels, size, size):
            right = f"(images, {self.config.channels}, {size}, {size})"
            raise InputError(f"images has shape {tuple(images.shape)}; expected {right}")
        x = (2 * images - 1).contiguous(memory_format=torch.channels_last)
        return F.silu(self.norm(self.stages(x))).mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (b, num_classes). images: (b, c, h, w) float in [0, 1]."""
        return self.head(self.features(images))


class _Residual(nn.Module):
    """A residual block of two normalized convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.GroupNorm(_GROUPS, width), nn.GroupNorm(_GROUPS, width)
        self.conv_1, self.conv_2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv_1(F.silu(self.norm_1(x)))
        return x + self.conv_2(F.silu(self.norm_2(y)))
