"""The exact output distribution of the samplers on a small `MarkovWorld`, by walking through everything that can happen.

Written from the paper's pseudocode in plain Python, sharing nothing with the package but the world's chain and, for
Algorithm 2, the critic's scores.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise, permutations, product

HIDDEN = None
Image = tuple[int, ...]


def joint(initial: list[float], transition: list[list[float]], n: int) -> dict[Image, float]:
    """p(x) of every image."""
    states = range(len(initial))
    return {
        image: initial[image[0]] * math.prod(transition[a][b] for a, b in pairwise(image))
        for image in product(states, repeat=n)
    }


def completions(truth: dict[Image, float], masked: tuple, temperature: float) -> dict[Image, tuple[float, list[float]]]:
    """Each way to fill in the hidden tokens independently: its probability, and each sampled token's p at temperature 1."""
    agreeing = {x: p for x, p in truth.items() if all(m in (HIDDEN, a) for m, a in zip(masked, x, strict=True))}
    total, states = sum(agreeing.values()), sorted({x[0] for x in truth})
    marginals = [[sum(p for x, p in agreeing.items() if x[j] == s) / total for s in states] for j in range(len(masked))]
    tempered = [[p ** (1 / temperature) for p in row] for row in marginals]
    result = {}
    for image in product(*[states if m is HIDDEN else [m] for m in masked]):
        hidden = [j for j, m in enumerate(masked) if m is HIDDEN]
        probability = math.prod(tempered[j][image[j]] / sum(tempered[j]) for j in hidden)
        result[image] = probability, [marginals[j][image[j]] for j in hidden]
    return result


def num_hidden(n: int, steps: int, done: int) -> int:
    """ceil(n cos(pi/2 done/steps)), exact where the cosine is a round number."""
    return math.ceil(round(n * math.cos(math.pi / 2 * done / steps), 9))


def algorithm_2(
    truth: dict[Image, float],
    critic: Callable[[Image], list[float]],
    n: int,
    steps: int,
    a: float = 0.0,
    b: float = 1.0,
) -> dict[Image, float]:
    """Token-Critic without selection noise, at temperature a t/T + b."""
    states = {(HIDDEN,) * n: 1.0}
    for t in range(steps, 0, -1):
        following: dict[tuple, float] = defaultdict(float)
        k = num_hidden(n, steps, steps - t + 1)
        for masked, weight in states.items():
            for image, (probability, _) in completions(truth, masked, a * t / steps + b).items():
                scores = critic(image)
                worst = set(sorted(range(n), key=lambda j: (scores[j], j))[:k])
                following[tuple(HIDDEN if j in worst else x for j, x in enumerate(image))] += weight * probability
        states = following
    return dict(states)


def maskgit(truth: dict[Image, float], n: int, steps: int, noise: float) -> dict[Image, float]:
    """MaskGIT: log p + noise (1 - (i + 1)/T) Gumbel; the tokens kept are sampled without replacement by p^(1/scale)."""
    states = {(HIDDEN,) * n: 1.0}
    for i in range(steps):
        following: dict[tuple, float] = defaultdict(float)
        scale = noise * (1 - (i + 1) / steps)
        for masked, weight in states.items():
            hidden = [j for j, m in enumerate(masked) if m is HIDDEN]
            keep = len(hidden) - num_hidden(n, steps, i + 1)
            for image, (probability, confidences) in completions(truth, masked, 1.0).items():
                confidence = dict(zip(hidden, confidences, strict=True))
                for order in permutations(hidden, keep):
                    chosen = _chance(order, confidence, scale)
                    if chosen:
                        after = tuple(HIDDEN if j in hidden and j not in order else x for j, x in enumerate(image))
                        following[after] += weight * probability * chosen
        states = following
    return dict(states)


def _chance(order: tuple[int, ...], confidence: dict[int, float], scale: float) -> float:
    """That Gumbel noise of this scale ranks exactly `order` first. With none: 1 for the order of falling confidence."""
    if scale == 0:
        best = sorted(confidence, key=lambda j: (-confidence[j], -j))
        return float(tuple(best[: len(order)]) == order)
    weights = {j: p ** (1 / scale) for j, p in confidence.items()}
    chance, left = 1.0, sum(weights.values())
    for j in order:
        chance *= weights[j] / left
        left -= weights[j]
    return chance
