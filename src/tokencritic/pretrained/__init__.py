"""Bundled models: the folders beside this file, each known by its bare name wherever a model is asked for.

A model folder may bring what it was made with: `tokens.npz`, its tokenized training images, and `reference.npz`, images to
measure against (`token-critic pack` puts them there). These do: no data set and no network is needed to use them.
"""

from pathlib import Path

_HERE = Path(__file__).parent


def names() -> list[str]:
    """The names of the bundled models."""
    return sorted(file.parent.name for file in _HERE.glob("*/pipeline.json"))


def place_of(model: str | Path) -> str | Path:
    """The folder of a bundled model, if this is its bare name; else the argument itself.

    A folder of the same name is `./fashion-mnist`: what a name means does not depend on where a command is run.
    """
    return _HERE / model if isinstance(model, str) and model in names() else model
