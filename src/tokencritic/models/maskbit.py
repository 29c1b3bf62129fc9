"""MaskBit (Weber et al., 2024): a generator of bit tokens, and its critic.

The code of a place is split into parts. Each part is one token, which is hidden, sampled and scored on its own. Token
number = place * splits + part, and part 0 holds the lowest bits. The transformer works on places: the bits of all parts
of a place form one vector.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tokencritic.contracts import Features, Trunk
from tokencritic.errors import check_at_least
from tokencritic.masking import take
from tokencritic.models.critic import Critic, CriticOptions
from tokencritic.models.generator import TrunkGenerator
from tokencritic.models.transformer import Block, TransformerConfig, activation, check_inputs, initialize

_EPSILON = 1e-12


@dataclass(frozen=True)
class MaskBitConfig:
    """Sizes of a MaskBit model. The defaults are the published 14-bit generator for 256 x 256 images.

    places: places per image.
    splits: parts per place.
    bits_per_part: bits of a part, which has 2^bits_per_part codes.
    num_classes: number of classes without the null class, which every model has.
    width: size of a place's vector.
    layers: number of blocks.
    heads: attention heads, which divide the width.
    mlp_width: hidden size of the MLP.
    dropout: dropout rate in training, in [0, 1).
    """

    places: int = 256
    splits: int = 2
    bits_per_part: int = 7
    num_classes: int = 1000
    width: int = 1024
    layers: int = 24
    heads: int = 16
    mlp_width: int = 4096
    dropout: float = 0.1

    def __post_init__(self) -> None:
        check_at_least(1, places=self.places, splits=self.splits, bits_per_part=self.bits_per_part)
        check_at_least(1, num_classes=self.num_classes)
        self.block_config()  # raises InputError for the rest

    @property
    def num_tokens(self) -> int:
        return self.places * self.splits

    @property
    def codebook_size(self) -> int:
        """The number of codes of a part, which is also the id of the mask token."""
        return 2**self.bits_per_part

    def block_config(self) -> TransformerConfig:
        """Return the config of a `Block`."""
        return TransformerConfig(
            width=self.width, layers=self.layers, heads=self.heads, mlp_width=self.mlp_width, dropout=self.dropout
        )


def part_bits(tokens: Tensor, bits: int) -> Tensor:
    """Return the bits of codes (...) as (..., bits) int64, -1 or +1, the lowest bit first."""
    return ((tokens[..., None] >> torch.arange(bits, device=tokens.device)) & 1) * 2 - 1


class MaskBitTrunk(Trunk):
    """MaskBit's transformer without its heads.

    The vector of a token has `splits` slots. The slot of its part holds the vector of the place, the others are 0. A
    linear layer thus has separate weights for each part. `place_vectors` and `place_states` return vectors of places.
    """

    config: MaskBitConfig

    def __init__(self, config: MaskBitConfig) -> None:
        super().__init__()
        self.config, self.width = config, config.splits * config.width
        self.num_tokens, self.codebook_size, self.mask_id = (
            config.num_tokens,
            config.codebook_size,
            config.codebook_size,
        )
        self.num_classes, self.null_class = config.num_classes, True
        self.bits = nn.Linear(config.splits * config.bits_per_part, config.width)
        self.classes = nn.Embedding(config.num_classes + 1, config.width)
        self.positions = nn.Embedding(config.places + 1, config.width)  # the class token is last
        self.embedding_norm = nn.LayerNorm(config.width, eps=_EPSILON)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config.block_config(), exact_gelu=True) for _ in range(config.layers))
        self.readout = nn.Linear(config.width, config.width)
        self.readout_norm = nn.LayerNorm(config.width, eps=_EPSILON)

    def forward(
        self, tokens: Tensor, labels: Tensor | None, positions: Tensor | None = None, extra: Tensor | None = None
    ) -> Tensor:
        vectors = self.per_token(self.place_vectors(tokens, labels, extra))  # b n splits*d
        return vectors if positions is None else take(vectors, positions)

    def with_features(self, tokens: Tensor, labels: Tensor | None, positions: Tensor) -> tuple[Tensor, Features]:
        states = self.place_states(tokens, labels)
        vectors = take(self.per_token(self.read_out(states[-1])), positions)
        return vectors, self.features(states)

    def place_vectors(self, tokens: Tensor, labels: Tensor | None, extra: Tensor | None = None) -> Tensor:
        """Return one vector per place: (b, places, d)."""
        x = self._embed(tokens, labels, extra)  # b places+1 d
        for block in self.blocks[:-1]:
            x = self.run_block(block, x)
        return self.read_out(x)

    def place_states(self, tokens: Tensor, labels: Tensor | None) -> list[Tensor]:
        """Return the input of each block: (b, places + 1, d) each, the class token last."""
        states = [self._embed(tokens, labels)]
        for block in self.blocks[:-1]:
            states.append(self.run_block(block, states[-1]))
        return states

    def features(self, states: list[Tensor]) -> Features:
        """Return the result of `place_states` per token: (b, n, width) each."""
        return tuple(self.per_token(x[:, :-1]) for x in states)

    def read_out(self, x: Tensor) -> Tensor:
        """Apply the last block and the dense readout: (b, places + 1, d) -> (b, places, d)."""
        x = self.run_block(self.blocks[-1], x)[:, :-1]
        return self.readout_norm(activation(exact_gelu=True)(self.readout(x)))

    def per_token(self, x: Tensor) -> Tensor:
        """Return vectors of tokens (b, n, width), with the place's vector (b, places, d) in the slot of each part."""
        slots = torch.eye(self.config.splits, dtype=x.dtype, device=x.device)[..., None]  # splits splits 1
        return (x[:, :, None, None] * slots).flatten(3).flatten(1, 2)

    def _embed(self, tokens: Tensor, labels: Tensor | None, extra: Tensor | None = None) -> Tensor:
        config = self.config
        labels = check_inputs(tokens, labels, self.num_tokens, self.num_classes + 1)
        # fmt: off
        bits = part_bits(tokens, config.bits_per_part).to(self.bits.weight.dtype)          # b n bits_per_part
        bits = bits.masked_fill((tokens == self.mask_id)[..., None], 0)
        x = self.bits(bits.view(len(tokens), config.places, -1))                           # b places d
        if extra is not None:
            slots = extra.view(len(tokens), config.places, config.splits, config.splits, -1)
            x = x + slots.diagonal(dim1=2, dim2=3).sum(-1)                                 # b places d
        x = torch.cat([x, self.classes(labels)[:, None]], dim=1) + self.positions.weight   # b places+1 d
        # fmt: on
        return self.dropout(self.embedding_norm(x))


