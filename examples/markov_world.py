"""A world small enough to know everything about: images of a few tokens from a Markov chain.

Its generator gives the exact conditional marginals and its critic the exact Bayes posterior, both by enumeration, so any
sampler or scorer can be measured against the truth without training anything. Tables have one row per masked sequence,
(states + 1) ** num_tokens of them: 65,536 for 8 tokens of 3 states.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch
from torch import Tensor

from tokencritic.contracts import MaskedGenerator, TokenCritic
from tokencritic.errors import InputError
from tokencritic.randomness import torch_rng


@dataclass(frozen=True, eq=False)
class MarkovWorld(MaskedGenerator):
    """p(x) = initial[x_1] transition[x_1, x_2] ... transition[x_{n-1}, x_n], one such chain per class.

    initial: (classes, states) and transition: (classes, states, states), probabilities, float64, all above 0.
    num_tokens: the length of an image. error: the share of uniform noise mixed into the generator's marginals.
    """

    initial: Tensor
    transition: Tensor
    num_tokens: int
    error: float = 0.0

    def __post_init__(self) -> None:
        num_classes, states = self.initial.shape
        rows = (states + 1) ** self.num_tokens
        if rows > 2**20:
            raise InputError(f"num_tokens is {self.num_tokens} and states {states}: {rows} rows are too many to list")
        sizes = {"codebook_size": states, "mask_id": states, "num_classes": num_classes}
        vars(self).update(sizes)  # of the contract; the dataclass is frozen

    @classmethod
    def random(cls, num_tokens: int, states: int, classes: int = 1, seed: int = 0, error: float = 0.0) -> "MarkovWorld":
        """A world with random, clearly uneven chains."""
        logits = 1.5 * torch.randn(classes, states + 1, states, generator=torch_rng(seed), dtype=torch.float64)
        probabilities = logits.softmax(-1)
        return cls(probabilities[:, 0], probabilities[:, 1:], num_tokens, error)

    def __call__(self, masked_tokens: Tensor, labels: Tensor | None, /) -> Tensor:
        """The generator: exact log p(x_j | visible tokens, class). (b, n) -> (b, n, states)."""
        return self.look_up(self.log_marginals, masked_tokens, labels)

    @cached_property
    def critic(self) -> "BayesCritic":
        """The critic that knows this generator."""
        return BayesCritic(self)

    def look_up(self, table: Tensor, tokens: Tensor, labels: Tensor | None) -> Tensor:
        """What a table (classes, rows, ...) has for tokens (b, n) of some classes, class 0 if labels is None: (b, ...)."""
        return table[0 if labels is None else labels, self.row(tokens)]

    def row(self, masked_tokens: Tensor) -> Tensor:
        """The row of each masked sequence in the tables: its digits in base states + 1. (..., n) -> (...)."""
        return (masked_tokens * (self.codebook_size + 1) ** torch.arange(self.num_tokens - 1, -1, -1)).sum(-1)

    @cached_property
    def sequences(self) -> Tensor:
        """All masked sequences, row by row: ((states + 1) ** n, n)."""
        return torch.cartesian_prod(*[torch.arange(self.codebook_size + 1)] * self.num_tokens).reshape(
            -1, self.num_tokens
        )

    @cached_property
    def complete(self) -> Tensor:
        """Which rows hide nothing: (rows,) bool."""
        return (self.sequences != self.mask_id).all(-1)

    @cached_property
    def probabilities(self) -> Tensor:
        """p(the visible tokens) of every masked sequence: (classes, rows) float64; on `complete` rows, the joint."""
        return self._forward_backward[0]

    @cached_property
    def log_marginals(self) -> Tensor:
        """(classes, rows, n, states) float32."""
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
        """(classes, rows, n) float32, 0 on rows that hide something.

        p(m | x-hat_0) is proportional to p(m) p(visible tokens) prod over hidden j of p_theta(x-hat_0,j | visible tokens).
        """
        images = self.sequences[self.complete]  # i n
        kept = torch.zeros(self.num_classes, len(images), self.num_tokens, dtype=torch.float64)
        total = torch.zeros(self.num_classes, len(images), dtype=torch.float64)
        log_marginals = self.log_marginals.double()
        for bits, weight in self.mask_probabilities().items():
            mask = torch.tensor(bits)
            rows = self.row(images.masked_fill(mask, self.mask_id))  # i
            codes = images[None, ..., None].expand(self.num_classes, -1, -1, 1)
            sampled = log_marginals[:, rows].gather(-1, codes)[..., 0]
            likelihood = weight * self.probabilities[:, rows] * sampled[..., mask].sum(-1).exp()  # c i
            total += likelihood
            kept += likelihood[..., None] * ~mask
        logits = torch.zeros(self.num_classes, len(self.sequences), self.num_tokens)
        logits[:, self.complete] = (kept / total[..., None]).logit().float()
        return logits

    def mask_probabilities(self) -> dict[tuple[bool, ...], float]:
        """p(m) in training: t ~ U(0, 1), then ceil(gamma(t) n) tokens hidden at random; each mask, True = hidden."""
        n = self.num_tokens
        # The t at which the cosine gamma(t) falls to each count.
        passed = [2 / math.pi * math.acos(count / n) for count in range(n + 1)]
        of_count = [0.0] + [(passed[k - 1] - passed[k]) / math.comb(n, k) for k in range(1, n + 1)]
        return {mask: of_count[sum(mask)] for mask in product([False, True], repeat=n) if any(mask)}

    def distribution(self, tokens: Tensor) -> Tensor:
        """The empirical distribution of complete tokens (b, n) over the complete rows: (images,) float64."""
        counts = self.row(tokens).bincount(minlength=len(self.sequences))[self.complete]
        return counts.double() / len(tokens)

    def truth(self, label: int = 0) -> Tensor:
        """The true distribution over the complete rows: (images,) float64."""
        return self.probabilities[label, self.complete]


class BayesCritic(TokenCritic):
    """The Bayes critic of a world: the logit of p(token j was not hidden | x-hat_0, class)."""

    def __init__(self, world: MarkovWorld) -> None:
        self.world = world
        self.num_tokens, self.codebook_size, self.num_classes = world.num_tokens, world.codebook_size, world.num_classes

    def __call__(self, tokens: Tensor, labels: Tensor | None, mask: Tensor | None = None, /) -> Tensor:
        return self.world.look_up(self.world.critic_logits, tokens, labels)
