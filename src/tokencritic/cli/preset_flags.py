"""A preset as flags: each of its settings by a dotted name, with its help text, and a YAML file of the same names."""

import dataclasses
from typing import Any, get_type_hints

import yaml
from jsonargparse import ArgumentParser, Namespace

from tokencritic.cli.arguments import field_help, make_parser, parse
from tokencritic.errors import InputError

LENGTHS = ("steps", "epochs", "minutes")
_SHORTCUTS = {
    "minutes": (float, "train for so many minutes"),
    "steps": (int, "train for so many steps"),
    "epochs": (float, "train for so many epochs"),
    "seed": (int, "of the order of examples and all other randomness"),
}


def preset_parser(command: str, description: str, preset: Any) -> ArgumentParser:
    """Flags for every field of a preset and of the dataclasses in it, and `--config` and `--print_config`."""
    # jsonargparse's own --print_config would print before the shortcuts below are read.
    parser = make_parser(command, description, "--data PATH --run FOLDER [OPTIONS]", print_config=None)
    parser.add_argument("--config", action="config", help="a YAML file of settings; flags after it win")
    parser.add_argument("--print_config", action="store_true", help="print all settings as such a file, and exit")
    for name, (kind, text) in _SHORTCUTS.items():
        parser.add_argument(f"--{name}", type=kind, help=f"{text}: --training.{name} for short")
    for field in dataclasses.fields(preset):
        value = getattr(preset, field.name)
        if dataclasses.is_dataclass(value):
            group = parser.add_argument_group(f"{field.name} ({type(value).__name__})")
            _add_fields(group, value, f"{field.name}.")
        else:
            _add_fields(parser, preset, "", (field.name,))
    return parser


def _add_fields(parser: Any, values: Any, prefix: str, names: tuple[str, ...] | None = None) -> None:
    hints, helps = get_type_hints(type(values)), field_help(type(values))
    for name in names or [field.name for field in dataclasses.fields(values)]:
        default, text = getattr(values, name), helps.get(name, "")
        if prefix == "training." and name in LENGTHS:
            # The preset's length is none of the parser's: another kind of length takes its place and does not join it.
            text, default = f"{text} (the preset's: {default})" if default is not None else text, None
        parser.add_argument(f"--{prefix}{name}", type=hints[name], default=default, help=text or name)


def parse_preset(parser: ArgumentParser, arguments: list[str]) -> Namespace:
    """Parse strictly; an error in a file that `--config` names also names the file."""
    try:
        return parse(parser, arguments)
    except InputError as error:
        pairs = zip(arguments, [*arguments[1:], ""], strict=True)
        files = [after if word == "--config" else word.partition("=")[2] for word, after in pairs if _is_config(word)]
        for file in files:
            try:
                parse(parser, ["--config", file])
            except InputError as wrong:
                raise InputError(f"--config {file}: {wrong}") from error
        raise


def _is_config(word: str) -> bool:
    return word == "--config" or word.startswith("--config=")


def settings_from(given: Namespace, preset: Any) -> Any:
    """The preset with what the command line and its YAML file say in its place."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(preset):
        value = getattr(preset, field.name)
        if not dataclasses.is_dataclass(value):
            changes[field.name] = given[field.name]
            continue
        chosen = vars(given[field.name])
        if field.name == "training":
            chosen = _with_shortcuts(chosen, given, value)
        changes[field.name] = dataclasses.replace(value, **chosen)  # pyright: ignore[reportArgumentType]
    return dataclasses.replace(preset, **changes)


def _with_shortcuts(chosen: dict[str, Any], given: Namespace, preset: Any) -> dict[str, Any]:
    short = {name: given[name] for name in LENGTHS if given[name] is not None}
    if len(short) > 1:
        raise InputError(f"{' and '.join(f'--{name}' for name in short)} are given together; give one of them")
    lengths = short or {name: chosen[name] for name in LENGTHS if chosen[name] is not None}
    lengths = lengths or {name: getattr(preset, name) for name in LENGTHS}
    seed = chosen["seed"] if given["seed"] is None else given["seed"]
    return {**chosen, **dict.fromkeys(LENGTHS), **lengths, "seed": seed}


def to_yaml(settings: Any, others: dict[str, Any]) -> str:
    """Settings as a file that `--config` takes. others: further flags by name; those that are None are left out."""
    given = {name: value for name, value in others.items() if value is not None}
    return yaml.safe_dump({**given, **_plain(dataclasses.asdict(settings))}, sort_keys=False, allow_unicode=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
