"""Flags, command-line parsing and model loading shared by the commands."""

import dataclasses
import re
import sys
from typing import TYPE_CHECKING, Any, get_args

from jsonargparse import ArgumentError, ArgumentParser, DefaultHelpFormatter, Namespace

from tokencritic.cli.outputs import check_folder
from tokencritic.errors import InputError, check_at_least, check_seed
from tokencritic.launch import read_launch
from tokencritic.sampling.samplers import SAMPLERS
from tokencritic.sampling.settings import NoiseKind, RejectBy, SamplingSettings
from tokencritic.schedules import SCHEDULES, GuidanceSchedule

if TYPE_CHECKING:
    from tokencritic.pipeline import TokenCriticPipeline

MODEL_HELP = (
    "a model folder, a Hub id, the name of a bundled model, or module:factory, a function of yours that makes one"
)
_WIDTH = 110  # columns of a help text
# The parser options of each setting. `add_settings` adds the help texts.
_FORMS: dict[str, dict[str, Any]] = {
    "sampler": {"choices": tuple(SAMPLERS), "metavar": "NAME"},
    "steps": {"type": int, "metavar": "T"},
    "temperature": {"type": float, "nargs": "+", "metavar": "X"},
    "selection_noise": {"type": float, "metavar": "K"},
    "noise_kind": {"choices": get_args(NoiseKind)},
    "critic_window": {"type": float, "nargs": "+", "metavar": "X"},
    "early_noise": {"type": float, "metavar": "K"},
    "remask_quota": {"type": float, "metavar": "X"},
    "remask_noise": {"type": float, "metavar": "K"},
    "schedule": {"choices": tuple(SCHEDULES), "metavar": "NAME"},
    "halton_roll": {"type": bool, "metavar": "BOOL"},
    "guidance": {"type": float, "metavar": "W"},
    "guidance_schedule": {"choices": get_args(GuidanceSchedule)},
    "guidance_power": {"type": float, "metavar": "P"},
    "candidates": {"type": int, "metavar": "N"},
    "reject_by": {"choices": get_args(RejectBy)},
}
SETTINGS = tuple(_FORMS)
# jsonargparse's message for a value that is neither of the expected type nor None.
_OPTIONAL = r"Does not validate against any of the Union subtypes .*? - (Expected .*?) - .* Given value: (.*)"
_SAID: set[str] = set()  # devices chosen by `auto` that are already printed


