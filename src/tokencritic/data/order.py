"""In which order training sees the examples: endless, shuffled anew each epoch, resumable from three integers.

The examples of all epochs stand in one long line; step s takes places s * batch_size to (s + 1) * batch_size of it, across
the ends of epochs. Ranks share a step's examples, so the order does not depend on how many there are.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokencritic.data.tokens import TokenArrays
from tokencritic.errors import InputError


class Position(NamedTuple):
    """Where a reader stands: the next example is number `offset` of epoch `epoch` as shuffled by `seed`."""

    seed: int
    epoch: int
    offset: int


class Split(NamedTuple):
    """Rows to train on and rows held out, both ascending int64."""

    train: np.ndarray
    held_out: np.ndarray


def split_rows(num_rows: int, num_images: int, share: float) -> Split:
    """Hold out a share of the images, evenly spread, so that sorted classes all have theirs.

    Rows r and r + num_images show the same image: it is on one side with all its rows.
    """
    rows = np.arange(num_rows)
    if not share:
        return Split(rows, rows[:0])
    every = max(2, round(1 / share))
    held_out = rows % num_images % every == every - 1
    if held_out.all() or not held_out.any():
        raise InputError(f"held_out is {share}, which leaves one side of {num_images} images empty; 0 holds out none")
    return Split(rows[~held_out], rows[held_out])


class ExampleOrder:
    """The examples of each step: a pure function of (seed, step), for `num_examples` in batches of `batch_size`."""

    def __init__(self, num_examples: int, batch_size: int, seed: int = 0) -> None:
        if num_examples < 1 or batch_size < 1:
            raise InputError(f"num_examples is {num_examples}, batch_size is {batch_size}; both must be at least 1")
        if not 0 <= seed < 2**63:
            raise InputError(f"seed is {seed}; it must be an integer from 0 to 2^63 - 1")
        self.num_examples, self.batch_size, self.seed = num_examples, batch_size, seed
        self._epoch = -1
        self._shuffled = np.empty(0, np.int64)

    def batch(self, step: int) -> np.ndarray:
        """The examples of a step: int64 (batch_size,)."""
        return self.take(step * self.batch_size)

    def take(self, place: int) -> np.ndarray:
        """The batch that starts at any place of the line: int64 (batch_size,)."""
        if place < 0:
            raise InputError(f"the place to read from is {place}; it must be 0 or more")
        pieces, wanted = [], self.batch_size
        while wanted:
            epoch, offset = divmod(place, self.num_examples)
            piece = self._permutation(epoch)[offset : offset + wanted]
            pieces.append(piece)
            place, wanted = place + len(piece), wanted - len(piece)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _permutation(self, epoch: int) -> np.ndarray:
        if epoch != self._epoch:
            # Sorting the raw words gives the same order in every version of numpy; its shuffles do not promise that.
            words = np.random.Philox(key=np.array([self.seed, epoch], np.uint64)).random_raw(self.num_examples)
            self._shuffled, self._epoch = words.argsort(kind="stable"), epoch
        return self._shuffled


class TokenReader:
    """Endless batches of token arrays: (tokens int64 (b, n), labels int64 (b,), indices int64 (b,)).

    batch_size: of all ranks together; rank r of N gets the examples r, r + N, r + 2N, ... of each step.
    position: where to start, as an earlier reader's `position` gave it; its seed wins.
    """

    def __init__(
        self,
        arrays: TokenArrays,
        batch_size: int,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        *,
        position: Position | None = None,
    ) -> None:
        if not 0 <= rank < world_size:
            raise InputError(f"rank is {rank} of world_size {world_size}; it must lie in [0, world_size)")
        if batch_size % world_size:
            raise InputError(f"batch_size is {batch_size}; it must be a multiple of the {world_size} ranks")
        self.arrays, self.rank, self.world_size = arrays, rank, world_size
        self._tokens = arrays.tokens.view(np.ndarray)  # the map's own indexing is slower
        self._place = 0
        self.order = ExampleOrder(len(arrays), batch_size, seed)
        if position is not None:
            self.position = position

    @property
    def position(self) -> Position:
        """Where the next batch starts; the same on all ranks."""
        return Position(self.order.seed, *divmod(self._place, len(self.arrays)))

    @position.setter
    def position(self, position: Position) -> None:
        seed, epoch, offset = position
        if epoch < 0 or not 0 <= offset < len(self.arrays):
            raise InputError(f"position is {tuple(position)}; its offset must lie below the {len(self.arrays)} rows")
        self.order = ExampleOrder(len(self.arrays), self.order.batch_size, seed)
        self._place = epoch * len(self.arrays) + offset

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        return self

    def __next__(self) -> tuple[Tensor, Tensor, Tensor]:
        indices = self.order.take(self._place)[self.rank :: self.world_size]
        self._place += self.order.batch_size
        tokens = self._tokens.take(indices, axis=0).astype(np.int64)
        labels = self.arrays.labels.take(indices).astype(np.int64)
        return torch.from_numpy(tokens), torch.from_numpy(labels), torch.from_numpy(indices.copy())
