"""Recipes by name: what a model is made of and how it is trained. Each file says what that costs and what to expect."""

from dataclasses import dataclass, field

from tokencritic.data.transforms import Crop
from tokencritic.tokenizers.compact import CompactConfig
from tokencritic.training.optimizer import OptimizerSettings
from tokencritic.training.tokenizer_task import TokenizerObjective


@dataclass(frozen=True)
class TokenizerPreset:
    """minutes: of training on two CPU cores, unless the command line says otherwise."""

    config: CompactConfig
    batch_size: int
    minutes: float
    objective: TokenizerObjective = field(default_factory=TokenizerObjective)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    crop: Crop = "center"
    flip: bool = False


def tokenizer_presets() -> dict[str, TokenizerPreset]:
    """By the name the command line takes."""
    from tokencritic.presets import cifar10, fashion_mnist

    return {"fashion-mnist": fashion_mnist.TOKENIZER, "cifar10": cifar10.TOKENIZER}
