"""The one loop: propose a complete image, score its tokens, hide the lowest, T times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from tokencritic.contracts import MaskedGenerator, evaluating
from tokencritic.errors import InputError
from tokencritic.plan import Plan
from tokencritic.sampling.propose import propose
from tokencritic.sampling.settings import Temperature, temperature_range
from tokencritic.scoring import Proposal, Scorer


class OnStep(Protocol):
    """A callable for each step, such as a `Trace`.

    scores: the scores of all tokens without noise; None after the last step, which hides and scores nothing.
    """

    def __call__(self, proposal: Proposal, scores: Tensor | None, mask: Tensor, /) -> Any: ...


@dataclass(frozen=True)
class Start:
    """The start of the loop.

    tokens: (b, n) int64.
    mask: (b, n) bool, True where a token is hidden at first.
    free: (b, n) bool, True where a token may be hidden.
    labels: (b,) int64, or None.
    seeds: (b,) int64, one per image.
    plan: the steps.
    distinct: the distinct labels, (k,) int64, and the index of each image's label, (b,) int64; None without labels.
    broken: checks made before the loop, as in `_check_finite`.
    """

    tokens: Tensor
    mask: Tensor
    free: Tensor
    labels: Tensor | None
    seeds: Tensor
    plan: Plan
    distinct: tuple[Tensor, Tensor] | None = None
    broken: Mapping[str, Tensor] = field(default_factory=dict)


@torch.no_grad()
def run_loop(
    generator: MaskedGenerator, scorer: Scorer, start: Start, temperature: Temperature, on_step: OnStep | None
) -> Tensor:
    """Run Algorithm 2 from a first mask, and return the tokens, (b, n). Only free tokens are hidden or changed.

    Work that cannot change the result is skipped:
    1. steps without effect (`Plan.with_effect`);
    2. repeated labels: images that are all hidden need one generator evaluation per label (`_OncePerLabel`);
    3. scores in the last step, which hides nothing;
    4. logits of visible tokens (`propose`).

    No step waits for the device. The host reads the checks of all steps once, after the last step.
    """
    hot, cold = temperature_range(temperature)
    plan, mask, mask_id = start.plan, start.mask, generator.mask_id
    num_masked = torch.tensor([step.num_masked for step in (plan.start, *plan.steps)], device=mask.device)
    tokens = start.tokens.masked_fill(mask, mask_id)
    broken = dict(start.broken)
    with evaluating(*generator.networks, *scorer.networks):
        for step, before in plan.with_effect(scorer.revokes):
            current = generator.at(step)
            once = min(before) == mask.shape[1] and not generator.fixed_shapes
            proposal = propose(
                _OncePerLabel(current, start.distinct) if once else current,
                tokens,
                mask,
                start.labels,
                start.seeds,
                step=step,
                temperature=plan.schedule.temperature(hot, cold, step.done, step.steps),
                code_noise=scorer.code_noise(step),
                most_masked=max(before),
                with_features=not step.is_last and before != plan.num_free and scorer.needs_features(step),
            )
            if proposal.logits is not None and proposal.logits.shape[-1] != generator.codebook_size:
                columns = f"{proposal.logits.shape[-1]} columns; expected one per code, {generator.codebook_size}"
                raise InputError(f"the generator's logits at step {step.index} have {columns}")
            broken[f"the generator's logits at step {step.index}"] = _no_distribution(proposal.logits)  # pyright: ignore[reportArgumentType]
            if step.is_last:
                scores, mask = None, torch.zeros_like(mask)
            else:
                scores, mask = choose(scorer, proposal, start.free, num_masked[step.index])
                broken[f"the scores of {type(scorer).__name__} at step {step.index}"] = scores.isnan().any()
            tokens = proposal.tokens.masked_fill(mask, mask_id)
            if on_step is not None:
                on_step(proposal, scores, mask)
    _check_finite(broken)
    return tokens


def _no_distribution(logits: Tensor) -> Tensor:
    """Return a scalar on the logits' device: whether a token has a logit of NaN or +inf, or only logits of -inf."""
    return ~logits.amax(-1).isfinite().all()


def _check_finite(broken: dict[str, Tensor]) -> None:
    """Raise InputError for the first check that is True.

    broken: scalars by the name of what is not finite if they are True. They are read at once: one wait per run.
    """
    found = torch.stack(list(broken.values())).tolist() if broken else []
    if any(found):
        what = list(broken)[found.index(True)]
        raise InputError(f"{what} are not finite; the weights are broken, or the precision is too low")


def choose(
    scorer: Scorer, proposal: Proposal, free: Tensor, num_masked: Sequence[int] | Tensor
) -> tuple[Tensor, Tensor]:
    """Return scores, (b, n) float32, and the mask that hides the lowest scores after noise is added, (b, n) bool.

    free: (b, n) bool. Only free tokens are hidden. All others, and no free token, have a score of +inf.
    num_masked: how many tokens to hide in each image, (b,).
    """
    scores = scorer.score(proposal)
    if scores.shape != proposal.tokens.shape:
        got, expected = tuple(scores.shape), tuple(proposal.tokens.shape)
        raise InputError(f"the scorer returned scores of shape {got} for tokens of shape {expected}")
    scores = scores.float().clamp(max=torch.finfo(torch.float32).max)
    noisy = (scores + scorer.noise(proposal)).masked_fill(~free, torch.inf)
    num_masked = torch.as_tensor(num_masked, device=scores.device)
    return scores.masked_fill(~free, torch.inf), scorer.select(noisy, proposal, free, num_masked)


class _OncePerLabel(MaskedGenerator):
    """A generator for images that are all hidden, whose logits depend only on the label."""

    def __init__(self, generator: MaskedGenerator, distinct: tuple[Tensor, Tensor] | None) -> None:
        self.generator = generator
        self.labels, self.inverse = (None, None) if distinct is None else distinct

    def logits_at(self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor) -> Tensor:
        count = 1 if self.labels is None else len(self.labels)
        logits = self.generator.logits_at(masked_tokens[:count], self.labels, positions[:count])
        return logits.expand(len(masked_tokens), -1, -1) if self.inverse is None else logits[self.inverse]
