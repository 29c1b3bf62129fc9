"""`InputError`, the one error for invalid input, and small checks that raise it."""

import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from tokencritic.bounds import EXPANDED_BYTES, EXPANSION, MOST

if TYPE_CHECKING:
    from numpy import ndarray
    from torch import Tensor


class InputError(ValueError):
    """Invalid input. The message names the argument or file, what it got and what was expected.

    The command line prints the message as one line and exits with 2. Library users can catch it as a `ValueError`.
    """


def one_line(text: str) -> str:
    """Escape line breaks and terminal codes, so that names of files and classes cannot control the terminal."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def check_at_least(least: int, **values: float) -> None:
    """Raise InputError unless every value is at least `least`, and at most the bound of its name in `bounds.py`.

    The keywords are the names in the message.
    """
    for name, value in values.items():
        if not value >= least:
            right = f"at least {least}" if least else "0 or more"
            raise InputError(f"{name} is {value}; it must be {right}")
        check_at_most(**{name: value})


def check_at_most(**values: object) -> None:
    """Raise InputError for a number, also in a list, above the bound of its name. Other names have no bound."""
    for name, value in values.items():
        most = MOST.get(name.removeprefix("--"))
        for one in value if isinstance(value, list | tuple) else (value,):
            if most is not None and isinstance(one, int | float) and one > most:
                raise InputError(f"{name} is {one}; it must be at most {most}")


def check_types(values: Mapping[str, Any], kind: type, prefix: str = "") -> None:
    """Raise InputError unless values, as JSON or YAML holds them, are of the types of a dataclass's fields.

    prefix: the prefix of the names in the message. Names that the dataclass does not have are ignored.
    """
    for name, hint in get_type_hints(kind).items():
        if name in values and not _fits(values[name], hint):
            expected = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
            raise InputError(f"{prefix}{name} is {values[name]!r:.60}; expected {expected.replace('typing.', '')}")


def _fits(value: Any, hint: Any) -> bool:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return any(value is part or (type(value) is type(part) and value == part) for part in parts)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return False
        of_one_kind = len(parts) == 2 and parts[1] is Ellipsis
        hints = parts[:1] * len(value) if of_one_kind else parts
        return len(value) == len(hints) and all(map(_fits, value, hints))
    if hint is float:
        return type(value) in (int, float)
    if hint is int:  # a bool is not an int
        return type(value) is int
    return hint is Any or isinstance(value, hint)


def check_seed(seed: int, name: str = "seed", count: int = 1) -> None:
    """Raise InputError unless the `count` seeds from `seed` on lie in [0, 2^63)."""
    if not 0 <= seed <= 2**63 - count:
        raise InputError(f"{name} is {seed}; it must be an integer from 0 to 2^63 - {count}")


def check_expansion(place: object, packed: int, unpacked: int) -> None:
    """Raise InputError for compressed content that expands too much.

    packed, unpacked: the sizes in bytes.
    """
    if unpacked > EXPANDED_BYTES and unpacked > EXPANSION * packed:
        raise InputError(f"{place} expands from {packed} to {unpacked} bytes; expected at most {EXPANSION} times")


def as_integers(name: str, values: "Tensor") -> "Tensor":
    """Convert integers of any type, such as uint16 of token arrays, to int64. Raises InputError for other types."""
    import torch

    if values.is_floating_point() or values.is_complex() or values.dtype is torch.bool:
        raise InputError(f"{name} is {str(values.dtype).removeprefix('torch.')}; expected integers")
    return values.long()


def is_readable(values: "Tensor") -> bool:
    """Return whether values can be read without cost.

    Reading stalls the queue of a device other than the CPU, and breaks the graph during compilation.
    """
    import torch

    return values.device.type == "cpu" and not torch.compiler.is_compiling()


def check_range(name: str, values: "Tensor | ndarray", size: int | None) -> None:
    """Raise InputError unless integers are in [0, size), or not negative if the size is None."""
    if 0 in values.shape:
        return
    low, high = int(values.min()), int(values.max())
    if low < 0 or (size is not None and high >= size):
        bad = low if low < 0 else high
        right = "integers of 0 or more" if size is None else f"integers from 0 to {size - 1}"
        raise InputError(f"{name} holds {bad}; expected {right}")
