"""What a sampler is given, checked once before the loop: every message names the argument and the value that came."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from tokencritic.errors import InputError, as_integers, check_range
from tokencritic.randomness import as_seeds


@dataclass(frozen=True)
class Inputs:
    """labels: (b,) int64 or None; seeds: (b,) int64; tokens: (b, n) int64 or None; all on the generator's device."""

    labels: Tensor | None
    seeds: Tensor
    tokens: Tensor | None
    num_tokens: int
    mask_id: int
    device: torch.device


def check_inputs(
    generator: Any,
    scorer: Any,
    labels: Sequence[int] | Tensor | None,
    seeds: int | Sequence[int] | Tensor,
    tokens: Tensor | None = None,
    *,
    num_tokens: int | None = None,
    mask_id: int | None = None,
) -> Inputs:
    """Sizes come from the generator's own attributes where it has them, from the arguments where it has not."""
    if tokens is not None:
        tokens = as_integers("tokens", tokens)
        if num_tokens is None and not hasattr(generator, "num_tokens"):
            num_tokens = tokens.shape[-1]
    num_tokens = _size("num_tokens", num_tokens, generator)
    mask_id = _size("mask_id", mask_id, generator)
    device = device_of(generator)
    critic = getattr(scorer, "critic", None)
    for name in ("num_tokens", "codebook_size", "num_classes"):
        ours, theirs = getattr(generator, name, None), getattr(critic, name, None)
        if ours is not None and theirs is not None and ours != theirs:
            raise InputError(f"the critic's {name} is {theirs} but the generator's is {ours}; they must be equal")

    label_tensor = None if labels is None else _labels(labels, device)
    if label_tensor is not None:
        if label_tensor.ndim != 1:
            raise InputError(f"labels has shape {tuple(label_tensor.shape)}; give one label per image")
        check_range("labels", label_tensor, getattr(generator, "num_labels", None))
    elif getattr(generator, "num_classes", 0):
        raise InputError("labels is None but the generator has classes; give one label per image")

    if tokens is not None:
        if tokens.ndim != 2 or tokens.shape[1] != num_tokens:
            raise InputError(f"tokens has shape {tuple(tokens.shape)}; expected (images, {num_tokens})")
        check_range("tokens", tokens, getattr(generator, "codebook_size", None))

    counts = {name: len(x) for name, x in (("labels", label_tensor), ("tokens", tokens)) if x is not None}
    if not counts:
        if isinstance(seeds, int | Integral):
            raise InputError("labels is None and seeds is one integer; give one seed per image to say how many")
        counts["seeds"] = len(seeds)
    if len(set(counts.values())) > 1:
        raise InputError(f"{counts['labels']} labels for {counts['tokens']} rows of tokens; give one per image")
    count = next(iter(counts.values()))
    if count == 0:
        raise InputError(f"{next(iter(counts))} is empty; give at least one image")
    tokens = None if tokens is None else tokens.to(device)
    return Inputs(label_tensor, as_seeds(seeds, count, device), tokens, num_tokens, mask_id, device)


def _labels(labels: Sequence[int] | Tensor, device: torch.device) -> Tensor:
    if len(labels) == 0:
        raise InputError("labels is empty; give at least one image")
    return as_integers("labels", torch.as_tensor(labels, device=device))


def _size(name: str, given: int | None, generator: Any) -> int:
    own = getattr(generator, name, None)
    if given is None and own is None:
        raise InputError(f"the generator has no attribute {name}; pass {name}=")
    if given is not None and own is not None and given != own:
        raise InputError(f"{name} is {given} but the generator's is {own}")
    return given if own is None else own  # pyright: ignore[reportReturnType]


def device_of(generator: Any) -> torch.device:
    """Of a module's first parameter; else of its attribute `device`; else the CPU."""
    if isinstance(generator, nn.Module) and (parameter := next(generator.parameters(), None)) is not None:
        return parameter.device
    return torch.device(getattr(generator, "device", "cpu"))
