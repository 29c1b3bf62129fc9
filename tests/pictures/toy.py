"""A toy tokenizer with known pictures: each token is one flat square of the image."""

import numpy as np
import torch

from tokencritic.contracts import ImageTokenizer
from tokencritic.plan import Step
from tokencritic.sampling.trace import Trace
from tokencritic.scoring import Proposal

NUM_TOKENS = 12


class ToyTokenizer(ImageTokenizer):
    """A grid of 3 x 4 tokens of 4 x 4 pixels; code v is the colour (10 v, 5 v, 255 - 10 v)."""

    grid = (3, 4)
    image_size, margin = 16, 0
    batches: list[int]

    def __init__(self):
        self.batches = []

    def decode(self, tokens):
        self.batches.append(len(tokens))
        colours = torch.stack([10 * tokens, 5 * tokens, 255 - 10 * tokens], 1).float() / 255
        return colours.reshape(-1, 3, 3, 4).repeat_interleave(4, 2).repeat_interleave(4, 3)


def toy_pixels(tokens):
    """The expected pixels of one image: (12, 16, 3) uint8."""
    colours = np.stack([10 * tokens, 5 * tokens, 255 - 10 * tokens], -1).astype(np.uint8)
    return colours.reshape(3, 4, 3).repeat(4, 0).repeat(4, 1)


def toy_trace(num_images=2, indices=(1, 2, 3, 4), seed=0):
    """A trace of random tokens and scores, with fewer hidden tokens at each step and some re-masked."""
    rng = torch.Generator().manual_seed(seed)
    trace, before = Trace(), torch.ones(num_images, NUM_TOKENS, dtype=torch.bool)
    for place, index in enumerate(indices):
        tokens = torch.randint(0, 25, (num_images, NUM_TOKENS), generator=rng)
        scores = torch.rand(num_images, NUM_TOKENS, generator=rng)
        last = place == len(indices) - 1
        hidden = scores.argsort(1).argsort(1) < (0 if last else 8 - 2 * place)
        proposal = Proposal(tokens, before, None, torch.arange(num_images), Step(index, 1 - index / 10))
        trace(proposal, None if last else scores, hidden)
        before = hidden
    return trace


def places(picture, panel):
    """Return the positions [(x, y), ...] of a panel in a picture. Both are pictures or arrays (h, w, 3)."""
    picture, panel = np.asarray(picture), np.ascontiguousarray(panel)
    (height, width), across = panel.shape[:2], picture.shape[1]
    data, first_row, found, at = picture.tobytes(), panel[0].tobytes(), [], -1
    while (at := data.find(first_row, at + 1)) >= 0:
        y, x = divmod(at // 3, across)
        if at % 3 == 0 and np.array_equal(picture[y : y + height, x : x + width], panel):
            found.append((x, y))
    return found


def count(picture, colour):
    """How many pixels have exactly this colour."""
    return int((np.asarray(picture.convert("RGB")) == np.array(colour)).all(-1).sum())
