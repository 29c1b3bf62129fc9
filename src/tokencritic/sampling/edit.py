"""Draw a region anew and leave the rest alone: inpainting, outpainting, another class inside a box."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from tokencritic.errors import InputError, as_integers
from tokencritic.masking import Schedule
from tokencritic.randomness import resampling_seeds
from tokencritic.sampling.inputs import check_inputs
from tokencritic.sampling.loop import OnStep, Temperature, plan_steps, run_loop
from tokencritic.sampling.propose import AnyGenerator
from tokencritic.sampling.scorers import Scorer


def edit(
    generator: AnyGenerator,
    scorer: Scorer,
    tokens: Tensor,
    region: Tensor,
    labels: Sequence[int] | Tensor | None,
    seeds: int | Sequence[int] | Tensor = 0,
    *,
    steps: int = 18,
    temperature: Temperature = 1.0,
    schedule: Schedule = "cosine",
    passes_per_level: int = 1,
    mask_id: int | None = None,
    on_step: OnStep | None = None,
    save_work: bool = True,
) -> Tensor:
    """The loop with frozen tokens: all of `region` is hidden at first, and nothing outside it ever changes.

    tokens: (b, n) int64; what stands inside the region does not matter. region: (b, n) or (n,) bool, True = draw anew;
    images may have regions of different sizes. labels: the class to draw, which may be another than the image's.
    seeds: as in `refine`. The other arguments are those of `sample`. Returns tokens (b, n).
    """
    if region.dtype is not torch.bool or region.shape not in (tokens.shape, tokens.shape[-1:]):
        came = f"{str(region.dtype).removeprefix('torch.')} of shape {tuple(region.shape)}"
        raise InputError(
            f"region is {came}; expected bool of shape {tuple(tokens.shape)} or {tuple(tokens.shape[-1:])}"
        )
    region = region.expand(tokens.shape).to(tokens.device)
    tokens = as_integers("tokens", tokens).masked_fill(region, 0)
    inputs = check_inputs(generator, scorer, labels, seeds, tokens, mask_id=mask_id)
    assert inputs.tokens is not None
    tokens, region = inputs.tokens, region.to(inputs.device)
    inputs = dataclasses.replace(inputs, seeds=resampling_seeds(inputs.seeds))
    plan = plan_steps(region.sum(1).tolist(), steps, schedule, passes_per_level=passes_per_level)
    return run_loop(generator, scorer, inputs, tokens, region, region, plan, temperature, on_step, save_work)
