"""Fill the hidden tokens: the one place where codes are drawn, in sampling and in critic training alike."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from tokencritic.errors import InputError
from tokencritic.masking import put, take
from tokencritic.randomness import Use, uniforms

_COLDEST = 1e-6  # in a tensor of temperatures, for 0


class AnyGenerator(Protocol):
    """Any masked generator: a callable from partly hidden tokens to logits. Nothing to inherit from."""

    def __call__(self, masked_tokens: Tensor, labels: Tensor | None, /) -> Tensor:
        """masked_tokens: (b, n) int64 with `mask_id` where hidden; labels: (b,) int64 or None.

        Returns (b, n, codebook_size) logits.
        """
        ...


@runtime_checkable
class SelectiveGenerator(Protocol):
    """A generator that can leave out the positions nobody asked for: optional, and faster."""

    def logits_at(self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor) -> Tensor:
        """positions: (b, k) int64 indices -> (b, k, codebook_size); or a (b, n) bool mask -> (mask.sum(), codebook_size)."""
        ...


@dataclass(frozen=True)
class Step:
    """One round of propose, score, remask.

    index: names the step's noise. time, time_after: the paper's t/T when the step begins and (t-1)/T when it ends.
    num_masked: how many tokens each image has hidden when the step ends.
    """

    index: int = 0
    time: float = 1.0
    time_after: float = 0.0
    num_masked: tuple[int, ...] = ()


@dataclass(frozen=True)
class Proposal:
    """A complete image as the generator filled it in: what a scorer judges (x-hat_0 in the paper).

    tokens: (b, n) int64, nothing hidden. mask: (b, n) bool, True where the token has just been drawn.
    labels: (b,) int64 or None. seeds: (b,) int64, one random stream per image. step: where in the loop this is.
    positions, logits: where logits were computed and what they are (see `SelectiveGenerator`); None for given tokens.
    """

    tokens: Tensor
    mask: Tensor
    labels: Tensor | None
    seeds: Tensor
    step: Step = Step()
    positions: Tensor | None = None
    logits: Tensor | None = None

    def log_probs(self) -> Tensor:
        """log p_theta of each token just drawn, at temperature 1; +inf where the token was already there. (b, n) float32."""
        if self.logits is None or self.positions is None:
            raise InputError("these tokens were given, not drawn: the generator's confidence in them is not known")
        logits = self.logits.float()
        drawn = take(self.tokens, self.positions)
        values = logits.gather(-1, drawn[..., None])[..., 0] - logits.logsumexp(-1)
        kept = torch.full(self.tokens.shape, torch.inf, device=self.tokens.device)
        return torch.where(self.mask, put(kept, self.positions, values), kept)

    def selection_uniforms(self) -> Tensor:
        """This step's uniforms for choosing what to hide: (b, n) float32 in (0, 1)."""
        return uniforms(self.seeds, self.tokens.shape[1], Use.SELECT, self.step.index)


@torch.no_grad()
def propose(
    generator: AnyGenerator | SelectiveGenerator,
    masked_tokens: Tensor,
    mask: Tensor,
    labels: Tensor | None,
    seeds: Tensor,
    *,
    step: Step | None = None,
    temperature: float | Tensor = 1.0,
    most_masked: int | None = None,
) -> Proposal:
    """Algorithm 2 line 4 (and Algorithm 1 line 6): x-hat_0 ~ p_theta(x_0 | x_t, c), visible tokens copied.

    masked_tokens: (b, n) int64; mask: (b, n) bool, True = hidden; labels: (b,) or None; seeds: (b,) int64.
    temperature: divides the logits; 0 takes the likeliest code. One number, or (b,), one for each image.
    most_masked: the largest number of hidden tokens in an image, if known: saves the host from waiting for the mask.
    """
    step = step or Step()
    positions = mask if most_masked is None else _hidden_first(mask)[:, :most_masked]
    logits = logits_at(generator, masked_tokens, labels, positions)
    noise = uniforms(seeds, mask.shape[1], Use.DRAW, step.index)
    if isinstance(temperature, Tensor):
        temperature = take(temperature[:, None].expand(mask.shape), positions)
    drawn = draw(logits, take(noise, positions), temperature)
    tokens = torch.where(mask, put(masked_tokens, positions, drawn), masked_tokens)
    return Proposal(tokens, mask, labels, seeds, step, positions, logits)


def draw(logits: Tensor, uniforms: Tensor, temperature: float | Tensor = 1.0) -> Tensor:
    """A categorical draw by inverse CDF: one uniform per token, not one Gumbel per code.

    logits: (..., codebook_size), uniforms: (...) in (0, 1). Returns (...) int64. Temperature 0: the likeliest code, and
    the first of equals. A tensor of temperatures has the shape of `uniforms`; there, 0 may take any of equals.
    """
    if isinstance(temperature, Tensor):
        temperature = temperature[..., None].clamp(min=_COLDEST)
    elif temperature < 0:
        raise InputError(f"temperature is {temperature}; it must be 0 (greedy) or positive")
    elif temperature == 0:
        return logits.argmax(-1)
    logits = logits.float()
    if isinstance(temperature, Tensor) or temperature != 1:
        # Less the largest first: a temperature near 0 would make infinities otherwise.
        logits = (logits - logits.amax(-1, keepdim=True)) / temperature
    cdf = logits.softmax(-1).cumsum(-1)
    # The last entry is 1 only up to rounding. `right` skips codes of probability 0, whose entry equals the one before.
    threshold = uniforms * cdf[..., -1]
    return torch.searchsorted(cdf, threshold[..., None], right=True)[..., 0].clamp(max=logits.shape[-1] - 1)


def logits_at(
    generator: AnyGenerator | SelectiveGenerator, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor
) -> Tensor:
    """Logits at some positions, from a generator that can select them or, by throwing the rest away, from any."""
    if isinstance(generator, SelectiveGenerator):
        return generator.logits_at(masked_tokens, labels, positions)
    logits = generator(masked_tokens, labels)
    if logits.ndim != 3 or logits.shape[:2] != masked_tokens.shape:
        came, right = tuple(logits.shape), (*masked_tokens.shape, "codebook_size")
        raise InputError(f"the generator returned logits of shape {came}; expected {right}")
    return take(logits, positions)


@contextmanager
def evaluating(*models: Any) -> Iterator[None]:
    """Switch dropout off in those that are torch modules, and put back the mode they came in."""
    parts = [part for model in models if isinstance(model, nn.Module) for part in model.modules() if part.training]
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part in parts:
            part.training = True


def _hidden_first(mask: Tensor) -> Tensor:
    """Positions (b, n) with the hidden ones in front, each group in order."""
    return (~mask).to(torch.uint8).argsort(dim=1, stable=True)
