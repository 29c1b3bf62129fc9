"""What a preset is: for each kind of model its sizes, its objective, and how it is optimised and trained."""

from dataclasses import dataclass

from tokencritic.data.transforms import Crop
from tokencritic.models.classifier import ClassifierConfig
from tokencritic.models.critic import CriticConfig
from tokencritic.models.transformer import TransformerConfig
from tokencritic.tokenizers.compact import CompactConfig
from tokencritic.tokenizers.vqgan import VQGANConfig
from tokencritic.training.classifier_task import ClassifierObjective
from tokencritic.training.critic_task import CriticObjective
from tokencritic.training.generator_task import GeneratorObjective
from tokencritic.training.optimizer import OptimizerSettings
from tokencritic.training.settings import TrainingSettings
from tokencritic.training.tokenizer_task import TokenizerObjective


@dataclass(frozen=True)
class TokenizerPreset:
    """crop: center takes the middle square of an image, random a box of a random size and shape. flip: mirror every second
    image, by chance.
    """

    model: CompactConfig | VQGANConfig
    objective: TokenizerObjective
    optimizer: OptimizerSettings
    training: TrainingSettings
    crop: Crop = "center"
    flip: bool = False


@dataclass(frozen=True)
class GeneratorPreset:
    """The sizes that the tokens have (num_tokens, codebook_size, num_classes) are taken from them."""

    model: TransformerConfig
    objective: GeneratorObjective
    optimizer: OptimizerSettings
    training: TrainingSettings


@dataclass(frozen=True)
class CriticPreset:
    """A critic that starts from a generator's trunk has its sizes, and at most `layers` of its layers."""

    model: CriticConfig
    objective: CriticObjective
    optimizer: OptimizerSettings
    training: TrainingSettings


@dataclass(frozen=True)
class ClassifierPreset:
    """crop: center takes the middle square of an image, random a box of a random size and shape. flip: mirror every second
    image, by chance.
    """

    model: ClassifierConfig
    objective: ClassifierObjective
    optimizer: OptimizerSettings
    training: TrainingSettings
    crop: Crop = "center"
    flip: bool = False


Preset = TokenizerPreset | GeneratorPreset | CriticPreset | ClassifierPreset
