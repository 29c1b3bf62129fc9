"""Every random number of the package: pure functions of integers.

Nothing is drawn in sequence. An image gets the same noise alone or in a batch, on any rank, device or number of threads, and
skipping a step moves nothing. Most numbers come from Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", 2011), computed in int64, which is exact on every device. Its counter has four 32-bit words and its key two; the key
is a seed, and `Use` keeps the streams of one seed apart.
"""

from collections.abc import Sequence
from enum import IntEnum
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokencritic.errors import InputError

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF

_CROP_BLOCKS = 6  # of four uniforms each, per image and pass


class Use(IntEnum):
    """What a random number is for: the third and fourth word of the counter, as low and high half.

    Different uses of one seed are independent. The values are part of the results: keep them.
    """

    DRAW = 0  # which code a hidden token gets
    SELECT = 1  # selection noise and random orders
    MASK = 2  # which tokens a training mask hides
    RATIO = 3  # how many it hides
    DROP_LABEL = 4  # whether training hides the label
    PREVIOUS = 5  # how many tokens the mask before it hid, for a critic that reads it
    LATER = 6  # how many tokens the masks after it hide, for an inline critic
    REMASK = 7  # which tokens the last of them hides
    CROP = 1 << 32  # crops and flips of training images
    DERIVE = 2 << 32  # seeds made from seeds


def check_seed(seed: int, name: str = "seed") -> None:
    """Raises InputError unless 0 <= seed < 2^63."""
    if not 0 <= seed < 2**63:
        raise InputError(f"{name} is {seed}; it must be an integer from 0 to 2^63 - 1")


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


def _words(seeds: Tensor, use: Use, first: Any, second: int, third: Any = 0) -> tuple[Tensor, ...]:
    """Four random words for each seed and each value of the counter's first and third word; all broadcast."""
    counter = (first, second, (int(use) & _WORD) + third, int(use) >> 32)
    tensors = tuple(
        word if isinstance(word, Tensor) else torch.full((), word, dtype=torch.int64, device=seeds.device)
        for word in counter
    )
    return philox(tensors, (seeds & _WORD, seeds >> 32 & _WORD))


def uniforms(seeds: Tensor, count: int, use: Use, step: int = 0) -> Tensor:
    """Independent uniforms for each image. seeds: (b,) int64. Returns (b, count) float32 in the open interval (0, 1)."""
    blocks = torch.arange((count + 3) // 4, device=seeds.device)[None]
    words = torch.stack(_words(seeds[:, None], use, blocks, step), dim=-1).flatten(1)[:, :count]
    # 23 bits and a half: exact in float32, and never 0 or 1, so logarithms of it are finite.
    return ((words >> 9).float() + 0.5) * 2.0**-23


def derived_seeds(seeds: Tensor, first: int, second: int) -> Tensor:
    """Other seeds for the same images, made of two numbers. seeds: (b,) int64. Returns (b,) int64 from 0 to 2^63 - 1."""
    high, low, *_ = _words(seeds, Use.DERIVE, first, second)
    return ((high >> 1) << 32) | low


def resampling_seeds(seeds: Tensor) -> Tensor:
    """Seeds (b,) to resample tokens of existing images.

    An image that was sampled with the same seed would meet the noise it was made with, and its tokens would come back.
    """
    return derived_seeds(seeds, 0, 1)


def candidate_seeds(seeds: Tensor, candidate: int) -> Tensor:
    """The seed of every image's candidate of one number, for rejection sampling. seeds: (b,) int64. Returns (b,) int64.

    Candidate 0 has the image's own seed: it is the image that is made without rejection.
    """
    return seeds if candidate == 0 else derived_seeds(seeds, candidate, 0)


def crop_uniforms(indices: Sequence[int] | np.ndarray, seed: int, pass_number: int) -> np.ndarray:
    """Uniforms for the crops and flips of some examples in one pass: (b, 24) in (0, 1).

    Each row is a pure function of (index, seed, pass_number).
    """
    check_seed(seed)
    numbers = torch.as_tensor(np.asarray(indices, np.int64))[:, None]
    blocks = torch.arange(_CROP_BLOCKS)[None]
    words = _words(torch.tensor(seed), Use.CROP, numbers, pass_number, blocks)
    return ((torch.stack(words, dim=-1).flatten(1).double() + 0.5) * 2.0**-32).numpy()


def example_seeds(seed: int, step: int, rows: Tensor) -> Tensor:
    """A seed for each training example of a step, (b,) int64: the same however examples are distributed over ranks."""
    # splitmix64 in wrapping 64-bit arithmetic; numpy's, because torch has no unsigned shifts.
    with np.errstate(over="ignore"):
        mixed = rows.cpu().numpy().astype(np.uint64)
        for word in (seed, step):
            mixed = (mixed ^ np.uint64(word)) + np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed = mixed ^ (mixed >> np.uint64(31))
    return torch.from_numpy((mixed >> np.uint64(1)).astype(np.int64)).to(rows.device)


def permutation(seed: int, epoch: int, count: int) -> np.ndarray:
    """The order of `count` training examples in an epoch, (count,) int64."""
    # Sorting the raw words gives the same order in every version of numpy; its shuffles do not promise that.
    words = np.random.Philox(key=np.array([seed, epoch], np.uint64)).random_raw(count)
    return words.argsort(kind="stable")


def torch_rng(seed: int) -> torch.Generator:
    """torch's own sequential generator on the CPU, where a library function takes nothing else."""
    return torch.Generator().manual_seed(seed)
