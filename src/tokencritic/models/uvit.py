"""TiTok's generator for 128 tokens, a U-ViT with pre-norm blocks and long skip connections, and its critic.

The outputs of the first m of 2 m + 1 blocks are skip connections to the last m blocks, in reverse order. Each of the
last m blocks starts with a linear layer over its input and its skip connection.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from tokencritic.contracts import Features
from tokencritic.errors import InputError
from tokencritic.models.critic import Critic, CriticOptions
from tokencritic.models.generator import UntiedGenerator
from tokencritic.models.transformer import Block, TransformerConfig, TransformerTrunk

_EPSILON = 1e-5


@dataclass(frozen=True)
class UViTConfig(TransformerConfig):
    """Sizes of a U-ViT. The defaults are the published generator for 128 tokens. Blocks are pre-norm.

    layers: number of blocks, odd.
    """

    num_tokens: int = 128
    codebook_size: int = 4096
    width: int = 1024
    layers: int = 21
    mlp_width: int = 4096
    dropout: float = 0.0
    null_class: ClassVar[bool] = True  # pyright: ignore[reportIncompatibleVariableOverride]
    norm_first: ClassVar[bool] = True  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers % 2 == 0:
            raise InputError(f"layers is {self.layers}; it must be odd")


@dataclass(frozen=True)
class UViTCriticConfig(CriticOptions, UViTConfig):
    """Sizes and options of a U-ViT critic."""


class UViTTrunk(TransformerTrunk):
    """The U-ViT without its head: embeddings without a norm, the blocks in order, and a final norm."""

    exact_gelu, has_readout = True, False
    config: UViTConfig

    def __init__(self, config: UViTConfig) -> None:
        super().__init__(config)
        self.embedding_norm = nn.Identity()
        self.final_norm = nn.LayerNorm(config.width, eps=_EPSILON)

    def forward(
        self, tokens: Tensor, labels: Tensor | None, positions: Tensor | None = None, extra: Tensor | None = None
    ) -> Tensor:
        return self._vectors(self._embed(tokens, labels, extra), positions, None)

    def with_features(self, tokens: Tensor, labels: Tensor | None, positions: Tensor) -> tuple[Tensor, Features]:
        """Return the vectors and the input of each block, before the skip connection."""
        entered: list[Tensor] = []
        vectors = self._vectors(self._embed(tokens, labels), positions, entered)
        return vectors, tuple(x[:, self.prefix :] for x in entered)

    def kept_blocks(self, layers: int) -> list[int]:
        """Return the first, the middle and the last blocks.

        The selection is symmetric, so that every skip connection keeps both ends. The number of blocks is odd: an even
        `layers` keeps one block less.
        """
        half, most = (layers - 1) // 2, self.config.layers
        return [*range(half), most // 2, *range(most - half, most)]

    def first_layers(self, layers: int, dropout: float) -> "UViTTrunk":
        """Return a copy of at most `layers` blocks, those of `kept_blocks`."""
        if not 1 <= layers <= self.config.layers:
            raise InputError(f"layers is {layers}; expected 1 to {self.config.layers}, the layers of the trunk")
        kept = self.kept_blocks(layers)
        trunk = UViTTrunk(replace(self.config, layers=len(kept), dropout=dropout)).to(next(self.parameters()))
        ends = {name: value for name, value in self.state_dict().items() if not name.startswith("blocks.")}
        blocks = nn.ModuleList(self.blocks[index] for index in kept)
        trunk.load_state_dict(ends | blocks.state_dict(prefix="blocks."))
        return trunk

    def _vectors(self, x: Tensor, positions: Tensor | None, entered: list[Tensor] | None) -> Tensor:
        """Apply all blocks, the last one only at the positions, and the norm. entered: collects the blocks' inputs."""
        kept: list[Tensor] = []
        middle, last = len(self.blocks) // 2, len(self.blocks) - 1
        for index, block in enumerate(self.blocks):
            if entered is not None:
                entered.append(x)
            at = self._in_sequence(positions) if index == last else None
            skipped = kept.pop() if index > middle else None
            x = self.run_block(block, x, at, skipped)  # b s d; at last b s d | b k d | m d
            if index < middle:
                kept.append(x)
        if positions is None:
            x = x[:, self.prefix :]  # b n d
        return self.final_norm(x)

    def _make_block(self, index: int) -> nn.Module:
        return UViTBlock(self.config, joins=index > self.config.layers // 2)


class UViTBlock(Block):
    """A pre-norm block without bias of queries, keys and values. joins: the block has a skip connection."""

    def __init__(self, config: UViTConfig, joins: bool) -> None:
        super().__init__(config, exact_gelu=True, qkv_bias=False, epsilon=_EPSILON)
        self.join = nn.Linear(2 * config.width, config.width) if joins else None

    def forward(self, x: Tensor, positions: Tensor | None = None, kept: Tensor | None = None) -> Tensor:
        """Return vectors as `Block` does.

        x: (b, s, d).
        kept: (b, s, d), the skip connection; only if the block has one.
        """
        if self.join is not None:
            assert kept is not None
            x = self.join(torch.cat([x, kept], dim=-1))
        return super().forward(x, positions)


class UViTCritic(Critic):
    """A critic on the trunk of `UViTGenerator`."""

    Config = UViTCriticConfig
    trunk_type = UViTTrunk


class UViTGenerator(UntiedGenerator):
    """TiTok's `UViTBert`."""

    Config = UViTConfig
    trunk_type, critic_type = UViTTrunk, UViTCritic
