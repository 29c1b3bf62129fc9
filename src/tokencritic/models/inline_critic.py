"""The inline critic: a small head on the features of a frozen generator, with one logit per token."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tokencritic.contracts import FeatureCritic, Features
from tokencritic.errors import InputError, check_at_least
from tokencritic.models.saved import SavedModel
from tokencritic.models.transformer import Block, TransformerConfig, initialize


@dataclass(frozen=True)
class InlineCriticConfig:
    """Sizes of an inline critic. The defaults suit the paper's generator for 256 x 256 images.

    num_tokens, codebook_size, num_classes, num_features, feature_width: sizes of the generator.
    generator: identity of the generator.
    width: size of a token's vector inside the head.
    layers: number of blocks of the head.
    heads: attention heads, which divide the width.
    mlp_width: hidden size of the MLP.
    """

    num_tokens: int = 256
    codebook_size: int = 1024
    num_classes: int = 1000
    num_features: int = 24
    feature_width: int = 768
    generator: str = ""
    width: int = 256
    layers: int = 2
    heads: int = 4
    mlp_width: int = 512

    def __post_init__(self) -> None:
        sizes = ("num_tokens", "num_features", "feature_width", "width", "layers", "heads", "mlp_width")
        check_at_least(1, **{name: vars(self)[name] for name in sizes})
        if self.width % self.heads:
            raise InputError(f"width is {self.width}; it must be a multiple of heads, {self.heads}")


class InlineCritic(SavedModel, FeatureCritic):
    """A head that normalizes each feature, projects all features to its width, and applies a few blocks."""

    Config = InlineCriticConfig

    def __init__(self, config: InlineCriticConfig) -> None:
        super().__init__(config)
        self.num_tokens, self.num_classes = config.num_tokens, config.num_classes
        self.codebook_size = config.codebook_size
        self.num_features, self.feature_width = config.num_features, config.feature_width
        self.generator_identity = config.generator
        block = TransformerConfig(
            width=config.width, heads=config.heads, mlp_width=config.mlp_width, dropout=0.0, norm_first=True
        )
        self.norms = nn.ModuleList(nn.LayerNorm(config.feature_width, 1e-6) for _ in range(config.num_features))
        self.projection = nn.Linear(config.num_features * config.feature_width, config.width)
        self.blocks = nn.ModuleList(Block(block) for _ in range(config.layers))
        self.final_norm = nn.LayerNorm(config.width, 1e-6)
        self.head = nn.Linear(config.width, 1)
        self.apply(initialize)

    def forward(self, features: Features) -> Tensor:
        """Return logits (b, n), higher = more likely an original. features: `num_features` of (b, n, feature_width)."""
        # fmt: off
        normed = [norm(feature) for norm, feature in zip(self.norms, features, strict=True)]
        x = self.projection(torch.cat(normed, dim=-1))     # b n d
        for block in self.blocks:
            x = block(x)                                   # b n d
        return self.head(self.final_norm(x))[..., 0]       # b n
        # fmt: on
