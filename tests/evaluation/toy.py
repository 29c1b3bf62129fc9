"""A toy pipeline with a known distribution: the exact Markov world as images of nine flat patches, and its features."""

import numpy as np
import torch
from markov_world import MarkovWorld

from tokencritic import TokenCriticPipeline
from tokencritic.evaluation.features import Features
from tokencritic.sampling.settings import SamplingSettings

SIDE, PATCH, CLASSES = 3, 2, 2
STEPS = 15  # with the cosine schedule, one of nine tokens at a time


class World(MarkovWorld):
    """The exact generator, which counts the images of its calls."""

    def __call__(self, masked_tokens, labels):
        self.__dict__["asked"] = self.__dict__.get("asked", 0) + len(masked_tokens)
        return super().__call__(masked_tokens, labels)

    def fingerprint(self):
        return f"world {self.initial.sum(1).tolist()} {self.transition.flatten().tolist()} {self.error}"


class Bayes:
    """The exact critic."""

    def __init__(self, world):
        self.world = world

    def __call__(self, tokens, labels):
        return self.world.critic(tokens, labels)

    def fingerprint(self):
        return f"critic of {self.world.fingerprint()}"


class Painter:
    """A tokenizer: each token is a flat patch, black or white."""

    image_size, channels, num_tokens, codebook_size, grid = SIDE * PATCH, 1, SIDE * SIDE, 2, (SIDE, SIDE)

    def encode(self, images):
        return images[:, 0, ::PATCH, ::PATCH].flatten(1).round().long()

    def decode(self, tokens):
        patches = tokens.view(-1, 1, SIDE, SIDE).float()
        return patches.repeat_interleave(PATCH, 2).repeat_interleave(PATCH, 3)

    def fingerprint(self):
        return "painter"


class Pairs(Features):
    """Features: the tokens and the products of neighbours in the chain, with exact class probabilities."""

    name, fingerprint, dimension = "pairs", "pairs 1", 2 * SIDE * SIDE - 1
    gives_probabilities = True

    def __init__(self, world):
        super().__init__()
        self.world, self.seen, self.fail_after = world, 0, None

    def extract(self, images):
        if self.fail_after is not None and self.seen + len(images) > self.fail_after:
            raise KeyboardInterrupt
        self.seen += len(images)
        pixels = images.permute(0, 3, 1, 2).float() / 255 if images.dtype == torch.uint8 else images.float()
        tokens = pixels[:, 0, ::PATCH, ::PATCH].flatten(1).round()
        likelihood = self.world.probabilities[:, self.world.row(tokens.long())].T
        probabilities = (likelihood / likelihood.sum(1, keepdim=True)).float()
        features = torch.cat([tokens, tokens[:, 1:] * tokens[:, :-1]], 1)
        return {"features": features, "probabilities": probabilities}


def make_world(error=0.0):
    known = MarkovWorld.random(SIDE * SIDE, 2, CLASSES, seed=5)  # neighbours depend strongly on each other
    return World(known.initial, known.transition, known.num_tokens, error)


def make_pipe(world=None, **defaults):
    world = world or make_world()
    settings = SamplingSettings(**{"steps": STEPS, **defaults})
    return TokenCriticPipeline(Painter(), world, Bayes(world), defaults=settings)


def true_tokens(world, count, seed=0):
    """Exact samples (count, n) and their labels, which cycle through the classes."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    images = world.sequences[world.complete]
    tokens = torch.empty(count, world.num_tokens, dtype=torch.int64)
    for label in range(CLASSES):
        drawn = torch.multinomial(world.truth(label), count, replacement=True, generator=rng)
        tokens[labels == label] = images[drawn][labels == label]
    return tokens, labels


def write_truth(file, world, count, seed=0):
    """The same as an .npz data set."""
    tokens, labels = true_tokens(world, count, seed)
    pixels = (Painter().decode(tokens) * 255).byte().permute(0, 2, 3, 1).numpy()
    np.savez(file, images=pixels, labels=labels.numpy())
    return file
