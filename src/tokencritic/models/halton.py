"""The transformer of Halton-MaskGIT (Besnier et al., 2025): generator and critic.

- Conditioning: vectors computed from the class scale, shift and gate each block, as in DiT.
- Registers: learned vectors without a position follow the tokens.
- Queries and keys are normalized over all heads together.
- The vocabulary is the codes, then the mask token. Labels are the classes, then the null class.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokencritic.contracts import Features, Trunk
from tokencritic.errors import InputError, check_at_least
from tokencritic.masking import take
from tokencritic.models.critic import Critic, CriticOptions
from tokencritic.models.generator import TrunkGenerator
from tokencritic.models.transformer import check_inputs, initialize, linear_in_float32

_EPSILON = 1e-5


@dataclass(frozen=True)
class HaltonConfig:
    """Sizes of a Halton-MaskGIT model. The defaults are the published "base" generator for 256 x 256 images.

    num_tokens: N, tokens per image.
    codebook_size: K, number of codes.
    num_classes: number of classes without the null class, which every model has.
    width: size of a token's vector.
    layers: number of blocks.
    heads: attention heads, each of size width // heads.
    mlp_width: hidden size of the gated MLP.
    registers: number of registers.
    dropout: dropout rate in training, in [0, 1).
    """

    num_tokens: int = 256
    codebook_size: int = 16384
    num_classes: int = 1000
    width: int = 768
    layers: int = 12
    heads: int = 12
    mlp_width: int = 2048
    registers: int = 1
    dropout: float = 0.1

    def __post_init__(self) -> None:
        check_at_least(1, num_tokens=self.num_tokens, codebook_size=self.codebook_size, num_classes=self.num_classes)
        check_at_least(1, width=self.width, layers=self.layers, heads=self.heads, mlp_width=self.mlp_width)
        check_at_least(0, registers=self.registers)
        if self.heads > self.width:
            raise InputError(f"heads is {self.heads}; it must be at most the width, {self.width}")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout is {self.dropout}; it must lie in [0, 1)")

    @property
    def mask_id(self) -> int:
        return self.codebook_size

    @property
    def attention_width(self) -> int:
        """The size of a query, key or value of all heads, less than the width if the heads do not divide it."""
        return self.heads * (self.width // self.heads)


class HaltonTrunk(Trunk):
    """Halton-MaskGIT's transformer without its head."""

    def __init__(self, config: HaltonConfig) -> None:
        super().__init__()
        self.config, self.width = config, config.width
        self.num_tokens, self.codebook_size, self.mask_id = config.num_tokens, config.codebook_size, config.mask_id
        self.num_classes, self.null_class = config.num_classes, True
        self.words = nn.Embedding(config.codebook_size + 1, config.width)
        self.positions = nn.Embedding(config.num_tokens, config.width)
        self.classes = nn.Embedding(config.num_classes + 1, config.width)
        self.registers = nn.Embedding(config.registers, config.width) if config.registers else None
        self.blocks = nn.ModuleList(HaltonBlock(config) for _ in range(config.layers))
        self.final_norm = nn.RMSNorm(config.width, eps=_EPSILON)
        self.final_bias = nn.Parameter(torch.zeros(config.width))
        self.final_modulation = nn.Linear(config.width, 2 * config.width)

    def forward(
        self, tokens: Tensor, labels: Tensor | None, positions: Tensor | None = None, extra: Tensor | None = None
    ) -> Tensor:
        x, condition = self._embed(tokens, labels, extra)  # b s d, b d     s = n + registers
        for block in self.blocks[:-1]:
            x = self.run_block(block, x, condition)  # b s d
        return self._read_out(x, condition, positions)  # b n d | b k d | m d

    def with_features(self, tokens: Tensor, labels: Tensor | None, positions: Tensor) -> tuple[Tensor, Features]:
        x, condition = self._embed(tokens, labels)
        states = [x]  # b s d
        for block in self.blocks[:-1]:
            states.append(self.run_block(block, states[-1], condition))
        vectors = self._read_out(states[-1], condition, positions)
        return vectors, tuple(state[:, : self.num_tokens] for state in states)

    def _embed(self, tokens: Tensor, labels: Tensor | None, extra: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the sequence (b, s, d), registers last, and the condition (b, d)."""
        labels = check_inputs(tokens, labels, self.num_tokens, self.num_classes + 1)
        x = self.words(tokens) + self.positions.weight  # b n d
        if extra is not None:
            x = x + extra
        if self.registers is not None:
            x = torch.cat([x, self.registers.weight.expand(len(x), -1, -1)], dim=1)  # b s d
        return x, F.silu(self.classes(labels))

    def _read_out(self, x: Tensor, condition: Tensor, positions: Tensor | None) -> Tensor:
        """Apply the last block, only at the positions, and the modulated norm."""
        in_sequence = positions
        if positions is not None and positions.dtype is torch.bool:
            in_sequence = F.pad(positions, (0, self.config.registers))  # b s
        x = self.run_block(self.blocks[-1], x, condition, in_sequence)  # b s d | b k d | m d
        if positions is None:
            x = x[:, : self.num_tokens]  # b n d
        shift, scale = _per_token(self.final_modulation(condition), positions).chunk(2, dim=-1)
        return (self.final_norm(x) + self.final_bias) * (1 + scale) + shift


class HaltonBlock(nn.Module):
    """A residual block of self-attention and gated MLP, both modulated by the class."""

    def __init__(self, config: HaltonConfig) -> None:
        super().__init__()
        self.heads, self.dropout, self.attention_width = config.heads, config.dropout, config.attention_width
        self.modulation = nn.Linear(config.width, 6 * config.width)  # shift, scale, gate of attention, then of the MLP
        self.attention_norm = nn.RMSNorm(config.width, eps=_EPSILON)
        self.qkv = nn.Linear(config.width, 3 * config.attention_width, bias=False)
        self.out = nn.Linear(config.attention_width, config.width, bias=False)
        self.mlp_norm = nn.RMSNorm(config.width, eps=_EPSILON)
        self.up = nn.Linear(config.width, 2 * config.mlp_width, bias=False)  # the gate of the MLP, then its value
        self.down = nn.Linear(config.mlp_width, config.width, bias=False)

    def forward(self, x: Tensor, condition: Tensor, positions: Tensor | None = None) -> Tensor:
        """Return vectors (b, s, d), or with positions (b, k, d) or (m, d), see `take`.

        x: (b, s, d).
        condition: (b, d).
        """
        # fmt: off
        modulation = self.modulation(condition)                                                    # b 6d
        shift, scale, *_ = modulation[:, None].chunk(6, dim=-1)                                    # b 1 d
        _, _, gate, mlp_shift, mlp_scale, mlp_gate = _per_token(modulation, positions).chunk(6, dim=-1)  # b 1 d | m d
        y = self._attend(self.attention_norm(x) * (1 + scale) + shift, positions)                  # b s r | b k r | m r
        x = x if positions is None else take(x, positions)
        x = x + gate * F.dropout(self.out(y), self.dropout, self.training)                         # b s d | b k d | m d
        # fmt: on
        return x + mlp_gate * self._mlp(self.mlp_norm(x) * (1 + mlp_scale) + mlp_shift)

    def _attend(self, x: Tensor, positions: Tensor | None) -> Tensor:
        r = self.attention_width
        # fmt: off
        if positions is None or positions.dtype is torch.bool:  # rows of a mask are ragged: select after attention
            q, k, v = self.qkv(x).split(r, dim=-1)                                            # b s r, three times
        else:
            q = F.linear(take(x, positions), self.qkv.weight[:r])                             # b k r
            k, v = F.linear(x, self.qkv.weight[r:]).split(r, dim=-1)
        q, k = (F.rms_norm(y, (r,), eps=_EPSILON) for y in (q, k))                            # over all heads together
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (q, k, v))      # b h s r/h
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        y = y.transpose(1, 2).flatten(2)                                                      # b s r
        # fmt: on
        return y[positions] if positions is not None and positions.dtype is torch.bool else y

    def _mlp(self, x: Tensor) -> Tensor:
        gate, value = self.up(x).chunk(2, dim=-1)
        return self.down(F.dropout(F.silu(gate) * value, self.dropout, self.training))


def _per_token(vectors: Tensor, positions: Tensor | None) -> Tensor:
    """Broadcast one vector per image (b, d) to (b, 1, d), or to the m tokens of a mask (b, s) bool: (m, d)."""
    if positions is None or positions.dtype is not torch.bool:
        return vectors[:, None]
    return vectors[positions.nonzero()[:, 0]]


@dataclass(frozen=True)
class HaltonCriticConfig(CriticOptions, HaltonConfig):
    """Sizes and options of a Halton-MaskGIT critic."""


class HaltonCritic(Critic):
    """A critic on the trunk of `HaltonGenerator`."""

    Config = HaltonCriticConfig
    trunk_type = HaltonTrunk


class HaltonGenerator(TrunkGenerator):
    """Halton-MaskGIT's generator. The weights of the head are tied to the embeddings of the codes.

    Unlike the original, there is no logit of the mask token, because only codes are sampled.
    """

    Config = HaltonConfig
    trunk_type, critic_type = HaltonTrunk, HaltonCritic
    trunk: HaltonTrunk

    def __init__(self, config: HaltonConfig) -> None:
        super().__init__(config)
        self.bias = nn.Parameter(torch.zeros(config.codebook_size))
        self.apply(initialize)

    def head(self, vectors: Tensor, positions: Tensor | None) -> Tensor:
        return linear_in_float32(vectors, self.trunk.words.weight[: self.codebook_size], self.bias)
