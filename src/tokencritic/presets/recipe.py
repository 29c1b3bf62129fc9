"""What a preset is: the sizes of a model, its objective, and how it is optimised and trained."""

from dataclasses import dataclass
from typing import Any

from tokencritic.data.transforms import Crop
from tokencritic.training.optimizer import OptimizerSettings
from tokencritic.training.settings import TrainingSettings


@dataclass(frozen=True)
class Preset:
    """A recipe for one model: a config, an objective of its task, and settings.

    Sizes that follow from the data are taken from it. A critic that starts from a generator's trunk has the sizes of that,
    and at most `layers` of its layers.
    """

    model: Any
    objective: Any
    optimizer: OptimizerSettings
    training: TrainingSettings


@dataclass(frozen=True)
class ImagePreset(Preset):
    """A recipe for a model that learns from images.

    crop: center takes the middle square of an image, random a box of a random size and shape. flip: mirror every second
    image, by chance.
    """

    crop: Crop = "center"
    flip: bool = False
