"""One random stream per image: every uniform is a pure function of (seed, use, step, position).

Nothing is drawn in sequence, so an image gets the same noise alone or in a batch, on any rank, device or number of
threads, and a step that is skipped moves nothing. The function is Philox4x32-10 (Salmon et al., "Parallel random numbers:
as easy as 1, 2, 3", 2011), in int64 arithmetic because that is exact on every device.
"""

from collections.abc import Sequence
from enum import IntEnum
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from tokencritic.errors import InputError

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF
_DERIVED = 2  # the last word of the counter: 0 is that of `uniforms`, 1 that of crops


class Use(IntEnum):
    """What a uniform is for. Different uses of one seed are independent; the numbers are part of the results, keep them."""

    DRAW = 0  # which code a hidden token gets
    SELECT = 1  # selection noise and random orders
    MASK = 2  # which tokens a training mask hides
    RATIO = 3  # how many it hides
    DROP_LABEL = 4  # whether training hides the label
    PREVIOUS = 5  # how many tokens the mask before it hid, for a critic that reads it


def as_seeds(seeds: int | Sequence[int] | Tensor, count: int, device: torch.device | str | None = None) -> Tensor:
    """One int64 seed per image, shape (count,): a single integer s stands for s, s + 1, ..., s + count - 1."""
    if isinstance(seeds, int | Integral):
        seeds = range(int(seeds), int(seeds) + count)
    values: list[Any] = seeds.tolist() if isinstance(seeds, Tensor) else list(seeds)
    if len(values) != count:
        raise InputError(f"seeds has {len(values)} entries for {count} images; give one per image, or one integer")
    if not all(isinstance(value, int | Integral) and 0 <= int(value) < 2**63 for value in values):
        raise InputError(f"seeds holds {values[:3]}...; each must be an integer from 0 to 2^63 - 1")
    return torch.tensor([int(value) for value in values], dtype=torch.int64, device=device)


def philox(counter: tuple[Tensor, ...], key: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Philox4x32-10. counter: four, key: two int64 tensors holding 32-bit words, of shapes that broadcast. Returns four."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # The products pass 2^63 and wrap; as bit patterns they are still the exact 64-bit products.
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> 32 & _WORD) ^ c1 ^ k0, p1 & _WORD, (p0 >> 32 & _WORD) ^ c3 ^ k1, p0 & _WORD
        k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
    return c0, c1, c2, c3


def uniforms(seeds: Tensor, count: int, use: Use, step: int = 0) -> Tensor:
    """Independent uniforms for each image. seeds: (b,) int64. Returns (b, count) float32 in the open interval (0, 1)."""
    blocks = torch.arange((count + 3) // 4, device=seeds.device)[None]
    key = (seeds & _WORD)[:, None], (seeds >> 32 & _WORD)[:, None]
    fixed = torch.full_like(blocks, step), torch.full_like(blocks, use), torch.zeros_like(blocks)
    words = torch.stack(philox((blocks, *fixed), key), dim=-1).flatten(1)[:, :count]
    # 23 bits and a half: exact in float32, and never 0 or 1, so logarithms of it are finite.
    return ((words >> 9).float() + 0.5) * 2.0**-23


def derived_seeds(seeds: Tensor, first: int, second: int) -> Tensor:
    """Other seeds for the same images, made of two numbers. seeds: (b,) int64. Returns (b,) int64 from 0 to 2^63 - 1.

    They are the first two words of Philox4x32-10 at counter (first, second, 0, 2): 31 bits of one, 32 of the other.
    """
    counter = tuple(torch.full_like(seeds, word) for word in (first, second, 0, _DERIVED))
    high, low, *_ = philox(counter, (seeds & _WORD, seeds >> 32 & _WORD))
    return ((high >> 1) << 32) | low


def redraw_seeds(seeds: Tensor) -> Tensor:
    """Seeds (b,) to draw tokens of existing images again.

    An image that was sampled with the same seed would else meet the noise it was made with, and tokens would come back.
    """
    return derived_seeds(seeds, 0, 1)
