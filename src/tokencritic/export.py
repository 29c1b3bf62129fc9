"""Export of training runs to a pipeline folder. Each run adds the part that it trained if it fits the others."""

import dataclasses
from pathlib import Path
from typing import Any

from tokencritic.errors import InputError
from tokencritic.models.saved import CONFIG, SavedModel, write_model
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.pipeline_folder import KINDS, PIPELINE, About, load_part, read_pipeline, write_folder
from tokencritic.sampling.model_settings import untuned_critic
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.training.run_folder import best_checkpoint, load_tensors, read_run

_CRITICS = ("critic", "inline_critic")


def export(
    run_folder: str | Path, folder: str | Path, *, half: bool = False, best: bool = False
) -> tuple[str, list[str]]:
    """Add the averaged model of a run to a pipeline folder. The other parts of the folder do not change.

    A folder with a tokenizer and a generator is a pipeline. The tokenizer must be exported before models of its tokens.
    A critic may be exported alone, for a generator that is not in a folder.

    half: write float16 weights. A tokenizer stays in float32, because token arrays record a hash of its weights.
    best: export the weights of the checkpoint with the lowest validation loss instead of the last ones.

    Returns a message about the written files, and notes about possible mistakes.
    """
    run, folder = Path(run_folder), Path(folder)
    name, facts = read_run(run)
    if not (run / name / CONFIG).is_file():
        raise InputError(f"{run} has no {name} yet; the first checkpoint writes it")
    model, half = load_part(run, name), half and name != "tokenizer"
    if best:
        load_tensors(best_checkpoint(run), {f"average.{key}": tensor for key, tensor in model.state_dict().items()})
    if half:
        model.half().float()  # the weights that reading the file will give
        if not all(tensor.isfinite().all() for tensor in model.state_dict().values()):
            raise InputError("half is true, but some weights are too large for float16; export without it")
    before = {part: load_part(folder, part) for part in KINDS if (folder / part / CONFIG).is_file()}
    own: list[str] = facts.get("class_names", [])
    about = read_pipeline(folder)[1] if (folder / PIPELINE).exists() else About()
    parts = {**before, name: model}
    names = list(about.class_names) or own if _has_classes(parts) else []
    _check_tokens(run, name, facts, model, before, folder)
    _check_sizes(name, own, parts, names)
    missing, notes = [part for part in ("tokenizer", "generator") if part not in parts], []
    if not missing:  # the pipeline raises InputError for parts that do not fit
        TokenCriticPipeline(**parts, class_names=names)  # pyright: ignore[reportArgumentType]
        defaults, notes = _adapted(about, before, parts)
        about = About(names, defaults, about.published)
        notes += _remarks(name, facts, before, parts, names)
    weights = {key: tensor.half() if half else tensor for key, tensor in model.state_dict().items()}
    write_model(folder / name, model.config, weights)
    if not missing:
        write_folder(folder, parts, about, saved=True)
    written = f"wrote the {name} to {folder}, which has {', '.join(part for part in KINDS if part in parts)}"
    if missing:
        written += f"\n{folder} is not a pipeline yet; it needs a {' and a '.join(missing)}"
    if parts.keys() <= {*_CRITICS}:
        written += f"\nwith a model of your own: token-critic sample MODULE:FACTORY --critic {folder}"
    return written, notes


def _adapted(
    about: About, before: dict[str, SavedModel], parts: dict[str, SavedModel]
) -> tuple[SamplingSettings, list[str]]:
    """Adapt the folder's default settings to its parts. Returns them with notes about the changes."""
    defaults = about.defaults
    if defaults.sampler == "inline" and "inline_critic" not in parts:
        defaults = dataclasses.replace(defaults, sampler=None)
    nobody_chose = defaults.sampler is None or defaults == about.published
    if nobody_chose and "critic" in parts.keys() - before.keys():
        defaults = untuned_critic(defaults)
    elif nobody_chose and "inline_critic" in parts and "critic" not in parts:
        defaults = dataclasses.replace(defaults, sampler="inline")
    if defaults == about.defaults:
        return defaults, []
    chosen = defaults.row("critic" in parts).name
    return defaults, [f"the default sampler is now {chosen}; `token-critic tune` finds the best settings of this model"]


