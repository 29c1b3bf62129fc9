"""From runs to a pipeline folder: each run adds the part that it trained, once it is known to fit the others."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.files import read_json
from tokencritic.models.saved import CONFIG, SavedModel, write_model
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.pipeline_folder import KINDS, PIPELINE, load_part, read_folder, write_folder
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.training.checkpoint import best_checkpoint, load_tensors

RUN = "run.json"


@dataclass(frozen=True)
class TrainingRun:
    """What a training run says of itself. name: of the part it trains. facts: those of its task."""

    folder: Path
    name: str
    facts: dict[str, Any]


@dataclass(frozen=True)
class Exported:
    """parts: the names of all parts that are in the folder now. missing: those it needs to be a pipeline. notes: remarks."""

    parts: tuple[str, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]


def read_run(folder: str | Path) -> TrainingRun:
    """folder: the run folder of a training."""
    file = Path(folder) / RUN
    if not file.is_file():
        raise InputError(f"{folder} has no {RUN}; expected the folder of a training run")
    values = read_json(file)
    if values.get("name") not in KINDS or not isinstance(values.get("facts"), dict):
        raise InputError(f"{file} has name {values.get('name')!r}; expected one of {', '.join(KINDS)}, and facts")
    return TrainingRun(Path(folder), values["name"], values["facts"])


def export(run_folder: str | Path, folder: str | Path, *, half: bool = False, best: bool = False) -> Exported:
    """Put the averaged model of a run into a pipeline folder, as the part that it is; the other parts are left as they are.

    The folder becomes a pipeline as soon as it has a tokenizer and a generator. The tokenizer must be there before what
    learned its tokens. half: write float16 weights, half the size; a tokenizer's stay float32, because token arrays name the
    exact weights that made them. best: the weights of the checkpoint with the lowest validation loss, not the last ones.
    """
    run, folder = read_run(run_folder), Path(folder)
    if not (run.folder / run.name / CONFIG).is_file():
        raise InputError(f"{run.folder} has no {run.name} yet; it appears with the first checkpoint")
    model = load_part(run.folder, run.name)
    if best:
        _take_best(model, run.folder)
    parts = {name: load_part(folder, name) for name in KINDS if (folder / name / CONFIG).is_file()}
    before = read_folder(folder) if (folder / PIPELINE).exists() else None
    _check_tokens(run, model, parts, folder)
    replaced, parts = parts.get(run.name), {**parts, run.name: model}
    names = (before[1] if before else None) or run.facts.get("class_names", [])
    _check_sizes(run, parts, names)
    defaults, notes = _defaults(
        before[2] if before else SamplingSettings(), run, replaced is not None or before is None
    )
    missing = tuple(name for name in ("tokenizer", "generator") if name not in parts)
    if not missing:
        pipeline = TokenCriticPipeline(**parts, class_names=names, defaults=defaults)  # refuses what does not fit
        notes += _remarks(run, pipeline, replaced)
    weights = _halved(model) if half and run.name != "tokenizer" else model.state_dict()
    write_model(folder / run.name, model.config, weights)
    if not missing:
        write_folder(folder, parts, names, defaults, saved=True)
    return Exported(tuple(name for name in KINDS if name in parts), missing, notes)


def _take_best(model: SavedModel, run: Path) -> None:
    state = {f"average.{name}": tensor for name, tensor in model.state_dict().items()}
    load_tensors(best_checkpoint(run), state)


def _check_tokens(run: TrainingRun, model: SavedModel, parts: dict[str, SavedModel], folder: Path) -> None:
    """Generator and critic learned the tokens of the folder's tokenizer."""
    there = parts["tokenizer"].fingerprint() if "tokenizer" in parts else None
    learned = [name for name in ("generator", "critic") if name in parts]
    if run.name == "tokenizer":
        if learned and model.fingerprint() != there:
            raise InputError(
                f"{folder} has a {learned[0]} that learned another tokenizer's tokens; choose another folder for this one"
            )
        return
    wanted = run.facts.get("tokenizer_fingerprint")
    if wanted is None:
        return
    if there is None:
        raise InputError(f"{folder} has no tokenizer; put the one that made the {run.name}'s tokens there first")
    if there != wanted:
        raise InputError(
            f"the {run.name} of {run.folder} learned tokens of tokenizer {wanted[:16]}, and {folder} has {there[:16]}; "
            "choose the folder of that one"
        )


def _check_sizes(run: TrainingRun, parts: dict[str, SavedModel], class_names: list[str]) -> None:
    """What a pipeline does not look at: the classes of all parts, and what the classifier sees."""
    classes = {name: part.num_classes for name, part in parts.items() if name != "tokenizer"}
    for name, number in classes.items():
        if number != classes.get(run.name, number):
            mine = classes[run.name]
            raise InputError(f"the {run.name} has {mine} classes and the {name} {number}; they must be equal")
    own = run.facts.get("class_names", [])
    if own != class_names and sorted(own) == sorted(class_names):
        raise InputError(f"the {run.name} has the classes in the order {own[:3]}..., the folder {class_names[:3]}...")
    if {"classifier", "tokenizer"} <= parts.keys():
        seen, made = (
            (parts[name].config.channels, parts[name].config.image_size) for name in ("classifier", "tokenizer")
        )
        if seen != made:
            raise InputError(f"the classifier's (channels, image_size) is {seen} and the tokenizer's {made}")


def _defaults(
    defaults: SamplingSettings, run: TrainingRun, as_before: bool
) -> tuple[SamplingSettings, tuple[str, ...]]:
    """Those that were there; but a selection noise meant for the generator's confidence is not the critic's."""
    if as_before or run.name != "critic" or defaults.sampler is not None or defaults.selection_noise is None:
        return defaults, ()
    note = f"the default selection_noise of {defaults.selection_noise} was for sampling without a critic and is removed"
    return dataclasses.replace(defaults, selection_noise=None), (note,)


def _remarks(run: TrainingRun, pipeline: TokenCriticPipeline, replaced: SavedModel | None) -> tuple[str, ...]:
    """What may be meant so, and may be a mistake."""
    notes, own = [], run.facts.get("class_names", [])
    if own and own != list(pipeline.class_names):
        notes.append(f"the {run.name}'s classes are called {own[:3]}...; the folder's names are kept")
    weights = pipeline.generator.state_dict().values()
    rounded = all(tensor.half().float().equal(tensor) for tensor in weights)  # by `half`: they cannot be compared
    if run.name == "critic" and not rounded and pipeline.generator.fingerprint() != run.facts.get("generator"):
        notes.append("the critic was trained with a generator of other weights than the folder's")
    changed = run.name == "generator" and replaced and replaced.fingerprint() != pipeline.generator.fingerprint()
    if changed and pipeline.critic is not None:
        notes.append("the folder's critic was trained with the generator that was there before")
    return tuple(notes)


def _halved(model: SavedModel) -> dict[str, Tensor]:
    weights = {name: t.half() if t.is_floating_point() else t for name, t in model.state_dict().items()}
    if not all(bool(torch.isfinite(tensor).all()) for tensor in weights.values()):
        raise InputError("half is true, but some weights are beyond float16's largest number; export without it")
    return weights
