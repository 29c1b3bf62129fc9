"""The masked generator G_theta: a trunk and a head over the codes."""

from dataclasses import asdict
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tokencritic.contracts import Features, MaskedGenerator, Trunk
from tokencritic.errors import InputError, is_readable
from tokencritic.models.critic import Critic
from tokencritic.models.saved import SavedModel
from tokencritic.models.transformer import TransformerConfig, TransformerTrunk, initialize, linear_in_float32

PAPER_256 = TransformerConfig()
PAPER_512 = TransformerConfig(num_tokens=1024)


class TrunkGenerator(SavedModel, MaskedGenerator):
    """A generator with a trunk and a head over the codes. Each family of generators is a subclass.

    trunk_type: the class of the trunk.
    critic_type: the class of a critic with the same kind of trunk.
    """

    trunk_type: ClassVar[type[Trunk]]
    critic_type: ClassVar[type[Critic]]

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.trunk = trunk = self.trunk_type(config)
        self.num_tokens, self.codebook_size, self.mask_id = trunk.num_tokens, trunk.codebook_size, trunk.mask_id
        self.num_classes, self.null_class = trunk.num_classes, trunk.null_class
        self.num_features, self.feature_width = len(trunk.blocks), trunk.width

    def head(self, vectors: Tensor, positions: Tensor | None) -> Tensor:
        """Return logits (..., codebook_size) of the trunk's vectors (..., width). positions: as passed to the trunk."""
        raise NotImplementedError

    def forward(self, masked_tokens: Tensor, labels: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """Return the logits of p_theta(x_0 | x_t, c) over the codes, K = codebook_size.

        masked_tokens: (b, n) int64, codes or `mask_id`.
        labels: (b,) int64, None without classes.
        positions: None for logits (b, n, K), indices (b, k) for (b, k, K), or a mask (b, n) bool for (mask.sum(), K).
        """
        self._check(masked_tokens)
        return self.head(self.trunk(masked_tokens, labels, positions), positions)

    def logits_at(self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor) -> Tensor:
        return self(masked_tokens, labels, positions)

    def logits_with_features(
        self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor
    ) -> tuple[Tensor, Features]:
        self._check(masked_tokens)
        vectors, features = self.trunk.with_features(masked_tokens, labels, positions)
        return self.head(vectors, positions), features

    def start_critic(self, layers: int | None = None, **options: Any) -> Critic:
        unknown = options.keys() - {"reads_mask", "ratio_conditioned", "dropout"}
        if unknown:
            raise InputError(f"{', '.join(sorted(unknown))} must be the generator's to initialize from its trunk")
        dropout = options.pop("dropout", self.config.dropout)
        trunk = self.trunk.first_layers(self.config.layers if layers is None else layers, dropout)
        return self.critic_type(self.critic_type.Config(**asdict(trunk.config), **options), trunk).to(self.device)

    def _check(self, masked_tokens: Tensor) -> None:
        if not is_readable(masked_tokens):
            return
        bad = masked_tokens[
            (masked_tokens < 0) | ((masked_tokens >= self.codebook_size) & (masked_tokens != self.mask_id))
        ]
        if len(bad):
            expected = f"codes from 0 to {self.codebook_size - 1} or mask_id {self.mask_id}"
            raise InputError(f"masked_tokens holds {int(bad[0])}; expected {expected}")


class Generator(TrunkGenerator):
    """MaskGIT's transformer. The weights of the head are tied to the embeddings of the codes."""

    Config = TransformerConfig
    trunk_type, critic_type = TransformerTrunk, Critic
    trunk: TransformerTrunk

    def __init__(self, config: TransformerConfig = PAPER_256) -> None:
        super().__init__(config)
        self.bias = nn.Parameter(torch.zeros(config.codebook_size))
        self.apply(initialize)

    def head(self, vectors: Tensor, positions: Tensor | None) -> Tensor:
        return linear_in_float32(vectors, self.trunk.words.weight[: self.codebook_size], self.bias)


class UntiedGenerator(TrunkGenerator):
    """A generator with a linear head that is not tied to the embeddings."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.to_logits = nn.Linear(self.trunk.width, self.codebook_size)
        self.apply(initialize)

    def head(self, vectors: Tensor, positions: Tensor | None) -> Tensor:
        return linear_in_float32(vectors, self.to_logits.weight, self.to_logits.bias)