class _HelpFormatter(DefaultHelpFormatter):
    """jsonargparse's help formatter without types, and without defaults of None, False or an empty list."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=_WIDTH)

    def _get_help_string(self, action: Any) -> str:
        text = action.help or ""
        nothing = action.default is None or action.default is False or action.default in ("==SUPPRESS==", [])
        told = "default" in text or action.required or nothing
        return text if told else f"{text} (default: %(default)s)"


def make_parser(command: str, description: str, usage: str = "[OPTIONS]", **options: Any) -> ArgumentParser:
    """Return the parser of a command. It raises ArgumentError for invalid input, which `parse` converts to InputError.

    usage: the arguments in the usage line.
    options: further arguments of `ArgumentParser`.
    """
    prog = f"token-critic {command}"
    options |= {"prog": prog, "usage": f"{prog} {usage}", "description": description}
    return ArgumentParser(exit_on_error=False, formatter_class=_HelpFormatter, **options)


def parse(parser: ArgumentParser, arguments: list[str]) -> Namespace:
    """Parse the arguments of a command. `--help` prints the help text and exits with 0.

    Raises InputError for unknown, invalid and empty arguments. An unset shell variable gives an empty argument.
    """
    for before, word in zip([parser.prog, *arguments], arguments, strict=False):
        flag, equals, value = word.partition("=")
        if not word or (flag.startswith("--") and equals and not value):
            raise InputError(f"{flag or before} is followed by an empty argument; expected a value")
    try:
        return parser.parse_args(arguments)
    except ArgumentError as error:
        message = re.sub(r'Parser key "([\w.]+)"( element \d+)?:', r"--\1\2:", str(error))
        message = " ".join(re.sub(r"<class '(\w+)'>", r"\1", message).split())
        raise InputError(re.sub(_OPTIONAL, r"\1. Got value: \2", message)) from error


def parse_work(parser: ArgumentParser, arguments: list[str], out: str, seed: str = "image i has seed + i") -> Namespace:
    """Parse the command line of a command that samples images, with the flags of `add_work` and `add_settings`.

    out: the default of --out.
    seed: the help text of --seed.
    """
    add_work(parser, out, seed)
    add_settings(parser)
    given = parse(parser, arguments)
    check_work(given)
    check_settings_given(given)
    return given


def check_work(given: Namespace) -> None:
    """Check the flags of `add_work`, and --num, before a model is read."""
    check_positive(given, *(name for name in ("num", "batch_size") if name in given))
    check_seed(given.seed, "--seed", given.get("num", 1))
    check_folder("--out", given.out)


def check_settings_given(given: Namespace) -> None:
    """Check the settings given as flags, before a model is read."""
    SamplingSettings(**settings_of(given))


def add_work(parser: ArgumentParser, out: str, seed: str = "image i has seed + i") -> None:
    """Add --seed, --out, and the flags of `add_machine` and `add_networks`.

    out: the default of --out.
    seed: the help text of --seed.
    """
    parser.add_argument("--seed", type=int, default=0, help=seed)
    parser.add_argument("--out", default=out, help="the folder to write")
    add_machine(parser)
    add_networks(parser)


def add_machine(parser: Any) -> None:
    """Add --batch_size and --device."""
    parser.add_argument("--batch_size", type=int, default=64, metavar="N", help="images at a time; changes no result")
    add_device(parser)


def add_device(parser: Any) -> None:
    """Add --device."""
    parser.add_argument("--device", default="auto", help="cpu, cuda, mps; auto takes cuda, else mps, else cpu")


def add_networks(parser: Any) -> None:
    """Add --dtype and --compile."""
    text = "precision of generator and critic; scores and samples are float32 in any"
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help=text)
    text = "compile the transformers: minutes at first, faster from then on"
    parser.add_argument("--compile", action="store_true", help=text)


def check_positive(given: Namespace, *names: str) -> None:
    """Raise InputError unless each named flag is None, or at least 1 and at most its bound in `bounds.py`."""
    check_at_least(1, **{f"--{name}": given[name] for name in names if given[name] is not None})


def add_settings(parser: ArgumentParser) -> None:
    """Add the flags of `SamplingSettings` and --paper. By default the settings are the model's own."""
    group = parser.add_argument_group("sampling settings (by default the model's own)")
    helps = field_help(SamplingSettings)
    for name, form in _FORMS.items():
        text = helps[name]
        if name == "sampler":
            text = f"which tokens are kept: {'; '.join(f'{row.name}: {row.summary}' for row in SAMPLERS.values())}"
        if name == "schedule":
            text = f"how the steps run: {'; '.join(f'{row.name}: {row.summary}' for row in SCHEDULES.values())}"
        group.add_argument(f"--{name}", help=text, **form)
    text = "Token-Critic as the paper prints it: the critic at every step, 18 steps, temperature 1, uniform noise"
    group.add_argument("--paper", action="store_true", help=text)


def settings_of(given: Namespace) -> dict[str, Any]:
    """Return the settings given as flags, as keywords of `TokenCriticPipeline.settings`.

    With --paper, all other settings have the paper's values.
    """
    found = {name: given[name] for name in SETTINGS if given.get(name) is not None}
    pairs = {name: number_or_pair(f"--{name}", found[name]) for name in found if "nargs" in _FORMS[name]}
    printed = vars(SamplingSettings("critic")) if given.get("paper") else {}
    return {**printed, **found, **pairs}


def note_untuned(given: Namespace, pipe: "TokenCriticPipeline", settings: SamplingSettings) -> None:
    """Print a note to stderr if the model folder has no tuned settings for its critic and no flag sets any.

    The flags of sampler, steps and rejection do not count.
    """
    row = settings.row(pipe.critic is not None)
    chosen = given.get("paper") or settings_of(given).keys() - {"sampler", "steps", "candidates", "reject_by"}
    if chosen or not (row.uses_critic or row.uses_inline_critic) or pipe.folder is None or not pipe.folder.is_dir():
        return
    if pipe.sampling.tuned(row.name, 0) is None:
        command = f"token-critic tune {given.model} --sampler {row.name}"
        print(f"note: the settings of this model are not tuned; `{command}` finds better ones", file=sys.stderr)


