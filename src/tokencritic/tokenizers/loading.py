"""The kinds of tokenizer, and loading one whatever its kind."""

import dataclasses
from pathlib import Path
from typing import Any

from tokencritic.errors import InputError
from tokencritic.files import read_json
from tokencritic.models.saved import CONFIG, find_file
from tokencritic.pretrained import place_of
from tokencritic.tokenizers.compact import CompactTokenizer
from tokencritic.tokenizers.vqgan import TamingVQGAN
from tokencritic.tokenizers.tokenizer import Tokenizer
from tokencritic.tokenizers.vqgan import VQGAN

KINDS: dict[str, type[Tokenizer]] = {"vqgan": VQGAN, "compact": CompactTokenizer, "taming": TamingVQGAN}


def load_tokenizer(place: str | Path, **hub_arguments: Any) -> Tokenizer:
    """The tokenizer of a model folder or Hub id, or of a folder that holds a tokenizer alone."""
    place = place_of(place)
    folder = Path(place)
    if not folder.is_dir() or (folder / "tokenizer").is_dir():
        hub_arguments = {"subfolder": "tokenizer", **hub_arguments}
    file = find_file(place, CONFIG, **hub_arguments)
    fields = read_json(file).keys()
    for kind in KINDS.values():
        if fields == {field.name for field in dataclasses.fields(kind.Config)}:
            return kind.from_pretrained(place, **hub_arguments)
    raise InputError(f"{file} has {sorted(fields)}; that is the config of no tokenizer known here ({', '.join(KINDS)})")
