"""Training tasks made from settings and flags: open the data, make the model."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jsonargparse import Namespace

from tokencritic.bounds import PARAMETERS
from tokencritic.cli.factories import is_factory, parts_of
from tokencritic.contracts import ImageTokenizer, MaskedGenerator
from tokencritic.data.sources import open_source
from tokencritic.data.tokens import TokenArrays
from tokencritic.data.transforms import ImageBatches, Preprocess
from tokencritic.errors import InputError
from tokencritic.models.classifier import Classifier
from tokencritic.models.critic import Critic
from tokencritic.models.generator import Generator
from tokencritic.models.inline_critic import InlineCritic
from tokencritic.models.saved import CONFIG, find_file
from tokencritic.pipeline_folder import KINDS, load_part
from tokencritic.training.image_tasks import ClassifierTask, TokenizerTask
from tokencritic.training.perceptual import Lpips
from tokencritic.training.run_folder import RUN, read_run
from tokencritic.training.task import Task
from tokencritic.training.token_tasks import CriticTask, GeneratorTask, InlineCriticTask, sizes_of


def make_task(model: str, settings: Any, preset: Any, given: Namespace) -> tuple[Task, Any]:
    """Return the task and the settings in effect, with the sizes that the data determines.

    settings: the preset with the user's changes.
    preset: the preset without changes.
    given: the flags that name files.
    """
    make = {
        "tokenizer": _tokenizer,
        "generator": _generator,
        "critic": _critic,
        "inline-critic": _inline_critic,
        "classifier": _classifier,
    }
    torch.manual_seed(settings.training.seed)  # of the weights
    task = make[model](settings, preset, given)
    return task, dataclasses.replace(settings, model=task.model.config)


def imagined_task(model: str, settings: Any, generator: Any, given: Namespace) -> Task:
    """Return the task of these settings on tokens that are all 0, to estimate its cost.

    generator: the config of the generator that a critic is trained with.
    """
    if model in ("tokenizer", "classifier"):
        raise InputError(f"--data is missing; the cost of a {model} depends on its images")
    sizes = settings.model if model == "generator" else generator
    tokens, labels = np.zeros((2, sizes.num_tokens), np.uint16), np.zeros(2, np.int32)
    names = tuple(map(str, range(sizes.num_classes)))
    arrays = TokenArrays(tokens, labels, "", sizes.codebook_size, (1, sizes.num_tokens), names, {})
    if model == "generator":
        return GeneratorTask(_new(Generator, settings.model), arrays, settings.objective)
    filling = _new(Generator, generator)
    if model == "inline-critic":
        config = dataclasses.replace(settings.model, **sizes_of(arrays), **_features_of(filling))
        return InlineCriticTask(_new(InlineCritic, config), filling, arrays, settings.objective)
    from_trunk = given.start == "generator"
    critic = _critic_from(filling, settings.model, settings.model) if from_trunk else _new(Critic, settings.model)
    return CriticTask(critic, filling, arrays, settings.objective)


def _new(kind: type[Any], config: Any) -> Any:
    """Return a model with random weights. Raises InputError for too many parameters before memory is allocated."""
    with torch.random.fork_rng(devices=[]):
        count = sum(parameter.numel() for parameter in kind.without_weights(config).parameters())
    if count > PARAMETERS:
        raise InputError(f"the model has {count:.3g} parameters; expected at most {PARAMETERS:.0e}; see --model.KEY")
    return kind(config)


def _tokenizer(settings: Any, preset: Any, given: Namespace) -> Task:
    objective = settings.objective
    if given.lpips and not objective.perceptual:
        raise InputError(f"--lpips is {given.lpips} but there is no perceptual term; give --objective.perceptual too")
    source = open_source(given.data)
    config = follow(settings.model, preset.model, {"channels": source.channels}, "the images'")
    kind = next(kind for kind in KINDS["tokenizer"].values() if kind.Config is type(config))
    tokenizer = _new(kind, config)
    perceptual = Lpips.find(given.lpips) if objective.perceptual else None
    return TokenizerTask(tokenizer, _images(source, config, settings), objective, perceptual, settings.training.seed)


def _generator(settings: Any, preset: Any, given: Namespace) -> Task:
    arrays = TokenArrays.open(given.data)
    # With num_classes 0, the generator is unconditional even if the tokens have classes.
    sizes = sizes_of(arrays) | ({} if settings.model.num_classes else {"num_classes": 0})
    config = follow(settings.model, preset.model, sizes, "the tokens'")
    tokenizer = load_part(given.tokenizer, "tokenizer") if given.tokenizer else None
    return GeneratorTask(_new(Generator, config), arrays, settings.objective, tokenizer, settings.training.seed)


def _tokens_and_generator(given: Namespace) -> tuple[TokenArrays, MaskedGenerator, ImageTokenizer | None]:
    """Return the tokens and the generator that a critic is trained with, and a tokenizer to show samples, or None."""
    arrays = TokenArrays.open(given.data)
    if is_factory(given.generator):
        generator, tokenizer = parts_of(given.generator, f"--generator {given.generator}")
        return arrays, generator, load_part(given.tokenizer, "tokenizer") if given.tokenizer else tokenizer
    generator: MaskedGenerator = load_part(given.generator, "generator")
    for folder in (Path(given.generator), Path(given.generator).parent):
        learned = read_run(folder)[1].get("tokenizer_fingerprint") if (folder / RUN).is_file() else None
        if learned not in (None, made := arrays.tokenizer_fingerprint):
            pair = f"tokens of tokenizer {learned[:16]}, and those of --data were made with {made[:16]}"
            raise InputError(f"--generator {given.generator} learned {pair}; give tokens of the same tokenizer")
    tokenizer = load_part(given.tokenizer, "tokenizer") if given.tokenizer else tokenizer_beside(given.generator)
    return arrays, generator, tokenizer


def _critic(settings: Any, preset: Any, given: Namespace) -> Task:
    arrays, generator, tokenizer = _tokens_and_generator(given)
    if given.start == "generator":
        critic = _critic_from(generator, settings.model, preset.model)
    else:
        sizes = sizes_of(arrays) | {"num_classes": generator.num_classes, "null_class": generator.null_class}
        critic = _new(Critic, follow(settings.model, preset.model, sizes, "the tokens'"))
    return CriticTask(critic, generator, arrays, settings.objective, tokenizer, settings.training.seed)


def _critic_from(generator: MaskedGenerator, asked: Any, preset: Any) -> Any:
    """Return a critic initialized from the generator's trunk.

    asked: the config with the user's changes, from which the layers, dropout and options are taken.
    preset: the config of the preset.
    """
    whole: Any = generator.start_critic()
    if whole is None:
        raise InputError("--start is generator, but this generator has no trunk to start from; give --start random")
    most = whole.config.layers
    if asked.layers > most and asked.layers != preset.layers:
        theirs = f"the generator, whose trunk is the start, has {most}"
        raise InputError(f"--model.layers is {asked.layers} but {theirs}; give at most that")
    own = {name: vars(asked)[name] for name in ("dropout", "reads_mask", "ratio_conditioned")}
    critic: Any = generator.start_critic(min(asked.layers, most), **own)
    for name, right in vars(critic.config).items():
        value, usual = vars(asked).get(name, right), vars(preset).get(name, right)
        if name != "layers" and value not in (right, usual):
            whose = "that of the generator, whose trunk is the start,"
            raise InputError(f"--model.{name} is {value} but {whose} is {right}; leave it out")
    return critic


def _inline_critic(settings: Any, preset: Any, given: Namespace) -> Task:
    arrays, generator, tokenizer = _tokens_and_generator(given)
    if not generator.num_features:
        advice = "train a critic for it, or override logits_with_features as MaskedGenerator says"
        raise InputError(f"--generator {given.generator} gives no features for an inline critic; {advice}")
    sizes = sizes_of(arrays) | {"num_classes": generator.num_classes} | _features_of(generator)
    config = follow(settings.model, preset.model, sizes, "the generator's")
    model = _new(InlineCritic, config)
    return InlineCriticTask(model, generator, arrays, settings.objective, tokenizer, settings.training.seed)


def _features_of(generator: MaskedGenerator) -> dict[str, Any]:
    """Return the fields of an inline critic's config that its generator determines."""
    sizes = {"num_features": generator.num_features, "feature_width": generator.feature_width}
    return sizes | {"generator": generator.identity()}


