"""Import of published models: find the files, read them, and explain mistakes in one line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokencritic.errors import InputError
from tokencritic.files import read_json
from tokencritic.foreign_weights import read_flax, read_tensors
from tokencritic.interop.families import GENERATORS, TOKENIZERS, load_family, load_tokenizer_family
from tokencritic.interop.family import Imported, Sources
from tokencritic.models.saved import CONFIG, WEIGHTS, find_file
from tokencritic.tokenizers.tokenizer import Tokenizer

_HUB_ID = re.compile(r"([\w.-]+/[\w.-]+)(?:/(.+))?")
_NAMES = (WEIGHTS, "pytorch_model.bin")  # usual names of weights in a folder
_SUFFIXES = (".safetensors", ".bin", ".pth", ".pt", ".ckpt")


@dataclass(frozen=True)
class Weights:
    """A file of weights and the authors' config, empty if there is none."""

    file: Path
    config: Mapping[str, Any] = field(default_factory=dict)


def check_place(flag: str, place: str) -> None:
    """Raise InputError unless a place exists or may be a Hub id. flag: its name in the message."""
    if not Path(place).exists() and (place.startswith((".", "/", "~")) or not _HUB_ID.fullmatch(place)):
        expected = "a file, a folder of weights, or a Hub id: owner/name, or owner/name/file"
        raise InputError(f"{flag} {place} does not exist; expected {expected}")


def find_weights(flag: str, place: str) -> Weights:
    """Return the weights of a file, a folder, or a repository or file on the Hub. flag: the name in error messages."""
    check_place(flag, place)
    path = Path(place)
    if path.is_file():
        return Weights(path)
    if path.is_dir():
        config = path / CONFIG
        return Weights(_weights_in(flag, path), read_json(config) if config.is_file() else {})
    match = _HUB_ID.fullmatch(place)
    assert match is not None
    owner_and_name, file = match.groups()
    try:
        return Weights(find_file(owner_and_name, file)) if file else _weights_on_hub(owner_and_name)
    except InputError as error:
        raise InputError(f"{flag}: {error}") from error


def _weights_in(flag: str, folder: Path) -> Path:
    """Return the file of weights in a folder: the one with a usual name, or the only one."""
    usual = [folder / name for name in _NAMES if (folder / name).is_file()]
    files = usual[:1] or [file for file in sorted(folder.iterdir()) if file.suffix in _SUFFIXES and file.is_file()]
    if len(files) != 1:
        found = f"several: {', '.join(file.name for file in files[:3])}" if files else "none"
        raise InputError(f"{flag} {folder} should hold one file of weights, such as {WEIGHTS}, and has {found}")
    return files[0]


def _weights_on_hub(hub_id: str) -> Weights:
    first, *others = _NAMES
    try:
        file = find_file(hub_id, first)
    except InputError as error:
        for name in others:
            try:
                file = find_file(hub_id, name)
                break
            except InputError:
                continue
        else:
            raise error from None
    try:
        config = read_json(find_file(hub_id, CONFIG))
    except InputError:  # a config is optional
        config = {}
    return Weights(file, config)


def import_model(kind: str, sources: Sources) -> Imported:
    """Import a generator and its tokenizer. Errors name swapped files and files of another kind."""
    family = load_family(kind)
    try:
        return family.read(sources)
    except InputError as error:
        if mistake := _mistake(kind, sources.generator, sources.tokenizer):
            raise InputError(mistake) from error
        raise


def import_tokenizer(kind: str, file: Path, image_size: int | None = None) -> Tokenizer:
    """Import a tokenizer that is published without a generator. image_size: pixels along each side."""
    family = load_tokenizer_family(kind)
    try:
        return family.read(file, image_size)
    except InputError as error:
        found = looks_like(file)
        if found and found[0] != kind and (kind, found) != ("tokenizer-maskgit", ("maskgit", "tokenizer")):
            raise InputError(f"--tokenizer {file} is not of kind {kind}: it looks like {_described(found)}") from error
        raise


def looks_like(file: Path) -> tuple[str, str] | None:
    """Return the kind of a file and its part, "generator" or "tokenizer", by its tensor names; None if unknown."""
    names = _tensor_names(file)
    for kind in GENERATORS:
        family = load_family(kind)
        for part, marks in (("generator", family.generator_marks), ("tokenizer", family.tokenizer_marks)):
            if names & {*marks}:
                return kind, part
    return next(((kind, "tokenizer") for kind in TOKENIZERS if names & {*load_tokenizer_family(kind).marks}), None)


def _tensor_names(file: Path) -> set[str]:
    """Return the tensor names of a file in any format; none for an unreadable file."""
    for read in (lambda: read_tensors(file, "a model"), lambda: read_flax(file)):
        try:
            return {*read()}
        except InputError:
            continue
    return set()


def _mistake(kind: str, generator: Path, tokenizer: Path) -> str:
    """Return a message about swapped files or files of another kind; "" if there is no such mistake."""
    found = {"--generator": looks_like(generator), "--tokenizer": looks_like(tokenizer)}
    swapped = found["--generator"], found["--tokenizer"]
    if swapped == ((kind, "tokenizer"), (kind, "generator")):
        return f"--generator and --tokenizer are swapped: {generator} is the tokenizer, {tokenizer} the generator"
    for flag, file in (("--generator", generator), ("--tokenizer", tokenizer)):
        looks, wanted = found[flag], flag.removeprefix("--")
        if looks is not None and looks != (kind, wanted):
            return f"{flag} {file} is not a {wanted} of kind {kind}: it looks like {_described(looks)}"
    return ""


def _described(looks: tuple[str, str]) -> str:
    kind, part = looks
    return f"a {part} of kind {kind}, {(GENERATORS | TOKENIZERS)[kind]}"
