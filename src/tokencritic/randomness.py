"""All random numbers of the package, as pure functions of integers.

There is no sequential state. An image gets the same noise alone or in a batch, on any rank, device or number of
threads. Skipping a step does not change the noise of other steps.

Most numbers come from Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). It is
computed in int64, which is exact on every device. The counter has four 32-bit words. The key has two, which are the
seed. `Use` separates the streams of one seed.
"""

from collections.abc import Sequence
from enum import IntEnum
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokencritic.errors import InputError, check_seed

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF

_CROP_BLOCKS = 6  # blocks of four uniforms for each crop of an image


class Use(IntEnum):
    """The purpose of a random number: the third word of the counter (low half) and the fourth (high half).

    Different uses of one seed are independent. Changing a value changes results.
    """

    DRAW = 0  # which code a hidden token gets
    SELECT = 1  # selection noise and random orders
    MASK = 2  # which tokens a training mask hides
    RATIO = 3  # how many tokens a training mask hides
    DROP_LABEL = 4  # whether training replaces the label by the null class
    PREVIOUS = 5  # how many tokens the previous mask hides, for a critic that reads the mask
    LATER = 6  # how many tokens the later masks hide, for an inline critic
    REMASK = 7  # which tokens the last mask hides, for an inline critic
    CROP = 1 << 32  # crops and flips of training images
    DERIVE = 2 << 32  # seeds derived from seeds


def as_seeds(seeds: int | Sequence[int] | Tensor, count: int, device: torch.device | str | None = None) -> Tensor:
    """Return one seed per image: (count,) int64. A single integer s gives s, s + 1, ..., s + count - 1."""
    if isinstance(seeds, int | Integral):
        seeds = range(int(seeds), int(seeds) + count)
    values: list[Any] = seeds.tolist() if isinstance(seeds, Tensor) else list(seeds)
    if len(values) != count:
        raise InputError(f"seeds has {len(values)} entries for {count} images; give one per image, or one integer")
    if not all(isinstance(value, int | Integral) and 0 <= int(value) < 2**63 for value in values):
        raise InputError(f"seeds holds {values[:3]}...; each must be an integer from 0 to 2^63 - 1")
    return torch.tensor([int(value) for value in values], dtype=torch.int64, device=device)


def philox(counter: tuple[Tensor, ...], key: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Compute Philox4x32-10. Returns four int64 tensors of 32-bit words.

    counter, key: four and two int64 tensors of 32-bit words, of shapes that broadcast.
    """
    c0, c1, c2, c3, k0, k1 = torch.broadcast_tensors(*counter, *key)
    # Both halves of a round are one operation on pairs, because a GPU has to start each operation of each step.
    even, odd, keys = torch.stack([c0, c2]), torch.stack([c1, c3]), torch.stack([k0, k1])
    multipliers, steps = (
        torch.stack([torch.full_like(k0, word) for word in pair]) for pair in (_MULTIPLIERS, _KEY_STEPS)
    )
    for _ in range(_ROUNDS):
        # The products overflow int64 and wrap around. Their bit patterns are still the exact 64-bit products.
        products = (even * multipliers).flip(0)
        even, odd = ((products >> 32) ^ odd ^ keys) & _WORD, products & _WORD
        keys = keys + steps
    return even[0], odd[0], even[1], odd[1]


def _words(seeds: Tensor, use: Use, first: Any, second: int, third: Any = 0) -> tuple[Tensor, ...]:
    """Return four random words for each seed and each value of the counter's first and third word, broadcast."""
    counter = (first, second, (int(use) & _WORD) + third, int(use) >> 32)
    tensors = tuple(
        word if isinstance(word, Tensor) else torch.full((), word, dtype=torch.int64, device=seeds.device)
        for word in counter
    )
    return philox(tensors, (seeds & _WORD, seeds >> 32 & _WORD))


def uniforms(seeds: Tensor, count: int, use: Use, step: int = 0) -> Tensor:
    """Return independent uniforms for each image: (b, count) float32 in the open interval (0, 1).

    seeds: (b,) int64.
    """
    blocks = torch.arange((count + 3) // 4, device=seeds.device)[None]
    words = torch.stack(_words(seeds[:, None], use, blocks, step), dim=-1).flatten(1)[:, :count]
    # 23 bits plus one half are exact in float32 and never 0 or 1, so that logarithms are finite.
    return ((words >> 9).float() + 0.5) * 2.0**-23


def derived_seeds(seeds: Tensor, first: int | Tensor, second: int) -> Tensor:
    """Derive other seeds for the same images from two numbers: (b,) int64 -> (b,) int64 in [0, 2^63).

    first: one number for all images, or (b,).
    """
    high, low, *_ = _words(seeds, Use.DERIVE, first, second)
    return ((high >> 1) << 32) | low


def resampling_seeds(seeds: Tensor) -> Tensor:
    """Return seeds (b,) for resampling tokens of existing images.

    With its own seed, an image would get the noise that it was sampled with, and the same tokens again.
    """
    return derived_seeds(seeds, 0, 1)


def candidate_seeds(seeds: Tensor, candidates: int | Tensor) -> Tensor:
    """Return the seed of each image's candidate in rejection sampling: (b,) int64 -> (b,) int64.

    candidates: the index of the candidate, one for all images or (b,). Candidate 0 has the image's own seed and is the
    image without rejection.
    """
    numbers = torch.as_tensor(candidates, device=seeds.device)
    return torch.where(numbers == 0, seeds, derived_seeds(seeds, numbers, 0))


def crop_uniforms(indices: Sequence[int] | np.ndarray, seed: int, crop_number: int) -> np.ndarray:
    """Return uniforms for the crops and flips of images: (b, 24) float64 in (0, 1).

    Each row is a pure function of (index, seed, crop_number).
    """
    check_seed(seed)
    numbers = torch.as_tensor(np.asarray(indices, np.int64))[:, None]
    blocks = torch.arange(_CROP_BLOCKS)[None]
    words = _words(torch.tensor(seed), Use.CROP, numbers, crop_number, blocks)
    return ((torch.stack(words, dim=-1).flatten(1).double() + 0.5) * 2.0**-32).numpy()


def example_seeds(seed: int, step: int, rows: Tensor) -> Tensor:
    """Return a seed for each training example of a step: (b,) int64. It does not depend on the ranks.

    rows: (b,) int64.
    """
    # splitmix64 in wrapping 64-bit arithmetic. NumPy is used because torch has no unsigned shifts.
    with np.errstate(over="ignore"):
        mixed = rows.cpu().numpy().astype(np.uint64)
        for word in (seed, step):
            mixed = (mixed ^ np.uint64(word)) + np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed = mixed ^ (mixed >> np.uint64(31))
    return torch.from_numpy((mixed >> np.uint64(1)).astype(np.int64)).to(rows.device)


def permutation(seed: int, epoch: int, count: int) -> np.ndarray:
    """Return the order of `count` training examples in an epoch: (count,) int64."""
    # Sorting raw words gives the same order in every version of NumPy. Its shuffles do not guarantee that.
    words = np.random.Philox(key=np.array([seed, epoch], np.uint64)).random_raw(count)
    return words.argsort(kind="stable")


def torch_rng(seed: int) -> torch.Generator:
    """Return torch's sequential generator on the CPU, for library functions that accept nothing else."""
    return torch.Generator().manual_seed(seed)
