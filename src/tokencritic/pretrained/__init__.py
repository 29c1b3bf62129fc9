"""Bundled models: the folders beside this file, each known by its bare name wherever a model is asked for.

A model folder may bring what it was made with: `tokens.npz`, its tokenized training images, and `reference.npz`, images to
measure against (`token-critic pack` puts them there). These do: no data set and no network is needed to use them.
"""

from difflib import get_close_matches
from pathlib import Path

from tokencritic.errors import InputError
from tokencritic.files import read_json

_HERE = Path(__file__).parent


def names() -> list[str]:
    """The names of the bundled models."""
    return sorted(file.parent.name for file in _HERE.glob("*/pipeline.json"))


def check_name(model: str | Path) -> None:
    """Raise InputError for a name that is almost that of a bundled model, before it is looked for on the Hub."""
    if isinstance(model, Path) or "/" in model or model in names() or Path(model).exists():
        return
    if close := get_close_matches(model.lower().replace("_", "-"), names(), 1, 0.7):
        raise InputError(f"{model} is neither a folder nor a bundled model; did you mean {close[0]}?")


def check_model(model: str) -> None:
    """Raise InputError for what cannot be a model, as far as its name and `pipeline.json` tell. Needs no torch."""
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
    """The folder of a bundled model, if this is its bare name; else the argument itself.

    A folder of the same name is `./fashion-mnist`: what a name means does not depend on where a command is run.
    """
    return _HERE / model if isinstance(model, str) and model in names() else model
