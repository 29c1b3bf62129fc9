"""Bundled models: the folders beside this file. Every command accepts their names in place of a model folder.

A model folder may include `tokens.npz`, its tokenized training images, and `reference.npz`, the reference images of
evaluation. `token-critic pack` writes both files. Bundled models have them, so they need no data set and no network.
"""

from difflib import get_close_matches
from pathlib import Path

from tokencritic.errors import InputError
from tokencritic.files import read_json

_HERE = Path(__file__).parent


def names() -> list[str]:
    """Return the names of the bundled models."""
    return sorted(file.parent.name for file in _HERE.glob("*/pipeline.json"))


def check_name(model: str | Path) -> None:
    """Raise InputError for a misspelled name of a bundled model. Otherwise it would be looked up on the Hub."""
    if isinstance(model, Path) or "/" in model or model in names() or Path(model).exists():
        return
    if close := get_close_matches(model.lower().replace("_", "-"), names(), 1, 0.7):
        raise InputError(f"{model} is neither a folder nor a bundled model; did you mean {close[0]}?")


def check_model(model: str) -> None:
    """Raise InputError if the name or `pipeline.json` shows that this is not a model. Does not import torch."""
    check_name(model)
    place = Path(place_of(model))
    if not place.exists():
        if model.count("/") != 1:
            raise InputError(f"{model} is neither a folder, nor a bundled model, nor a Hub id: owner/name")
        return
    if not (place / "pipeline.json").is_file():
        raise InputError(f"{place} has no pipeline.json; expected a model folder")
    read_json(place / "pipeline.json")


def place_of(model: str | Path) -> str | Path:
    """Return the folder of a bundled model if this is its name, else the argument itself.

    A local folder of the same name is `./fashion-mnist`. The meaning of a name does not depend on the current folder.
    """
    return _HERE / model if isinstance(model, str) and model in names() else model
