"""Presets: recipes for models by name. The docstring of each file states the cost and the expected results."""

import importlib
from typing import TYPE_CHECKING

from tokencritic.errors import InputError

if TYPE_CHECKING:
    from tokencritic.training.settings import Preset

MODELS = ("tokenizer", "generator", "critic", "inline-critic", "classifier")
NAMES = ("fashion-mnist", "cifar10", "imagenet-256", "imagenet-512")


def find_preset(model: str, name: str) -> "Preset":
    """Return the preset of a model.

    model: one of `MODELS`.
    name: one of `NAMES`.
    """
    for what, value, known in (("model", model, MODELS), ("preset", name, NAMES)):
        if value not in known:
            raise InputError(f"{what} is {value!r}; choose one of {', '.join(known)}")
    # Imported late, because the files import torch and listing the names does not need it.
    module = importlib.import_module(f"tokencritic.presets.{name.replace('-', '_')}")
    return vars(module)[model.upper().replace("-", "_")]
