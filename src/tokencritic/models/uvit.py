"""A U-ViT over tokens, TiTok's generator for 128 tokens: pre-norm blocks with long skips, and a critic on its trunk.

Of 2 m + 1 blocks the first m keep their outputs; each of the last m starts with a linear layer over its input and the latest
kept output that is not used yet.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from tokencritic.contracts import Features
from tokencritic.errors import InputError
from tokencritic.models.critic import Critic
from tokencritic.models.generator import UntiedGenerator
from tokencritic.models.transformer import Block, TransformerConfig, TransformerTrunk

_EPSILON = 1e-5


@dataclass(frozen=True)
class UViTConfig(TransformerConfig):
    """Sizes; the defaults are the published generator's for 128 tokens, which was trained without dropout.

    layers: all blocks, an odd number. There is always a null class, and norms come before attention and MLP.
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
            raise InputError(f"layers is {self.layers}; a U-ViT has an odd number of blocks, the middle one included")


@dataclass(frozen=True)
class UViTCriticConfig(UViTConfig):
    """The generator's sizes. reads_mask, ratio_conditioned: as in `CriticConfig`."""

    reads_mask: bool = False
    ratio_conditioned: bool = False


class UViTTrunk(TransformerTrunk):
    """Embeddings without a norm, the blocks in running order, and one norm at the end."""

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
        """The vectors, and what enters each block, before it is joined with a kept output."""
        entered: list[Tensor] = []
        vectors = self._vectors(self._embed(tokens, labels), positions, entered)
        return vectors, tuple(x[:, self.prefix :] for x in entered)

    def first_layers(self, layers: int, dropout: float) -> "UViTTrunk":
        """A copy of at most `layers` blocks, cut symmetrically so that every skip keeps both its ends.

        It has the first blocks, the middle one, and the last blocks, which take the outputs of the first. Their number is
        odd: an even `layers` leaves out one more.
        """
        most = self.config.layers
        if not 1 <= layers <= most:
            raise InputError(f"layers is {layers}; the trunk has {most}, give 1 to {most}")
        half = (layers - 1) // 2
        kept = [*range(half), most // 2, *range(most - half, most)]
        trunk = UViTTrunk(replace(self.config, layers=len(kept), dropout=dropout)).to(next(self.parameters()))
        ends = {name: value for name, value in self.state_dict().items() if not name.startswith("blocks.")}
        blocks = nn.ModuleList(self.blocks[index] for index in kept)
        trunk.load_state_dict(ends | blocks.state_dict(prefix="blocks."))
        return trunk

    def _vectors(self, x: Tensor, positions: Tensor | None, entered: list[Tensor] | None) -> Tensor:
        """Through all blocks, the last one at the positions alone, and the norm. entered: is given what enters each block."""
        kept: list[Tensor] = []
        middle, last = len(self.blocks) // 2, len(self.blocks) - 1
        for index, block in enumerate(self.blocks):
            if entered is not None:
                entered.append(x)
            at = self._in_sequence(positions) if index == last else None
            x = self._run(block, x, at, kept.pop() if index > middle else None)  # b s d; at last b s d | b k d | m d
            if index < middle:
                kept.append(x)
        if positions is None:
            x = x[:, self.prefix :]  # b n d
        return self.final_norm(x)

    def _make_block(self, index: int) -> nn.Module:
        return UViTBlock(self.config, joins=index > self.config.layers // 2)


class UViTBlock(Block):
    """A pre-norm block without bias of queries, keys and values. joins: it starts by joining x with a kept output."""

    def __init__(self, config: UViTConfig, joins: bool) -> None:
        super().__init__(config, exact_gelu=True, qkv_bias=False, epsilon=_EPSILON)
        self.join = nn.Linear(2 * config.width, config.width) if joins else None

    def forward(self, x: Tensor, positions: Tensor | None = None, kept: Tensor | None = None) -> Tensor:
        """x, kept: (b, s, d); kept: the output of an earlier block, if the block joins. positions: as in `Block`."""
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
