"""The masked generator G_theta: partly hidden tokens in, logits over the codes out."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokencritic.errors import InputError
from tokencritic.models.saved import SavedModel
from tokencritic.models.transformer import TransformerConfig, Trunk, initialize

PAPER_256 = TransformerConfig()
PAPER_512 = TransformerConfig(num_tokens=1024)


class Generator(SavedModel):
    """MaskGIT's transformer. A call gives (b, n, codebook_size) logits; `mask_id` is the token that means hidden."""

    Config = TransformerConfig

    def __init__(self, config: TransformerConfig = PAPER_256) -> None:
        super().__init__(config)
        self.num_tokens, self.codebook_size, self.mask_id = config.num_tokens, config.codebook_size, config.mask_id
        self.num_classes, self.num_labels = config.num_classes, config.num_labels
        self.trunk = Trunk(config)
        self.bias = nn.Parameter(torch.zeros(config.codebook_size))
        self.apply(initialize)

    def forward(
        self,
        masked_tokens: Tensor,
        labels: Tensor | None = None,
        positions: Tensor | None = None,
        guidance: float = 1.0,
    ) -> Tensor:
        """p_theta(x_0 | x_t, c) as logits, over codes only.

        masked_tokens: (b, n) int64, codes or `mask_id`. labels: (b,) int64, None without classes.
        positions: compute only these: (b, k) indices -> (b, k, codebook_size), a (b, n) mask -> (mask.sum(), codebook_size).
        guidance: w in null + w (class - null), both passes in one batch; needs `null_class`. At 1 there is no second pass.
        """
        if guidance != 1.0:
            return self._guided(masked_tokens, labels, positions, guidance)
        if not masked_tokens.is_cuda and not torch.compiler.is_compiling():
            self._check(masked_tokens)
        # fmt: off
        x = self.trunk(masked_tokens, labels, positions)                               # b n d | b k d | m d
        return F.linear(x, self.trunk.words.weight[: self.codebook_size], self.bias)   # ... codebook_size
        # fmt: on

    def logits_at(self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor) -> Tensor:
        """Logits only where asked: what the sampling loop calls."""
        return self(masked_tokens, labels, positions)

    def guided(self, guidance: float) -> "Generator | Guided":
        """This generator with a fixed guidance scale, to hand to a sampler."""
        return self if guidance == 1.0 else Guided(self, guidance)

    def _guided(
        self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor | None, guidance: float
    ) -> Tensor:
        if not self.config.null_class or labels is None:
            raise InputError(
                f"guidance is {guidance} but the generator was made without null_class; only 1 is possible"
            )
        both = torch.cat([labels, torch.full_like(labels, self.num_classes)])
        twice = None if positions is None else torch.cat([positions, positions])
        with_class, without = self(torch.cat([masked_tokens, masked_tokens]), both, twice).chunk(2)
        return without + guidance * (with_class - without)

    def _check(self, masked_tokens: Tensor) -> None:
        bad = masked_tokens[
            (masked_tokens < 0) | ((masked_tokens >= self.codebook_size) & (masked_tokens != self.mask_id))
        ]
        if len(bad):
            right = f"codes from 0 to {self.codebook_size - 1}, or mask_id, {self.mask_id}"
            raise InputError(f"masked_tokens holds {int(bad[0])}; expected {right}")


class Guided(nn.Module):
    """A generator seen through classifier-free guidance."""

    def __init__(self, generator: Generator, guidance: float) -> None:
        super().__init__()
        if not math.isfinite(guidance):
            raise InputError(f"guidance is {guidance}; it must be a number")
        self.generator, self.guidance = generator, guidance
        self.num_tokens, self.codebook_size, self.mask_id = (
            generator.num_tokens,
            generator.codebook_size,
            generator.mask_id,
        )
        self.num_classes, self.num_labels = generator.num_classes, generator.num_labels

    def forward(self, masked_tokens: Tensor, labels: Tensor | None) -> Tensor:
        return self.generator(masked_tokens, labels, guidance=self.guidance)

    def logits_at(self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor) -> Tensor:
        return self.generator(masked_tokens, labels, positions, self.guidance)
