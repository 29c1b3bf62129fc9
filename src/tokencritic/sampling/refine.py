"""Improve images that exist: the same loop, begun at the tokens the critic trusts least."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.masking import Schedule
from tokencritic.randomness import resampling_seeds
from tokencritic.sampling.inputs import check_inputs
from tokencritic.sampling.loop import OnStep, Temperature, choose, plan_steps, run_loop
from tokencritic.sampling.propose import AnyGenerator, Proposal, evaluating
from tokencritic.sampling.scorers import Scorer


@torch.no_grad()
def refine(
    generator: AnyGenerator,
    scorer: Scorer,
    tokens: Tensor,
    labels: Sequence[int] | Tensor | None,
    seeds: int | Sequence[int] | Tensor = 0,
    *,
    ratio: float = 0.6,
    steps: int = 9,
    temperature: Temperature = 1.0,
    schedule: Schedule = "cosine",
    passes_per_level: int = 1,
    mask_id: int | None = None,
    on_step: OnStep | None = None,
    save_work: bool = True,
) -> Tensor:
    """The paper's refinement: hide the `ratio` of the given tokens with the lowest scores, then fewer and fewer.

    tokens: (b, n) int64, complete images. seeds: also those that the images were sampled with will do, since the noise is
    another; to refine again what came out, take others. The other arguments are those of `sample`. After i of T steps
    ceil(ratio gamma(i/T) n) tokens are hidden. Returns tokens (b, n).
    """
    if not 0 < ratio <= 1:
        raise InputError(f"ratio is {ratio}; it must lie in (0, 1]")
    inputs = check_inputs(generator, scorer, labels, seeds, tokens, mask_id=mask_id)
    assert inputs.tokens is not None
    tokens, inputs = inputs.tokens, dataclasses.replace(inputs, seeds=resampling_seeds(inputs.seeds))
    everything = torch.ones_like(tokens, dtype=torch.bool)
    plan = plan_steps([inputs.num_tokens] * len(tokens), steps, schedule, ratio, passes_per_level)
    with evaluating(getattr(scorer, "critic", None)):
        given = Proposal(tokens, everything, inputs.labels, inputs.seeds, plan[0])
        scores, mask = choose(scorer, given, everything, plan[0].num_masked)
    if on_step is not None:
        on_step(given, scores, mask)
    return run_loop(generator, scorer, inputs, tokens, mask, everything, plan, temperature, on_step, save_work)
