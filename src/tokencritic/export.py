"""From runs to a pipeline folder: each run adds the part that it trained, once it is known to fit the others."""

import dataclasses
from pathlib import Path
from typing import Any

from tokencritic.errors import InputError
from tokencritic.models.saved import CONFIG, SavedModel, write_model
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.pipeline_folder import KINDS, PIPELINE, About, load_part, read_pipeline, write_folder
from tokencritic.sampling.settings import SamplingSettings, untuned_critic
from tokencritic.training.run_folder import best_checkpoint, load_tensors, read_run


def export(
    run_folder: str | Path, folder: str | Path, *, half: bool = False, best: bool = False
) -> tuple[str, list[str]]:
    """Put the averaged model of a run into a pipeline folder, as the part that it is; the other parts are left as they are.

    The folder becomes a pipeline as soon as it has a tokenizer and a generator. The tokenizer must be there before what
    learned its tokens. half: write float16 weights, half the size; a tokenizer's stay float32, because token arrays name the
    exact weights that made them. best: the weights of the checkpoint with the lowest validation loss, not the last ones.
    Returns what was written, in words, and notes: what may be meant so, and may be a mistake.
    """
    run, folder = Path(run_folder), Path(folder)
    name, facts = read_run(run)
    if not (run / name / CONFIG).is_file():
        raise InputError(f"{run} has no {name} yet; it appears with the first checkpoint")
    model, half = load_part(run, name), half and name != "tokenizer"
    if best:
        load_tensors(best_checkpoint(run), {f"average.{key}": tensor for key, tensor in model.state_dict().items()})
    if half:
        model.half().float()  # as it will be read
        if not all(tensor.isfinite().all() for tensor in model.state_dict().values()):
            raise InputError("half is true, but some weights are beyond float16's largest number; export without it")
    before = {part: load_part(folder, part) for part in KINDS if (folder / part / CONFIG).is_file()}
    own: list[str] = facts.get("class_names", [])
    about = read_pipeline(folder)[1] if (folder / PIPELINE).exists() else About()
    names, parts = list(about.class_names) or own, {**before, name: model}
    _check_tokens(run, name, facts, model, before, folder)
    _check_sizes(name, own, parts, names)
    missing, notes = [part for part in ("tokenizer", "generator") if part not in parts], []
    if not missing:  # a pipeline refuses what does not fit
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
    return written, notes


def _adapted(
    about: About, before: dict[str, SavedModel], parts: dict[str, SavedModel]
) -> tuple[SamplingSettings, list[str]]:
    """The folder's default settings as the parts want them, and notes of what changed."""
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
    """Generator and critics learned the tokens of the folder's tokenizer, and an inline critic is of the folder's generator."""
    there = before["tokenizer"].fingerprint() if "tokenizer" in before else None
    learned = next((part for part in ("generator", "critic", "inline_critic") if part in before), None)
    wanted = facts.get("tokenizer_fingerprint")
    if name == "tokenizer" and learned and model.fingerprint() != there:
        raise InputError(f"{folder} has a {learned} that learned another tokenizer's tokens; choose another folder")
    if wanted and there is None:
        raise InputError(f"{folder} has no tokenizer; put the one that made the {name}'s tokens there first")
    if wanted and there and there != wanted:
        pair = f"tokens of tokenizer {wanted[:16]}, and {folder} has {there[:16]}"
        raise InputError(f"the {name} of {run} learned {pair}; choose the folder of that one")
    inline = before.get("inline_critic")
    if name == "generator" and inline is not None and inline.generator_identity != model.fingerprint():
        old = f"{folder} has an inline critic that was trained for another generator"
        raise InputError(f"{old}; delete {folder / 'inline_critic'}, export again, and train one for this generator")


def _check_sizes(name: str, own: list[str], parts: dict[str, SavedModel], class_names: list[str]) -> None:
    """What a pipeline does not look at: the classes of all parts, and what the classifier sees."""
    classes = {part: model.num_classes for part, model in parts.items() if part != "tokenizer"}
    for part, number in classes.items():
        if number != (mine := classes.get(name, number)):
            raise InputError(f"the {name} has {mine} classes and the {part} {number}; they must be equal")
    if own != class_names and sorted(own) == sorted(class_names):
        raise InputError(f"the {name} has the classes in the order {own[:3]}..., the folder {class_names[:3]}...")
    if {"classifier", "tokenizer"} <= parts.keys():
        configs = (parts[part].config for part in ("classifier", "tokenizer"))
        seen, made = ((config.channels, config.image_size) for config in configs)
        if seen != made:
            raise InputError(f"the classifier's (channels, image_size) is {seen} and the tokenizer's {made}")


def _remarks(
    name: str, facts: dict[str, Any], before: dict[str, SavedModel], parts: dict[str, SavedModel], names: list[str]
) -> list[str]:
    notes, own, generator = [], facts.get("class_names", []), parts["generator"]
    if own and own != list(names):
        notes.append(f"the {name}'s classes are called {own[:3]}...; the folder's names are kept")
    rounded = all(tensor.half().float().equal(tensor) for tensor in generator.state_dict().values())  # by `half`
    if name == "critic" and not rounded and generator.fingerprint() != facts.get("generator"):
        notes.append("the critic was trained with a generator of other weights than the folder's")
    replaced = before.get("generator", generator)
    if "critic" in before and replaced.fingerprint() != generator.fingerprint():
        notes.append("the folder's critic was trained with the generator that was there before")
    return notes
