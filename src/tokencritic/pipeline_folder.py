"""Model folders, on disk or on the Hub.

folder/pipeline.json          the kinds of the parts, class names, default and published sampling settings
folder/tokenizer/  generator/  critic/  inline_critic/  classifier/      config.json and model.safetensors each
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokencritic.errors import InputError
from tokencritic.files import read_json, write_json
from tokencritic.models.classifier import Classifier
from tokencritic.models.critic import Critic
from tokencritic.models.generator import Generator
from tokencritic.models.halton import HaltonCritic, HaltonGenerator
from tokencritic.models.inline_critic import InlineCritic
from tokencritic.models.maskbit import MaskBitCritic, MaskBitGenerator
from tokencritic.models.saved import CONFIG, SavedModel, find_file
from tokencritic.models.titok import BertCritic, BertGenerator
from tokencritic.models.uvit import UViTCritic, UViTGenerator
from tokencritic.pretrained import place_of
from tokencritic.sampling.settings import SamplingSettings, settings_from
from tokencritic.tokenizers.compact import CompactTokenizer
from tokencritic.tokenizers.llamagen import LlamaGenVQ
from tokencritic.tokenizers.maskbit import MaskBitTokenizer
from tokencritic.tokenizers.titok import TiTok
from tokencritic.tokenizers.vqgan import VQGAN, TamingVQGAN

PIPELINE = "pipeline.json"
FORMAT = 1

# part -> kind, its name in pipeline.json -> class
KINDS: Mapping[str, Mapping[str, type[Any]]] = {
    "tokenizer": {
        "vqgan": VQGAN,
        "compact": CompactTokenizer,
        "taming": TamingVQGAN,
        "llamagen": LlamaGenVQ,
        "maskbit": MaskBitTokenizer,
        "titok": TiTok,
    },
    "generator": {
        "transformer": Generator,
        "halton": HaltonGenerator,
        "maskbit": MaskBitGenerator,
        "bert": BertGenerator,
        "uvit": UViTGenerator,
    },
    "critic": {
        "transformer": Critic,
        "halton": HaltonCritic,
        "maskbit": MaskBitCritic,
        "bert": BertCritic,
        "uvit": UViTCritic,
    },
    "inline_critic": {"head": InlineCritic},
    "classifier": {"convolutional": Classifier},
}


@dataclass(frozen=True)
class About:
    """The contents of a model folder besides its parts.

    class_names: one name per class, or none.
    defaults: the default sampling settings.
    published: the authors' sampling settings of an imported generator, else None.
    """

    class_names: Sequence[str] = ()
    defaults: SamplingSettings = field(default_factory=SamplingSettings)
    published: SamplingSettings | None = None


def write_folder(folder: Path, parts: Mapping[str, Any], about: About, saved: bool = False) -> None:
    """Write the parts and then `pipeline.json`.

    parts: the parts by name.
    saved: the folder already holds the parts.
    """
    names_of = {name: {cls: kind for kind, cls in classes.items()} for name, classes in KINDS.items()}
    kinds = {name: names_of[name].get(type(parts[name])) for name in KINDS if name in parts}
    if foreign := [name for name, kind in kinds.items() if kind is None]:  # checked before anything is written
        part = type(parts[foreign[0]]).__name__
        raise InputError(f"the {foreign[0]} is a {part}; expected a class of this package to save a pipeline")
    if not saved:
        # After an interruption, a mix of old and new parts must not load as one model.
        (folder / PIPELINE).unlink(missing_ok=True)
        for name, part in parts.items():
            part.save_pretrained(folder / name)
    facts = {"class_names": list(about.class_names), "sampling": dataclasses.asdict(about.defaults)}
    if about.published is not None:
        facts["published"] = dataclasses.asdict(about.published)
    write_json(folder / PIPELINE, {"format": FORMAT, "parts": kinds, **facts})


def read_folder(folder_or_hub_id: str | Path, **hub_arguments: Any) -> tuple[dict[str, SavedModel], About]:
    """Read the parts by name, in float32 and evaluation mode, and the rest of a model folder."""
    kinds, about = read_pipeline(folder_or_hub_id, **hub_arguments)
    options = {name: {"subfolder": name, **hub_arguments} for name in kinds}
    return {name: kind.from_pretrained(folder_or_hub_id, **options[name]) for name, kind in kinds.items()}, about


def read_pipeline(folder_or_hub_id: str | Path, **hub_arguments: Any) -> tuple[dict[str, type[SavedModel]], About]:
    """Read `pipeline.json`: the class of each part by name, and the rest."""
    file = find_file(folder_or_hub_id, PIPELINE, **hub_arguments)
    facts = read_json(file)
    if facts.get("format") != FORMAT:
        raise InputError(f"{file} has format {facts.get('format')!r}; this version reads format {FORMAT}")
    kinds, names = facts.get("parts"), facts.get("class_names", [])
    if not isinstance(kinds, dict) or not all(isinstance(kind, str) for kind in kinds.values()):
        raise InputError(f"{file} has parts {kinds!r}; expected the kind of each part by its name")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{file} has class_names {names!r}; expected a list of names")
    for name, kind in kinds.items():
        if kind not in (known := KINDS.get(name, {})):
            raise InputError(f"{file} has a {name} of kind {kind!r}; expected one of {list(known)}")
    if missing := {"tokenizer", "generator"} - kinds.keys():
        raise InputError(f"{file} has no {' and no '.join(sorted(missing))}; expected both parts")
    defaults, published = _read_settings(file, facts, "sampling"), _read_settings(file, facts, "published")
    about = About(names, defaults or SamplingSettings(), published)
    return {name: KINDS[name][kind] for name, kind in kinds.items()}, about


def _read_settings(file: Path, facts: Mapping[str, Any], key: str) -> SamplingSettings | None:
    try:
        return settings_from(facts[key]) if key in facts else None
    except InputError as error:
        raise InputError(f"{file}: {key}: {error}") from error


def load_critic(place: str | Path) -> dict[str, Any]:
    """Load a critic and return it by the name of its part, "critic" or "inline_critic".

    place: a run, a model folder, a Hub id, or the folder of a critic.

    An inline critic, which fits only one generator, is loaded only if there is no other. Raises InputError without any.
    """
    place, names = place_of(place), ("critic", "inline_critic")
    if not Path(place).is_dir():
        kinds = read_pipeline(place)[0]
        found = [name for name in names if name in kinds]
    elif (Path(place) / CONFIG).is_file():
        fields = read_json(Path(place) / CONFIG).keys()
        found = [name for name in names for kind in KINDS[name].values() if fields == _fields(kind)]
    else:
        found = [name for name in names if (Path(place) / name / CONFIG).is_file()]
    if not found:
        raise InputError(
            f"{place} has no critic; expected a run of a critic, a model with a critic, or the folder of a critic"
        )
    return {found[0]: load_part(place, found[0])}


def _fields(kind: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind.Config)}


def load_part(place: str | Path, name: str, **hub_arguments: Any) -> Any:
    """Load the part `name` of a model folder, a Hub id or a run, or from a folder of only this part."""
    place, kinds = place_of(place), KINDS[name]
    if not Path(place).is_dir() or (Path(place) / name).is_dir():
        hub_arguments = {"subfolder": name, **hub_arguments}
    matching = list(kinds.values())
    if len(kinds) > 1:  # the fields of the config identify the kind
        file = find_file(place, CONFIG, **hub_arguments)
        fields = read_json(file).keys()
        matching = [kind for kind in matching if fields == _fields(kind)]
        if not matching:
            raise InputError(f"{file} has the fields {sorted(fields)}; expected those of a {name}: {', '.join(kinds)}")
    return matching[0].from_pretrained(place, **hub_arguments)
