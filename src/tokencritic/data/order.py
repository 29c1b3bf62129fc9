"""In which order training sees the examples: endless, shuffled anew each epoch, resumable from three integers.

The examples of all epochs stand in one long line; step s takes places s * batch_size to (s + 1) * batch_size of it, across
the ends of epochs. Ranks share a step's examples, so the order does not depend on how many there are.
"""

from functools import lru_cache

import numpy as np

from tokencritic.errors import InputError, check_at_least
from tokencritic.randomness import check_seed, permutation


def hold_out(num_rows: int, num_images: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Hold out a share of the images, evenly spread, so that sorted classes all have theirs.

    Rows r and r + num_images show the same image: it is on one side with all its rows.
    Returns the rows to train on and the rows held out, both ascending int64.
    """
    rows = np.arange(num_rows)
    if not share:
        return rows, rows[:0]
    every = max(2, round(1 / share))
    held_out = rows % num_images % every == every - 1
    if held_out.all() or not held_out.any():
        raise InputError(f"held_out is {share}, which leaves one side of {num_images} images empty; 0 holds out none")
    return rows[~held_out], rows[held_out]


def spaced(rows: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the rows, evenly spaced."""
    return rows[np.linspace(0, len(rows), min(most, len(rows)), endpoint=False).astype(int)]


class ExampleOrder:
    """The examples of each step: a pure function of (seed, step), for `num_examples` in batches of `batch_size`."""

    def __init__(self, num_examples: int, batch_size: int, seed: int = 0) -> None:
        check_at_least(1, num_examples=num_examples, batch_size=batch_size)
        check_seed(seed)
        self.num_examples, self.batch_size, self.seed = num_examples, batch_size, seed
        self._permutation = lru_cache(maxsize=1)(lambda epoch: permutation(seed, epoch, num_examples))

    def batch(self, step: int) -> np.ndarray:
        """The examples of a step: int64 (batch_size,)."""
        epochs, places = np.divmod(step * self.batch_size + np.arange(self.batch_size), self.num_examples)
        return np.concatenate([self._permutation(int(epoch))[places[epochs == epoch]] for epoch in np.unique(epochs)])
