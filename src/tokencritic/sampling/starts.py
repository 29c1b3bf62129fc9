"""Entry points of the sampling loop: `sample` new images, `refine` complete images, `edit` regions of images.

Arguments are checked here, once.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from tokencritic.adapters import as_generator, as_scorer
from tokencritic.contracts import MaskedGenerator, evaluating
from tokencritic.errors import InputError, as_integers, check_range
from tokencritic.plan import Plan
from tokencritic.randomness import as_seeds, resampling_seeds
from tokencritic.sampling.loop import OnStep, Start, choose, run_loop
from tokencritic.sampling.model_settings import REFINING
from tokencritic.sampling.settings import REFINEMENT_RATIO, Temperature
from tokencritic.schedules import find_schedule
from tokencritic.scoring import Proposal, Scorer

Labels = Sequence[int] | Tensor | None
Seeds = int | Sequence[int] | Tensor
AnyGenerator = MaskedGenerator | Callable[..., Tensor]
AnyScorer = Scorer | Callable[[Proposal], Tensor]


def sample(
    generator: AnyGenerator,
    scorer: AnyScorer,
    labels: Labels,
    seeds: Seeds = 0,
    *,
    steps: int = 18,
    temperature: Temperature = 1.0,
    schedule: str = "paper",
    on_step: OnStep | None = None,
) -> Tensor:
    """Sample new images: Algorithm 2 with a `CriticScorer`, MaskGIT's sampler with a `ConfidenceScorer`.

    generator: a `MaskedGenerator`, or a callable that `as_generator` accepts.
    scorer: a `Scorer`, or a function from a `Proposal` to scores (b, n).
    labels: one class per image, or None without classes.
    seeds: one per image, or an integer s for s, s + 1, ... An image does not depend on the other images.
    steps: T, at least 1.
    temperature: one number, or (start, end) for (start - end) t/T + end; 0 is greedy.
    schedule: a name of `SCHEDULES`.
    on_step: called after each step, for instance a `Trace`.

    Returns tokens (b, n) int64.
    """
    generator, scorer = _parts(generator, scorer)
    labels = _checked_labels(generator, labels)
    if labels is None and isinstance(seeds, Integral):
        raise InputError("labels is None and seeds is one integer; give one seed per image")
    count = len(seeds) if labels is None else len(labels)  # pyright: ignore[reportArgumentType]
    if count == 0:
        raise InputError("seeds is empty; expected at least one image")
    tokens = torch.full((count, generator.num_tokens), generator.mask_id, device=generator.device)
    free = torch.ones_like(tokens, dtype=torch.bool)
    plan = Plan.make([generator.num_tokens] * count, steps, schedule=find_schedule(schedule))
    start = _start(tokens, free, free, labels, as_seeds(seeds, count, generator.device), plan)
    return run_loop(generator, scorer, start, temperature, on_step)


@torch.no_grad()
def refine(
    generator: AnyGenerator,
    scorer: AnyScorer,
    tokens: Tensor,
    labels: Labels,
    seeds: Seeds = 0,
    *,
    ratio: float = REFINEMENT_RATIO,
    steps: int = REFINING["steps"],
    temperature: Temperature = 1.0,
    schedule: str = "paper",
    on_step: OnStep | None = None,
) -> Tensor:
    """Refine complete images as in the paper: hide the given tokens with the lowest scores, then resample them.

    After i of T steps, ceil(ratio gamma(i/T) n) tokens are hidden. The other arguments are those of `sample`.

    tokens: (b, n) int64, codes only.
    seeds: may be those that the images were sampled with; use others to refine a result again.
    ratio: the share of tokens hidden at the start, in (0, 1].

    Returns tokens (b, n) int64.
    """
    if not 0 < ratio <= 1:
        raise InputError(f"ratio is {ratio}; it must lie in (0, 1]")
    generator, scorer = _parts(generator, scorer)
    tokens, labels, seeds = _given(generator, tokens, labels, seeds)
    plan = Plan.make([generator.num_tokens] * len(tokens), steps, ratio, find_schedule(schedule))
    free = torch.ones_like(tokens, dtype=torch.bool)
    start = _start(tokens, free, free, labels, seeds, plan)
    with evaluating(*generator.networks, *scorer.networks):
        features = generator.features(tokens, start.labels) if scorer.needs_features(plan.start) else None
        given = Proposal.given(tokens, start.labels, seeds, plan.start, features)
        scores, mask = choose(scorer, given, free, plan.start.num_masked)
    if on_step is not None:
        on_step(given, scores, mask)
    broken = {f"the scores of {type(scorer).__name__} at step 0": scores.isnan().any()}
    return run_loop(generator, scorer, replace(start, mask=mask, broken=broken), temperature, on_step)


def edit(
    generator: AnyGenerator,
    scorer: AnyScorer,
    tokens: Tensor,
    region: Tensor,
    labels: Labels,
    seeds: Seeds = 0,
    *,
    steps: int = 18,
    temperature: Temperature = 1.0,
    schedule: str = "paper",
    on_step: OnStep | None = None,
) -> Tensor:
    """Resample a region of images. Tokens outside the region are frozen. The other arguments are those of `sample`.

    tokens: (b, n) int64; values inside the region are ignored.
    region: (b, n) or (n,) bool, True where tokens are resampled. Its size may differ between images.
    labels: the classes to sample, which may differ from those of the images.
    seeds: as in `refine`.

    Returns tokens (b, n) int64.
    """
    if region.dtype is not torch.bool or region.shape not in (tokens.shape, tokens.shape[-1:]):
        got = f"{str(region.dtype).removeprefix('torch.')} of shape {tuple(region.shape)}"
        raise InputError(f"region is {got}; expected bool of shape {tuple(tokens.shape)} or {tuple(tokens.shape[-1:])}")
    generator, scorer = _parts(generator, scorer)
    region = region.expand(tokens.shape).to(tokens.device)
    plan = Plan.make(region.sum(1).tolist(), steps, schedule=find_schedule(schedule))
    tokens = as_integers("tokens", tokens).masked_fill(region, 0)
    tokens, labels, seeds = _given(generator, tokens, labels, seeds)
    region = region.to(generator.device)
    return run_loop(generator, scorer, _start(tokens, region, region, labels, seeds, plan), temperature, on_step)


def _parts(generator: Any, scorer: Any) -> tuple[MaskedGenerator, Scorer]:
    generator, scorer = as_generator(generator), as_scorer(scorer)
    scorer.check(generator)
    return generator, scorer


def _start(tokens: Tensor, mask: Tensor, free: Tensor, labels: Tensor | None, seeds: Tensor, plan: Plan) -> Start:
    """Return the start of the loop on the device of the tokens.

    labels: on the CPU, so that the search for distinct labels does not wait for the device.
    """
    if labels is None:
        return Start(tokens, mask, free, None, seeds, plan)
    each, which = labels.unique(return_inverse=True)
    distinct = each.to(tokens.device), which.to(tokens.device)
    return Start(tokens, mask, free, labels.to(tokens.device), seeds, plan, distinct)


def _checked_labels(generator: MaskedGenerator, labels: Labels) -> Tensor | None:
    """Return one label per image, (b,) int64 on the CPU; None for a generator without classes."""
    if labels is None:
        if generator.num_classes:
            raise InputError("labels is None but the generator has classes; give one label per image")
        return None
    if len(labels) == 0:
        raise InputError("labels is empty; expected at least one image")
    tensor = as_integers("labels", torch.as_tensor(labels).cpu())
    if tensor.ndim != 1:
        raise InputError(f"labels has shape {tuple(tensor.shape)}; give one label per image")
    check_range("labels", tensor, generator.num_labels or None)
    return tensor


def _given(
    generator: MaskedGenerator, tokens: Tensor, labels: Labels, seeds: Seeds
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return complete tokens on the generator's device, their labels on the CPU, and seeds to resample them."""
    tokens, labels = as_integers("tokens", tokens), _checked_labels(generator, labels)
    if tokens.ndim != 2 or tokens.shape[1] != generator.num_tokens:
        raise InputError(f"tokens has shape {tuple(tokens.shape)}; expected (images, {generator.num_tokens})")
    check_range("tokens", tokens, generator.codebook_size)
    if len(tokens) == 0:
        raise InputError("tokens is empty; expected at least one image")
    if labels is not None and len(labels) != len(tokens):
        raise InputError(f"{len(labels)} labels for {len(tokens)} rows of tokens; give one per image")
    seeds = resampling_seeds(as_seeds(seeds, len(tokens), generator.device))
    return tokens.to(generator.device), labels, seeds
