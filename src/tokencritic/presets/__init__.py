"""Recipes by name: what a model is made of and how it is trained. Each file says what that costs and what to expect."""

import importlib
from typing import TYPE_CHECKING

from tokencritic.errors import InputError

if TYPE_CHECKING:
    from tokencritic.training.settings import Preset

MODELS = ("tokenizer", "generator", "critic", "inline-critic", "classifier")
NAMES = ("fashion-mnist", "cifar10", "imagenet-256", "imagenet-512")


def find_preset(model: str, name: str) -> "Preset":
    """model: one of `MODELS`. name: one of `NAMES`."""
    for what, value, known in (("model", model, MODELS), ("preset", name, NAMES)):
        if value not in known:
            raise InputError(f"{what} is {value!r}; choose one of {', '.join(known)}")
    # The files bring torch with them, and a list of names should not wait for it.
    module = importlib.import_module(f"tokencritic.presets.{name.replace('-', '_')}")
    return vars(module)[model.upper().replace("-", "_")]