def _classifier(settings: Any, preset: Any, given: Namespace) -> Task:
    source = open_source(given.data)
    if not source.class_names:
        raise InputError(f"--data {given.data} holds images without classes; a classifier needs their classes")
    sizes = {"channels": source.channels, "num_classes": len(source.class_names)}
    config = follow(settings.model, preset.model, sizes, "the images'")
    images = _images(source, config, settings)
    return ClassifierTask(_new(Classifier, config), images, settings.objective, settings.training.seed)


def _images(source: Any, config: Any, settings: Any) -> ImageBatches:
    crop = Preprocess(config.image_size, config.channels, settings.crop, settings.flip)
    return ImageBatches(source, crop, settings.training.seed, settings.workers)


def follow(config: Any, preset: Any, sizes: dict[str, Any], whose: str) -> Any:
    """Return the config with the given sizes. Raises InputError if the user asked for another size.

    preset: the config of the preset. A size that equals its own was not asked for.
    whose: the owner of the sizes in error messages.
    """
    for name, right in sizes.items():
        asked = vars(config)[name]
        if asked not in (right, vars(preset)[name]):
            raise InputError(f"--model.{name} is {asked} but {whose} is {right}; leave it out")
    return dataclasses.replace(config, **sizes)


def tokenizer_beside(place: str) -> ImageTokenizer | None:
    """Return the tokenizer of the model folder or Hub id that a generator comes from; None if it has none."""
    try:
        find_file(place, CONFIG, subfolder="tokenizer")
    except InputError:  # a generator alone
        return None
    return load_part(place, "tokenizer")
