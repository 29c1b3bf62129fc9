"""In which order training sees the examples: endless, shuffled anew each epoch, resumable from three integers.

The examples of all epochs stand in one long line; step s takes places s * batch_size to (s + 1) * batch_size of it, across
the ends of epochs. Ranks share a step's examples, so the order does not depend on how many there are.
"""

from typing import NamedTuple

import numpy as np

from tokencritic.errors import InputError
from tokencritic.randomness import check_seed, permutation


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
        check_seed(seed)
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
            self._shuffled, self._epoch = permutation(self.seed, epoch, self.num_examples), epoch
        return self._shuffled
