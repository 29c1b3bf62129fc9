"""A toy world with known distributions: images of a few tokens from a Markov chain.

The generator returns the exact conditional marginals and the critic the exact Bayes posterior, both by enumeration.
Samplers and scorers can be compared with the true distribution without training. Tables have one row per masked
sequence, (states + 1) ** num_tokens in total: 65,536 for 8 tokens of 3 states.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch
from torch import Tensor

from tokencritic.contracts import FeatureCritic, Features, MaskedGenerator, TokenCritic
from tokencritic.errors import InputError
from tokencritic.randomness import torch_rng


@dataclass(frozen=True, eq=False)
class MarkovWorld(MaskedGenerator):
    """A generator of images from one Markov chain per class.

    A chain has p(x) = initial[x_1] transition[x_1, x_2] ... transition[x_{n-1}, x_n].

    initial: (classes, states) float64, probabilities above 0.
    transition: (classes, states, states) float64, probabilities above 0.
    num_tokens: the number of tokens of an image.
    error: the share of uniform noise mixed into the generator's marginals.
    """

    initial: Tensor
    transition: Tensor
    num_tokens: int
    error: float = 0.0

    def __post_init__(self) -> None:
        num_classes, states = self.initial.shape
        rows = (states + 1) ** self.num_tokens
        if rows > 2**20:
            raise InputError(f"num_tokens is {self.num_tokens} and states is {states}; {rows} rows are too many")
        sizes = {"codebook_size": states, "mask_id": states, "num_classes": num_classes}
        vars(self).update(sizes | {"num_features": 1, "feature_width": 2})  # by vars, because the dataclass is frozen

    @classmethod
    def random(cls, num_tokens: int, states: int, classes: int = 1, seed: int = 0, error: float = 0.0) -> "MarkovWorld":
        """Make a world with random chains that are far from uniform."""
        logits = 1.5 * torch.randn(classes, states + 1, states, generator=torch_rng(seed), dtype=torch.float64)
        probabilities = logits.softmax(-1)
        return cls(probabilities[:, 0], probabilities[:, 1:], num_tokens, error)

    def __call__(self, masked_tokens: Tensor, labels: Tensor | None, /) -> Tensor:
        """Return the generator's logits, log p(x_j | visible tokens, class): (b, n) -> (b, n, states)."""
        return self.look_up(self.log_marginals, masked_tokens, labels)

    def logits_with_features(
        self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor
    ) -> tuple[Tensor, Features]:
        """Return the logits at positions, and the features: the masked tokens and the class."""
        classes = torch.zeros(len(masked_tokens)) if labels is None else labels
        seen = torch.stack([masked_tokens, classes[:, None].expand_as(masked_tokens)], dim=-1)
        return self.logits_at(masked_tokens, labels, positions), (seen.float(),)

    @cached_property
    def critic(self) -> "BayesCritic":
        """The exact Bayes critic of this generator."""
        return BayesCritic(self)

    @cached_property
    def inline_critic(self) -> "BayesInlineCritic":
        """The exact inline critic of this generator."""
        return BayesInlineCritic(self)

    def look_up(self, table: Tensor, tokens: Tensor, labels: Tensor | None) -> Tensor:
        """Look up tokens (b, n) in a table (classes, rows, ...). Returns (b, ...). The class is 0 if labels is None."""
        return table[0 if labels is None else labels, self.row(tokens)]

    def row(self, masked_tokens: Tensor) -> Tensor:
        """Return the row of each masked sequence in the tables, a number in base states + 1: (..., n) -> (...)."""
        return (masked_tokens * (self.codebook_size + 1) ** torch.arange(self.num_tokens - 1, -1, -1)).sum(-1)

    @cached_property
    def sequences(self) -> Tensor:
        """All masked sequences in the order of the rows: ((states + 1) ** n, n)."""
        return torch.cartesian_prod(*[torch.arange(self.codebook_size + 1)] * self.num_tokens).reshape(
            -1, self.num_tokens
        )

    @cached_property
    def complete(self) -> Tensor:
        """True for rows without hidden tokens: (rows,) bool."""
        return (self.sequences != self.mask_id).all(-1)

    @cached_property
    def probabilities(self) -> Tensor:
        """p(visible tokens) of every masked sequence, on `complete` rows the joint: (classes, rows) float64."""
        return self._forward_backward[0]

    @cached_property
    def log_marginals(self) -> Tensor:
        """The generator's logits for every masked sequence: (classes, rows, n, states) float32."""
        marginals = self._forward_backward[1]
        return ((1 - self.error) * marginals + self.error / self.codebook_size).log().float()

    @cached_property
    def _forward_backward(self) -> tuple[Tensor, Tensor]:
        states, n = torch.arange(self.codebook_size), self.num_tokens
        seen = (self.sequences[..., None] == states) | (self.sequences[..., None] == self.mask_id)  # rows n s
        seen = seen.double()[None]  # 1 rows n s
        forward = [self.initial[:, None] * seen[:, :, 0]]  # c rows s
        for j in range(1, n):
            forward.append(torch.einsum("crs,cst->crt", forward[-1], self.transition) * seen[:, :, j])
        backward = [torch.ones_like(forward[0])]
        for j in range(n - 1, 0, -1):
            backward.append(torch.einsum("cst,crt->crs", self.transition, backward[-1] * seen[:, :, j]))
        joint = torch.stack([f * b for f, b in zip(forward, reversed(backward), strict=True)], dim=2)  # c rows n s
        return joint[:, :, 0].sum(-1), joint / joint.sum(-1, keepdim=True)

    @cached_property
    def critic_logits(self) -> Tensor:
        """The critic's logits for every complete sequence: (classes, rows, n) float32, 0 on other rows.

        p(m | x-hat_0) is proportional to p(m) p(visible tokens) prod over hidden j of p_theta(x-hat_0,j | visible
        tokens).
        """
        kept = torch.zeros(self.num_classes, int(self.complete.sum()), self.num_tokens, dtype=torch.float64)
        total = kept[..., 0].clone()
        for bits, weight in self.mask_probabilities().items():
            mask = torch.tensor(bits)
            likelihood = weight * self.filling_likelihood(mask)  # c i
            total += likelihood
            kept += likelihood[..., None] * ~mask
        logits = torch.zeros(self.num_classes, len(self.sequences), self.num_tokens)
        logits[:, self.complete] = (kept / total[..., None]).logit().float()
        return logits

    def filling_likelihood(self, mask: Tensor) -> Tensor:
        """Return p(x-hat_0 | m): true tokens where the mask (n,) is False, else the generator's: (classes, images)."""
        images = self.sequences[self.complete]  # i n
        rows = self.row(images.masked_fill(mask, self.mask_id))  # i
        codes = images[None, ..., None].expand(self.num_classes, -1, -1, 1)
        sampled = self.log_marginals.double()[:, rows].gather(-1, codes)[..., 0]
        return self.probabilities[:, rows] * sampled[..., mask].sum(-1).exp()

    @cached_property
    def inline_critic_logits(self) -> Tensor:
        """The inline critic's logits at visible tokens, which minimise `inline_critic_loss` with `fills=1`.

        Shape (classes, rows, n) float32. The first mask m, under which the generator filled in tokens, is unknown. The
        loss adds o, the log-odds of originals among the visible tokens. The minimum f solves
        sum over m of p(m | row) (sigmoid(f + o) - [j is original]) = 0.
        """
        n, rows = self.num_tokens, len(self.sequences)
        visible = self.sequences != self.mask_id  # rows n
        pair_probabilities = self._count_probabilities()[:, (~visible).sum(1)]  # first count, rows
        weights = torch.zeros(self.num_classes, n + 1, rows, dtype=torch.float64)  # by the number of visible originals
        kept = torch.zeros(self.num_classes, rows, n, dtype=torch.float64)
        for bits in product([False, True], repeat=n):
            mask = torch.tensor(bits)
            image_likelihood = self.filling_likelihood(mask).reshape(-1, *[self.codebook_size] * n)
            for axis in range(1, n + 1):  # marginalise over the values of hidden tokens
                hidden = image_likelihood.sum(axis, keepdim=True)
                image_likelihood = torch.cat([image_likelihood, hidden], dim=axis)
            likelihood = image_likelihood.flatten(1) * pair_probabilities[sum(bits)] / math.comb(n, sum(bits))  # c rows
            originals = (visible & ~mask).sum(1)
            weights.scatter_add_(1, originals.expand(self.num_classes, 1, rows), likelihood[:, None])
            kept += likelihood[..., None] * ~mask
        counts = torch.arange(n + 1)[:, None]
        offsets = ((counts + 0.5) / (visible.sum(1) - counts + 0.5).clamp(min=0.5)).log()[..., None]  # a rows 1
        low, width = torch.full_like(kept, -40.0), 80.0
        for _ in range(60):  # bisection: the left side grows with f
            width /= 2
            expected = (weights[..., None] * (low[:, None] + width + offsets).sigmoid()).sum(1)  # c rows n
            low = torch.where(expected < kept, low + width, low)
        return low.float()

    def _count_probabilities(self) -> Tensor:
        """Return p(k, l) of the first and the last number of hidden tokens in `inline_critic_loss`: (n + 1, n + 1)."""
        n, grid = self.num_tokens, torch.arange(2000, dtype=torch.float64).add(0.5) / 2000
        first, later = grid[:, None], grid[:, None] + (1 - grid[:, None]) * grid
        k, last = (torch.ceil(n * torch.cos(math.pi / 2 * t)).long() for t in (first.expand_as(later), later))
        pairs = (k * (n + 1) + last.clamp(max=n - 1)).flatten().bincount(minlength=(n + 1) ** 2)
        return pairs.reshape(n + 1, n + 1).double() / pairs.sum()

    def mask_probabilities(self) -> dict[tuple[bool, ...], float]:
        """Return p(m) in training for each mask m, True = hidden: t ~ U(0, 1), then ceil(gamma(t) n) random tokens."""
        n = self.num_tokens
        # The times t at which the cosine gamma(t) falls to count / n.
        passed = [2 / math.pi * math.acos(count / n) for count in range(n + 1)]
        of_count = [0.0] + [(passed[k - 1] - passed[k]) / math.comb(n, k) for k in range(1, n + 1)]
        return {mask: of_count[sum(mask)] for mask in product([False, True], repeat=n) if any(mask)}

    def distribution(self, tokens: Tensor) -> Tensor:
        """Return the empirical distribution of tokens (b, n) over the complete rows: (images,) float64."""
        counts = self.row(tokens).bincount(minlength=len(self.sequences))[self.complete]
        return counts.double() / len(tokens)

    def truth(self, label: int = 0) -> Tensor:
        """Return the true distribution of a class over the complete rows: (images,) float64."""
        return self.probabilities[label, self.complete]


class BayesCritic(TokenCritic):
    """The Bayes critic of a world: the logit of p(token j was not hidden | x-hat_0, class)."""

    def __init__(self, world: MarkovWorld) -> None:
        self.world = world
        self.num_tokens, self.codebook_size, self.num_classes = world.num_tokens, world.codebook_size, world.num_classes

    def __call__(self, tokens: Tensor, labels: Tensor | None, mask: Tensor | None = None, /) -> Tensor:
        return self.world.look_up(self.world.critic_logits, tokens, labels)


class BayesInlineCritic(FeatureCritic):
    """The exact inline critic of a world: a table over masked sequences."""

    def __init__(self, world: MarkovWorld) -> None:
        self.world, self.num_features, self.feature_width = world, world.num_features, world.feature_width

    def __call__(self, features: Features, /) -> Tensor:
        tokens, labels = features[0].long().unbind(-1)
        return self.world.look_up(self.world.inline_critic_logits, tokens, labels[:, 0])