@dataclass(frozen=True)
class MaskBitCriticConfig(CriticOptions, MaskBitConfig):
    """Sizes and options of a MaskBit critic."""


class MaskBitCritic(Critic):
    """A critic on the trunk of `MaskBitGenerator`, with one logit per token."""

    Config = MaskBitCriticConfig
    trunk_type = MaskBitTrunk


class MaskBitGenerator(TrunkGenerator):
    """MaskBit's generator. One linear layer predicts the codes of all parts of a place from the place's vector."""

    Config = MaskBitConfig
    trunk_type, critic_type = MaskBitTrunk, MaskBitCritic
    trunk: MaskBitTrunk

    def __init__(self, config: MaskBitConfig) -> None:
        super().__init__(config)
        self.prediction = nn.Linear(config.width, config.splits * config.codebook_size)
        self.apply(initialize)

    def forward(self, masked_tokens: Tensor, labels: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        self._check(masked_tokens)
        return self._logits(self.trunk.place_vectors(masked_tokens, labels), positions)

    def logits_with_features(
        self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor
    ) -> tuple[Tensor, Features]:
        self._check(masked_tokens)
        states = self.trunk.place_states(masked_tokens, labels)
        return self._logits(self.trunk.read_out(states[-1]), positions), self.trunk.features(states)

    def features(self, masked_tokens: Tensor, labels: Tensor | None) -> Features:
        self._check(masked_tokens)
        return self.trunk.features(self.trunk.place_states(masked_tokens, labels))

    def _logits(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """Return logits of tokens (b, n, K), or those at the positions, from vectors of places (b, places, d)."""
        logits = self.prediction(x).unflatten(-1, (self.config.splits, self.codebook_size)).flatten(1, 2)
        return logits if positions is None else take(logits, positions)
