"""The one loop: propose a complete image, score its tokens, hide the worst, T times."""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.masking import Schedule, hide_lowest, num_masked_table
from tokencritic.sampling.inputs import Inputs, check_inputs
from tokencritic.sampling.propose import AnyGenerator, Proposal, Step, evaluating, logits_at, propose
from tokencritic.sampling.scorers import Scorer, revokes_at

Temperature = float | tuple[float, float]


class OnStep(Protocol):
    """Called after each step. scores: what the scorer thinks, without its noise; None after the last step, where
    nothing is hidden and nothing is scored.
    """

    def __call__(self, proposal: Proposal, scores: Tensor | None, mask: Tensor, /) -> Any: ...


def sample(
    generator: AnyGenerator,
    scorer: Scorer,
    labels: Sequence[int] | Tensor | None,
    seeds: int | Sequence[int] | Tensor = 0,
    *,
    steps: int = 18,
    temperature: Temperature = 1.0,
    schedule: Schedule = "cosine",
    passes_per_level: int = 1,
    num_tokens: int | None = None,
    mask_id: int | None = None,
    on_step: OnStep | None = None,
    save_work: bool = True,
) -> Tensor:
    """New images: Algorithm 2 with a `CriticScorer`, MaskGIT's sampler with a `ConfidenceScorer`.

    labels: one class per image, or None for a generator without classes.
    seeds: one per image, or one integer s for s, s + 1, ...: an image depends on its seed, its label, the weights and the
        settings, and not on the other images.
    steps: T. temperature: one number, or (start, end) for T(t) = (start - end) t/T + end; 0 is greedy.
    passes_per_level: propose and score so often at each number of hidden tokens before going on to the next.
    num_tokens, mask_id: for a generator that does not have them as attributes.
    on_step: called after each step, for instance a `Trace`.
    save_work: False runs every pass that cannot change the result too (see `run_loop`); for measuring what that saves.
    Returns tokens (b, num_tokens) int64.
    """
    inputs = check_inputs(generator, scorer, labels, seeds, num_tokens=num_tokens, mask_id=mask_id)
    shape = len(inputs.seeds), inputs.num_tokens
    tokens = torch.full(shape, inputs.mask_id, device=inputs.device)
    free = torch.ones(shape, dtype=torch.bool, device=inputs.device)
    plan = plan_steps([inputs.num_tokens] * shape[0], steps, schedule, passes_per_level=passes_per_level)
    return run_loop(generator, scorer, inputs, tokens, free, free, plan, temperature, on_step, save_work)


def plan_steps(
    num_free: Sequence[int],
    steps: int,
    schedule: Schedule = "cosine",
    first_ratio: float = 1.0,
    passes_per_level: int = 1,
) -> list[Step]:
    """The loop's steps, all numbers known beforehand. num_free: how many tokens of each image may be hidden.

    The first entry is the hiding that comes before the first proposal; the last one hides nothing.
    """
    if passes_per_level < 1:
        raise InputError(f"passes_per_level is {passes_per_level}; it must be at least 1")
    tables = {count: num_masked_table(count, steps, schedule, first_ratio) for count in set(num_free)}
    plan = [Step(0, 1.0, 1.0, tuple(tables[count][0] for count in num_free))]
    for done in range(1, steps + 1):
        num_masked = tuple(tables[count][done] for count in num_free)
        for _ in range(passes_per_level if done < steps else 1):
            plan.append(Step(len(plan), (steps - done + 1) / steps, (steps - done) / steps, num_masked))
    return plan


@torch.no_grad()
def run_loop(
    generator: AnyGenerator,
    scorer: Scorer,
    inputs: Inputs,
    tokens: Tensor,
    mask: Tensor,
    free: Tensor,
    plan: Sequence[Step],
    temperature: Temperature,
    on_step: OnStep | None,
    save_work: bool,
) -> Tensor:
    """Algorithm 2 from the first mask on. tokens, mask, free: (b, n); only free tokens are ever hidden or changed.

    Work that cannot change the result is left out: logits of visible tokens, the scores of the last step, a step that
    hides again all that was hidden, and all but one of the first passes of images of one class.
    """
    start, end = temperature_range(temperature)
    num_masked = torch.tensor([step.num_masked for step in plan], device=tokens.device)
    num_free = tuple(free.sum(1).tolist())
    all_free = min(num_free, default=0) == tokens.shape[1]
    # Called through a plain function, a generator has no `logits_at` and computes every position.
    called = generator if save_work else lambda masked_tokens, labels: generator(masked_tokens, labels)

    tokens = tokens.masked_fill(mask, inputs.mask_id)
    before = plan[0].num_masked
    with evaluating(generator, getattr(scorer, "critic", None)):
        for step in plan[1:]:
            if save_work and step.num_masked == before and (before == num_free or not revokes_at(scorer, step)):
                continue
            blank = all_free and before == num_free
            proposal = propose(
                _OncePerLabel(called, inputs.labels) if blank and save_work else called,
                tokens,
                mask,
                inputs.labels,
                inputs.seeds,
                step=step,
                temperature=end + (start - end) * step.time,
                most_masked=max(before),
            )
            scores = None
            if any(step.num_masked) or not save_work:
                scores, mask = choose(scorer, proposal, free, num_masked[step.index])
            else:
                mask = torch.zeros_like(mask)
            tokens = proposal.tokens.masked_fill(mask, inputs.mask_id)
            before = step.num_masked
            if on_step is not None:
                on_step(proposal, scores, mask)
    return tokens


def choose(
    scorer: Scorer, proposal: Proposal, free: Tensor, num_masked: Sequence[int] | Tensor
) -> tuple[Tensor, Tensor]:
    """The scores, float32, and the mask that hides the num_masked (b,) lowest once noise is added: both (b, n).

    Only tokens that are free, (b, n), are hidden: the others, and no others, have a score of +inf, so that no tie can hide one.
    """
    scores = scorer(proposal)
    if scores.shape != proposal.tokens.shape:
        came, right = tuple(scores.shape), tuple(proposal.tokens.shape)
        raise InputError(f"the scorer returned scores of shape {came} for tokens of shape {right}")
    scores = scores.float().clamp(max=torch.finfo(torch.float32).max)
    noise = getattr(scorer, "noise", None)
    noisy = scores if noise is None else scores + noise(proposal)
    return scores.masked_fill(~free, torch.inf), hide_lowest(noisy.masked_fill(~free, torch.inf), num_masked)


def temperature_range(temperature: Temperature) -> tuple[float, float]:
    """(start, end), checked. T(t) = a t/T + b in the paper has start = a + b and end = b."""
    pair = tuple(temperature) if isinstance(temperature, tuple | list) else (temperature, temperature)
    if len(pair) != 2:
        raise InputError(f"temperature is {temperature}; give one number, or a pair (start, end)")
    start, end = pair
    if not (math.isfinite(start) and math.isfinite(end) and min(start, end) >= 0):
        raise InputError(
            f"temperature is {temperature}; it must be 0 (greedy) or positive, or a pair (start, end) of such"
        )
    return start, end


class _OncePerLabel:
    """The generator on images that are all hidden: what it says depends on the label alone."""

    def __init__(self, generator: AnyGenerator, labels: Tensor | None) -> None:
        self.generator = generator
        self.labels, self.inverse = (None, None) if labels is None else labels.unique(return_inverse=True)

    def logits_at(self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor) -> Tensor:
        count = 1 if self.labels is None else len(self.labels)
        logits = logits_at(self.generator, masked_tokens[:count], self.labels, positions[:count])
        return logits.expand(len(masked_tokens), -1, -1) if self.inverse is None else logits[self.inverse]
