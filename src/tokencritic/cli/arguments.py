"""What the verbs share in reading their command line."""

import os
import re
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, Namespace

from tokencritic.errors import InputError

SAMPLERS = ("critic", "confidence", "random", "halton")
SETTINGS = (
    "sampler",
    "steps",
    "temperature",
    "selection_noise",
    "noise_on",
    "critic_until",
    "schedule",
    "passes_per_level",
    "guidance",
    "candidates",
    "reject_by",
)


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


def add_settings(parser: ArgumentParser) -> None:
    """The flags of `SamplingSettings`, each defaulting to what the model folder says."""
    parser.add_argument("--sampler", choices=SAMPLERS, help="who chooses the tokens")
    parser.add_argument("--steps", type=int, help="T, the number of steps")
    parser.add_argument(
        "--temperature", type=float, nargs="+", metavar="T", help="one number, or its start and end; 0 is greedy"
    )
    parser.add_argument("--selection_noise", type=float, help="K in the paper; MaskGIT's choice temperature")
    parser.add_argument("--noise_on", choices=["probability", "logit"], help="what the critic's noise is added to")
    parser.add_argument(
        "--critic_until", type=float, help="t/T from which on MaskGIT's confidence chooses; 0: the critic to the end"
    )
    parser.add_argument("--schedule", choices=["cosine", "linear", "square", "cubic", "sqrt"], help="of the mask ratio")
    parser.add_argument("--passes_per_level", type=int, help="critic passes at each number of hidden tokens")
    parser.add_argument("--guidance", type=float, help="classifier-free guidance scale, 1 is none")
    parser.add_argument("--candidates", type=int, help="images drawn for each that is kept (rejection); 1 keeps all")
    parser.add_argument("--reject_by", choices=["classifier", "critic"], help="who chooses among the candidates")


def settings_of(parsed: Namespace) -> dict[str, Any]:
    """The settings that were given, as `TokenCriticPipeline.settings` takes them."""
    given = {name: parsed[name] for name in SETTINGS if parsed[name] is not None}
    if "temperature" in given:
        values = given["temperature"]
        if len(values) > 2:
            raise InputError(f"--temperature has {len(values)} numbers; give one, or a start and an end")
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
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"--device is {name}, which cannot be used here: {reason}") from error
    return name
