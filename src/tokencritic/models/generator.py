"""The masked generator G_theta: a trunk and a head over the codes."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokencritic.contracts import Features, MaskedGenerator, Trunk
from tokencritic.errors import InputError
from tokencritic.models.saved import SavedModel
from tokencritic.models.transformer import TransformerConfig, TransformerTrunk, initialize

PAPER_256 = TransformerConfig()
PAPER_512 = TransformerConfig(num_tokens=1024)


class Generator(SavedModel, MaskedGenerator):
    """MaskGIT's transformer. The head over the codes is tied to the trunk's embedding of them."""

    Config = TransformerConfig

    def __init__(self, config: TransformerConfig = PAPER_256) -> None:
        super().__init__(config)
        self.num_tokens, self.codebook_size, self.mask_id = config.num_tokens, config.codebook_size, config.mask_id
        self.num_classes, self.null_class = config.num_classes, config.null_class
        self.num_features, self.feature_width = config.layers, config.width
        self.trunk = TransformerTrunk(config)
        self.bias = nn.Parameter(torch.zeros(config.codebook_size))
        self.apply(initialize)

    def forward(self, masked_tokens: Tensor, labels: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """p_theta(x_0 | x_t, c) as logits, over codes only.

        masked_tokens: (b, n) int64, codes or `mask_id`. labels: (b,) int64, None without classes.
        positions: compute only these: (b, k) indices -> (b, k, codebook_size), a (b, n) mask -> (mask.sum(), codebook_size).
        """
        self._check(masked_tokens)
        return self._head(self.trunk(masked_tokens, labels, positions))

    def logits_at(self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor) -> Tensor:
        return self(masked_tokens, labels, positions)

    def logits_with_features(
        self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor
    ) -> tuple[Tensor, Features]:
        self._check(masked_tokens)
        vectors, features = self.trunk.with_features(masked_tokens, labels, positions)
        return self._head(vectors), features

    def critic_trunk(self, layers: int, dropout: float) -> Trunk:
        return self.trunk.first_layers(layers, dropout)

    def _head(self, vectors: Tensor) -> Tensor:
        """(..., width) -> (..., codebook_size)."""
        return F.linear(vectors, self.trunk.words.weight[: self.codebook_size], self.bias)

    def _check(self, masked_tokens: Tensor) -> None:
        if masked_tokens.is_cuda or torch.compiler.is_compiling():
            return
        bad = masked_tokens[
            (masked_tokens < 0) | ((masked_tokens >= self.codebook_size) & (masked_tokens != self.mask_id))
        ]
        if len(bad):
            expected = f"codes from 0 to {self.codebook_size - 1}, or mask_id, {self.mask_id}"
            raise InputError(f"masked_tokens holds {int(bad[0])}; expected {expected}")