def _check_tokens(
    run: Path, name: str, facts: dict[str, Any], model: SavedModel, before: dict[str, SavedModel], folder: Path
) -> None:
    """Raise InputError unless the parts belong together.

    Generator and critics must be trained on tokens of the folder's tokenizer, an inline critic for the folder's
    generator.
    """
    there = before["tokenizer"].fingerprint() if "tokenizer" in before else None
    learned = next((part for part in ("generator", "critic", "inline_critic") if part in before), None)
    wanted = facts.get("tokenizer_fingerprint")
    if name == "tokenizer" and learned and model.fingerprint() != there:
        raise InputError(f"{folder} has a {learned} trained on tokens of another tokenizer; choose another folder")
    alone = name in _CRITICS and before.keys() <= {*_CRITICS}  # for a generator that is not in a folder
    if wanted and there is None and not alone:
        raise InputError(f"{folder} has no tokenizer; export the tokenizer of the {name}'s tokens first")
    if wanted and there and there != wanted:
        pair = f"{folder} has tokenizer {there[:16]}; expected {wanted[:16]}, whose tokens"
        raise InputError(f"{pair} the {name} of {run} was trained on")
    inline = before.get("inline_critic")
    if name == "generator" and inline is not None and inline.generator_identity != model.fingerprint():
        old = f"{folder} has an inline critic that was trained for another generator"
        raise InputError(f"{old}; delete {folder / 'inline_critic'}, export again, and train one for this generator")


def _has_classes(parts: dict[str, Any]) -> bool:
    """Return False if the parts have a generator without classes, else True."""
    return "generator" not in parts or parts["generator"].num_classes > 0


def _check_sizes(name: str, own: list[str], parts: dict[str, SavedModel], class_names: list[str]) -> None:
    """Raise InputError for mismatches that a pipeline does not check: classes, and the classifier's image size.

    A generator without classes may have a classifier with any number of classes, for its features.
    """
    others = {"tokenizer"} if _has_classes(parts) else {"tokenizer", "classifier"}
    classes = {part: model.num_classes for part, model in parts.items() if part not in others}
    for part, number in classes.items():
        if number != (mine := classes.get(name, number)):
            raise InputError(f"the {name} has {mine} classes; expected {number}, as in the {part}")
    if own != class_names and sorted(own) == sorted(class_names):
        raise InputError(f"the {name} has classes in the order {own[:3]}...; expected {class_names[:3]}...")
    if {"classifier", "tokenizer"} <= parts.keys():
        configs = (parts[part].config for part in ("classifier", "tokenizer"))
        seen, made = ((config.channels, config.image_size) for config in configs)
        if seen != made:
            raise InputError(f"the classifier's (channels, image_size) is {seen}; the tokenizer's is {made}")


def _remarks(
    name: str, facts: dict[str, Any], before: dict[str, SavedModel], parts: dict[str, SavedModel], names: list[str]
) -> list[str]:
    notes, own, generator = [], facts.get("class_names", []), parts["generator"]
    if own and own != list(names) and _has_classes(parts):
        notes.append(f"the {name} has class names {own[:3]}...; those of the folder are kept")
    rounded = all(tensor.half().float().equal(tensor) for tensor in generator.state_dict().values())  # by --half
    if name == "critic" and not rounded and generator.fingerprint() != facts.get("generator"):
        notes.append("the critic was trained for another generator than the folder's")
    replaced = before.get("generator", generator)
    if "critic" in before and replaced.fingerprint() != generator.fingerprint():
        notes.append("the folder's critic was trained for the previous generator")
    return notes
