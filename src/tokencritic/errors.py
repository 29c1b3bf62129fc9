"""The one error that means "what was given is wrong", as opposed to a fault of ours."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import ndarray
    from torch import Tensor


class InputError(ValueError):
    """Bad input: the message names the argument or file, the value that came, and what would be right.

    The command line prints it as one line and exits with 2; a library user catches it as a `ValueError`.
    """


def check_at_least(least: int, **values: float) -> None:
    """Raises InputError unless every value is `least` or more; the error names the value."""
    for name, value in values.items():
        if value < least:
            right = f"at least {least}" if least else "0 or more"
            raise InputError(f"{name} is {value}; it must be {right}")


def as_integers(name: str, values: "Tensor") -> "Tensor":
    """Any integers as int64, such as the uint16 of token arrays; fractions and truth values are refused, not rounded."""
    import torch

    if values.is_floating_point() or values.is_complex() or values.dtype is torch.bool:
        raise InputError(f"{name} is {str(values.dtype).removeprefix('torch.')}; expected integers")
    return values.long()


def is_readable(values: "Tensor") -> bool:
    """Whether looking at values is free: on another device it stalls the queue, while compiling it breaks the graph."""
    import torch

    return values.device.type == "cpu" and not torch.compiler.is_compiling()


def check_range(name: str, values: "Tensor | ndarray", size: int | None) -> None:
    """Integers must lie in [0, size); with no size known, they must not be negative."""
    if 0 in values.shape:
        return
    low, high = int(values.min()), int(values.max())
    if low < 0 or (size is not None and high >= size):
        bad = low if low < 0 else high
        right = "integers of 0 or more" if size is None else f"integers from 0 to {size - 1}"
        raise InputError(f"{name} holds {bad}; expected {right}")