def number_or_pair(flag: str, values: list[float]) -> Any:
    """Return one number, or a pair (start, end).

    flag: the name in error messages.
    """
    if len(values) > 2:
        raise InputError(f"{flag} has {len(values)} numbers; give one, or a start and an end")
    return values[0] if len(values) == 1 else tuple(values)


def parse_settings(flag: str, words: list[str]) -> dict[str, Any]:
    """Parse words `NAME=VALUE` or `NAME=START:END` to keywords of `TokenCriticPipeline.settings`.

    flag: the name in error messages.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or name not in SETTINGS:
            raise InputError(f"{flag} holds {word!r}; expected NAME=VALUE with a name of {', '.join(SETTINGS)}")
        form = _FORMS[name]
        try:
            values = [_converted(part, form) for part in (text.split(":") if "nargs" in form else [text])]
        except ValueError as error:
            raise InputError(f"{flag} holds {word!r}, whose value is no {form['type'].__name__}") from error
        found[name] = number_or_pair(flag, values)
    return found


def _converted(text: str, form: dict[str, Any]) -> Any:
    kind = form.get("type", str)
    if kind is bool and text.lower() not in ("true", "false"):
        raise ValueError("neither true nor false")
    return text.lower() == "true" if kind is bool else kind(text)


def field_help(kind: type) -> dict[str, str]:
    """Return the help text of each field from the docstrings of a dataclass and its parents.

    The docstrings have the form `name, name: text. name: text.`
    """
    name = f"(?:{'|'.join(field.name for field in dataclasses.fields(kind))})"
    found: dict[str, str] = {}
    for parent in reversed(kind.__mro__[:-1]):
        text = " ".join((parent.__doc__ or "").split())
        _, *parts = re.split(rf"(?<![\w.])({name}(?:, {name})*): ", text)
        for names, help_text in zip(parts[::2], parts[1::2], strict=True):
            found |= dict.fromkeys(names.split(", "), help_text.strip().removesuffix(".").replace("%", "%%"))
    return found


def add_model(parser: Any, **options: Any) -> None:
    """Add the model and --critic.

    options: arguments of the model's `add_argument`, such as `help`.
    """
    parser.add_argument("model", **{"help": MODEL_HELP, **options})
    text = "a run, a model folder or Hub id, or the folder of a critic alone: its critic is used; by default the model's own"
    parser.add_argument("--critic", metavar="RUN", help=text)


def load_model(given: Namespace) -> "TokenCriticPipeline":
    """Return the pipeline of `given.model`, with the critic of `given.critic` if given, after `prepared`."""
    from tokencritic.cli.factories import is_factory, pipeline_of
    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.pipeline_folder import load_critic

    own = is_factory(given.model)
    pipe = pipeline_of(given.model) if own else TokenCriticPipeline.from_pretrained(given.model)
    if (critic := given.get("critic")) is not None:
        pipe = pipe.with_critic(**load_critic(critic))
    return prepared(pipe, given)


def prepared(pipe: "TokenCriticPipeline", given: Namespace) -> "TokenCriticPipeline":
    """Return the pipeline on `given.device`.

    Its transformers are cast by --dtype and compiled by --compile, if the command has these flags.
    """
    import torch

    pipe = pipe.to(check_device(given.device))
    if (dtype := given.get("dtype", "float32")) != "float32":
        pipe.cast({"bfloat16": torch.bfloat16, "float16": torch.float16}[dtype])
    return pipe.compile() if given.get("compile") else pipe


def check_device(name: str, training: bool = False) -> str:
    """Return the name of an available device, see `choose_device`.

    training: require a device that can train.
    """
    from tokencritic.devices import choose_device

    read_launch()  # raises InputError for invalid variables of torchrun
    return choose_device(name, training)


def say_device(given: Namespace, training: bool = False) -> None:
    """Print the device that `auto` chooses, once, on the first rank.

    Commands call this function after all input is checked, before the work starts.
    """
    from tokencritic.devices import AUTO, choose_device, describe_device

    if given.device == AUTO and read_launch().rank == 0:
        device = choose_device(AUTO, training)
        if device not in _SAID:
            print(f"device: {describe_device(device)}", file=sys.stderr)
            _SAID.add(device)
