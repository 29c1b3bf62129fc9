"""What the verbs share in reading their command line."""

import os
import re
from collections.abc import Sequence
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, Namespace

from tokencritic.errors import InputError

SAMPLERS = ("critic", "chance", "confidence", "random", "halton")
_SETTINGS: dict[str, dict[str, Any]] = {
    "sampler": {"choices": SAMPLERS, "help": "who chooses the tokens; chance: in place of the critic, as its control"},
    "steps": {"type": int, "help": "T, the number of steps"},
    "temperature": {
        "type": float,
        "nargs": "+",
        "metavar": "T",
        "help": "one number, or its start and end; 0 is greedy",
    },
    "selection_noise": {"type": float, "help": "K in the paper; MaskGIT's choice temperature"},
    "noise_on": {
        "choices": ["probability", "logit", "odds"],
        "help": "what the critic's noise is added to",
    },
    "critic_from": {
        "type": float,
        "help": "t/T from which on the critic (or chance) chooses, MaskGIT's confidence before; 1: from the first step",
    },
    "critic_until": {
        "type": float,
        "help": "t/T from which on MaskGIT's confidence chooses; 0: the critic (or chance) to the end",
    },
    "schedule": {"choices": ["cosine", "linear", "square", "cubic", "sqrt"], "help": "of the mask ratio"},
    "passes_per_level": {"type": int, "help": "critic passes at each number of hidden tokens"},
    "guidance": {"type": float, "help": "classifier-free guidance scale, 1 is none"},
    "candidates": {"type": int, "help": "images drawn for each that is kept (rejection); 1 keeps all"},
    "reject_by": {"choices": ["classifier", "critic"], "help": "who chooses among the candidates"},
}
SETTINGS = tuple(_SETTINGS)


def make_parser(verb: str, description: str) -> ArgumentParser:
    """A parser whose errors are `InputError`s: one line each, which the command prints before it exits with 2."""
    return ArgumentParser(prog=f"token-critic {verb}", description=description, exit_on_error=False)


def parse(parser: ArgumentParser, arguments: list[str]) -> Namespace:
    """Parse strictly; `--help` prints and exits with 0."""
    try:
        return parser.parse_args(arguments)
    except ArgumentError as error:
        message = re.sub(r'Parser key "([\w.]+)":', r"--\1:", str(error))
        raise InputError(" ".join(re.sub(r"<class '(\w+)'>", r"\1", message).split())) from error


def add_settings(parser: ArgumentParser, names: Sequence[str] = SETTINGS, prefix: str = "") -> None:
    """The flags of `SamplingSettings`, each defaulting to what the model folder says.

    prefix: in front of their names, where a command samples in two ways.
    """
    for name in names:
        parser.add_argument(f"--{prefix}{name}", **_SETTINGS[name])


def settings_of(parsed: Namespace, prefix: str = "") -> dict[str, Any]:
    """The settings that were given, as `TokenCriticPipeline.settings` takes them."""
    flags = {name: f"{prefix}{name}" for name in SETTINGS}
    given = {name: parsed[flag] for name, flag in flags.items() if parsed.get(flag) is not None}
    if "temperature" in given:
        values = given["temperature"]
        if len(values) > 2:
            raise InputError(f"--{prefix}temperature has {len(values)} numbers; give one, or a start and an end")
        given["temperature"] = values[0] if len(values) == 1 else tuple(values)
    return given


def rank_and_world_size() -> tuple[int, int]:
    """As `torchrun` sets them; 0 of 1 without it."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def check_device(name: str) -> str:
    """The name of a device that is there."""
    import torch

    # Each process of torchrun tries its own GPU; all trying the first one would leave their contexts in its memory.
    tried = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if name == "cuda" else name
    try:
        torch.empty(0, device=tried)
        if name == "cuda":
            torch.cuda.set_device(tried)  # from here on the plain name means it too
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"--device is {name}, which cannot be used here: {reason}") from error
    return name
