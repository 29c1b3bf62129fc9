"""What a sampler is given, checked once before the loop: every message names the argument and the value that came."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tokencritic.errors import InputError, check_range
from tokencritic.sampling.noise import as_seeds


@dataclass(frozen=True)
class Inputs:
    """labels: (b,) int64 or None; seeds: (b,) int64; the sizes of the token grid; all on the generator's device."""

    labels: Tensor | None
    seeds: Tensor
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
    num_tokens = _size("num_tokens", num_tokens, generator)
    mask_id = _size("mask_id", mask_id, generator)
    device = _device(generator)
    critic = getattr(scorer, "critic", None)
    for name in ("num_tokens", "codebook_size", "num_classes"):
        ours, theirs = getattr(generator, name, None), getattr(critic, name, None)
        if ours is not None and theirs is not None and ours != theirs:
            raise InputError(f"the critic's {name} is {theirs} but the generator's is {ours}; they must be equal")

    label_tensor = None if labels is None else torch.as_tensor(labels, dtype=torch.int64, device=device)
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
        if isinstance(seeds, int):
            raise InputError("labels is None and seeds is one integer; give one seed per image to say how many")
        counts["seeds"] = len(seeds)
    if len(set(counts.values())) > 1:
        raise InputError(f"{counts['labels']} labels for {counts['tokens']} rows of tokens; give one per image")
    count = next(iter(counts.values()))
    if count == 0:
        raise InputError(f"{next(iter(counts))} is empty; give at least one image")
    return Inputs(label_tensor, as_seeds(seeds, count, device), num_tokens, mask_id, device)


def _size(name: str, given: int | None, generator: Any) -> int:
    own = getattr(generator, name, None)
    if given is None and own is None:
        raise InputError(f"the generator has no attribute {name}; pass {name}=")
    if given is not None and own is not None and given != own:
        raise InputError(f"{name} is {given} but the generator's is {own}")
    return given if own is None else own  # pyright: ignore[reportReturnType]


def _device(generator: Any) -> torch.device:
    if isinstance(generator, nn.Module):
        return next((p.device for p in generator.parameters()), torch.device("cpu"))
    return torch.device(getattr(generator, "device", "cpu"))
