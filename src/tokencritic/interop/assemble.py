"""Fitting another project's arrays into a model of ours, with one error that lists what does not fit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from tokencritic.errors import InputError

_LISTED = 3


@dataclass(frozen=True)
class Origin:
    """Where one tensor of ours comes from: the others' names with the shapes they must have, and what to make of them."""

    shapes: dict[str, tuple[int, ...]]
    convert: Callable[..., Tensor] = lambda tensor: tensor


def assemble(model: nn.Module, origins: Mapping[str, Origin], arrays: Mapping[str, Tensor], file: str | Path) -> None:
    """Fill `model`, made on the meta device, with `arrays`. Each must be used by exactly one of the origins.

    origins: one for every name in the model's state dict. The tensors become float32.
    """
    expected = {name: shape for origin in origins.values() for name, shape in origin.shapes.items()}
    wrong = {
        "missing": sorted(expected.keys() - arrays.keys()),
        "unexpected": sorted(arrays.keys() - expected.keys()),
        "of another shape": [
            f"{name} {tuple(arrays[name].shape)} instead of {expected[name]}"
            for name in sorted(expected.keys() & arrays.keys())
            if tuple(arrays[name].shape) != expected[name]
        ],
    }
    if any(wrong.values()):
        first = "; ".join(f"{what}: {_first_few(names)}" for what, names in wrong.items() if names)
        raise InputError(f"{file} does not hold the arrays of a {type(model).__name__} ({first})")
    tensors = {
        name: origin.convert(*(arrays[other].float() for other in origin.shapes)).contiguous()
        for name, origin in origins.items()
    }
    model.load_state_dict(tensors, assign=True)


def _first_few(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
