"""The ranks of this process under torchrun, read from the environment. Importable without torch."""

import os
from typing import NamedTuple

from tokencritic.bounds import MOST
from tokencritic.errors import InputError


class Launch(NamedTuple):
    """The launch of a process by torchrun.

    rank: the rank among `size` processes.
    local_rank: the rank on this machine.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0


def read_launch() -> Launch:
    """Return the launch of this process. Outside torchrun it is the only process."""
    size = _number("WORLD_SIZE", 1, 1, MOST["ranks"])
    rank = _number("RANK", None if size > 1 else 0, 0, size - 1)
    if size > 1 and not {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        raise InputError(f"WORLD_SIZE is {size} in the environment without MASTER_ADDR and MASTER_PORT; use torchrun")
    return Launch(rank, size, _number("LOCAL_RANK", 0, 0, MOST["ranks"]))


def _number(name: str, usual: int | None, least: int, most: int) -> int:
    text = os.environ.get(name, "" if usual is None else str(usual))
    if not (text.isdecimal() and len(text) < 10 and least <= int(text) <= most):
        raise InputError(f"{name} is {text!r} in the environment; expected a whole number from {least} to {most}")
    return int(text)
