"""The order of training examples: endless, shuffled in each epoch, and a pure function of (seed, step).

The epochs form one sequence of examples. Step s takes the positions s * batch_size to (s + 1) * batch_size - 1, which
may cross the end of an epoch. Ranks split the examples of a step, so the order does not depend on their number.
"""

from functools import lru_cache

import numpy as np

from tokencritic.errors import InputError, check_at_least, check_seed
from tokencritic.randomness import permutation


def hold_out(num_rows: int, num_images: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Split rows into those to train on and those held out, both ascending int64.

    share: the share of images to hold out, rounded to one in k; 0 holds out none. Held-out images are evenly spaced, so
    that every class of a sorted data set has some.

    Rows r and r + num_images are crops of the same image. All crops of an image are on the same side.
    """
    rows = np.arange(num_rows)
    if not share:
        return rows, rows[:0]
    every = max(2, round(1 / share))
    held_out = rows % num_images % every == every - 1
    if held_out.all() or not held_out.any():
        raise InputError(f"held_out is {share}, which leaves one side of {num_images} images empty; choose 0 for none")
    return rows[~held_out], rows[held_out]


def spaced(rows: np.ndarray, most: int) -> np.ndarray:
    """Select at most `most` of the rows, evenly spaced."""
    return rows[np.linspace(0, len(rows), min(most, len(rows)), endpoint=False).astype(int)]


class ExampleOrder:
    """The examples of each training step, as a pure function of (seed, step)."""

    def __init__(self, num_examples: int, batch_size: int, seed: int = 0) -> None:
        check_at_least(1, num_examples=num_examples, batch_size=batch_size)
        check_seed(seed)
        self.num_examples, self.batch_size, self.seed = num_examples, batch_size, seed
        self._permutation = lru_cache(maxsize=2)(lambda epoch: permutation(seed, epoch, num_examples))

    def batch(self, step: int) -> np.ndarray:
        """Return the examples of a step: int64 (batch_size,), in [0, num_examples)."""
        epochs, places = np.divmod(step * self.batch_size + np.arange(self.batch_size), self.num_examples)
        return np.concatenate([self._permutation(int(epoch))[places[epochs == epoch]] for epoch in np.unique(epochs)])
