"""Proposals: hidden tokens filled with sampled codes, for sampling and for critic training alike."""

import torch
from torch import Tensor

from tokencritic.contracts import MaskedGenerator
from tokencritic.errors import InputError
from tokencritic.masking import all_positions, hidden_positions, put, take
from tokencritic.plan import Step
from tokencritic.randomness import Use, uniforms
from tokencritic.scoring import COLDEST, Proposal

_FIRST = Step()


@torch.no_grad()
def propose(
    generator: MaskedGenerator,
    masked_tokens: Tensor,
    mask: Tensor,
    labels: Tensor | None,
    seeds: Tensor,
    *,
    step: Step = _FIRST,
    temperature: float | Tensor = 1.0,
    code_noise: float = 1.0,
    most_masked: int | None = None,
    with_features: bool = False,
) -> Proposal:
    """Sample x-hat_0 ~ p_theta(x_0 | x_t, c) at hidden tokens and copy visible ones (Algorithm 1 line 6, 2 line 4).

    masked_tokens: (b, n) int64.
    mask: (b, n) bool, True = hidden.
    labels: (b,) int64, or None.
    seeds: (b,) int64.
    temperature: divides the logits; a number, or (b,) with one value per image. 0 takes the most likely code.
    code_noise: multiplies the temperature, see `Scorer.code_noise`.
    most_masked: the largest number of hidden tokens in an image, if known. Only as many positions are evaluated.
    with_features: keep the generator's features of this evaluation, for an inline critic.
    """
    if most_masked is None or generator.fixed_shapes:
        chosen = hidden_positions(mask, generator.fixed_shapes)
    else:
        chosen = _hidden_first(mask)[:, :most_masked]
    positions, features = all_positions(mask) if chosen is None else chosen, None
    if with_features:
        logits, features = generator.logits_with_features(masked_tokens, labels, positions)
    elif chosen is None:
        logits = generator(masked_tokens, labels)
    else:
        logits = generator.logits_at(masked_tokens, labels, positions)
    noise = uniforms(seeds, mask.shape[1], Use.DRAW, step.index)
    heat = code_noise * temperature
    if isinstance(heat, Tensor):
        heat = take(heat[:, None].expand(mask.shape), positions)
    sampled = sample_codes(logits, take(noise, positions), heat)
    tokens = torch.where(mask, put(masked_tokens, positions, sampled), masked_tokens)
    return Proposal(tokens, mask, labels, seeds, step, positions, logits, features, temperature)


def sample_codes(logits: Tensor, uniforms: Tensor, temperature: float | Tensor = 1.0) -> Tensor:
    """Sample codes by inverse CDF, (...) int64. This needs one uniform per token instead of one Gumbel per code.

    logits: (..., codebook_size).
    uniforms: (...) in (0, 1).
    temperature: a number or a tensor like `uniforms`. 0 takes the most likely code. If several codes
    are most likely, a number takes the first of them, and a tensor any of them.
    """
    if isinstance(temperature, Tensor):
        temperature = temperature[..., None].clamp(min=COLDEST)
    elif temperature < 0:
        raise InputError(f"temperature is {temperature}; it must be 0 (greedy) or positive")
    elif temperature == 0:
        return logits.argmax(-1)
    logits = logits.float()
    if isinstance(temperature, Tensor) or temperature != 1:
        # The largest logit is subtracted first. Otherwise a temperature near 0 would produce infinities.
        logits = (logits - logits.amax(-1, keepdim=True)) / temperature
    cdf = logits.softmax(-1).cumsum(-1)
    # The last entry is 1 only up to rounding. `right` skips codes of probability 0, whose entry equals the one before.
    threshold = uniforms * cdf[..., -1]
    return torch.searchsorted(cdf, threshold[..., None], right=True)[..., 0].clamp(max=logits.shape[-1] - 1)


def _hidden_first(mask: Tensor) -> Tensor:
    """Return the positions (b, n), the hidden ones first, each group in order."""
    return (~mask).to(torch.uint8).argsort(dim=1, stable=True)
