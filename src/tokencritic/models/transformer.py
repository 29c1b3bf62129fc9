"""The bidirectional transformer of generator and critic.

The default is the official MaskGIT architecture: token and position embeddings with LayerNorm, post-norm blocks, tanh
GELU, and a dense readout. The epsilon of LayerNorm is 1e-12. The vocabulary is the codes, the classes, the null class
if there is one, and the mask token, in this order.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tokencritic.contracts import Features, Trunk
from tokencritic.errors import InputError, check_at_least, check_range, is_readable
from tokencritic.masking import take

_EPSILON = 1e-12
_GELU_LINEAR = 2 * math.sqrt(2 / math.pi)
_GELU_CUBIC = 0.044715 * _GELU_LINEAR
_GELU_PIECE = 2**17


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of a transformer. The defaults are the paper's generator for 256 x 256 images.

    num_tokens: N, tokens per image.
    codebook_size: K, number of codes.
    num_classes: number of classes; 0 for an unconditional model.
    null_class: also learn a null class, for classifier-free guidance.
    width: size of a token's vector.
    layers: number of blocks.
    heads: attention heads, which divide the width.
    mlp_width: hidden size of the MLP.
    dropout: dropout rate in training, in [0, 1).
    norm_first: pre-norm instead of post-norm blocks.
    """

    num_tokens: int = 256
    codebook_size: int = 1024
    num_classes: int = 1000
    null_class: bool = False
    width: int = 768
    layers: int = 24
    heads: int = 16
    mlp_width: int = 3072
    dropout: float = 0.1
    norm_first: bool = False

    def __post_init__(self) -> None:
        sizes = ("num_tokens", "codebook_size", "width", "layers", "heads", "mlp_width")
        check_at_least(1, **{name: vars(self)[name] for name in sizes})
        if self.num_classes < 0:
            raise InputError(f"num_classes is {self.num_classes}; it must be 0 or more")
        if self.null_class and not self.num_classes:
            raise InputError("null_class is true but num_classes is 0; expected at least 1")
        if self.width % self.heads:
            raise InputError(f"width is {self.width}; it must be a multiple of heads, {self.heads}")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout is {self.dropout}; it must lie in [0, 1)")

    @property
    def num_labels(self) -> int:
        """The number of labels: the classes and, last, the null class if there is one."""
        return self.num_classes + self.null_class

    @property
    def mask_id(self) -> int:
        return self.codebook_size + self.num_labels

    @property
    def vocabulary_size(self) -> int:
        return self.mask_id + 1


class TransformerTrunk(Trunk):
    """MaskGIT's transformer without its head. Subclasses may change these attributes.

    exact_gelu: use the exact GELU instead of its tanh approximation.
    has_readout: a dense layer, GELU and LayerNorm follow the blocks.
    """

    exact_gelu: ClassVar[bool] = False
    has_readout: ClassVar[bool] = True

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config, self.width = config, config.width
        self.num_tokens, self.codebook_size, self.mask_id = config.num_tokens, config.codebook_size, config.mask_id
        self.num_classes, self.null_class = config.num_classes, config.null_class
        self.prefix = 1 if config.num_classes else 0  # the class token comes first
        self.words = nn.Embedding(config.vocabulary_size, config.width)
        self.positions = nn.Embedding(self.prefix + config.num_tokens, config.width)
        self.embedding_norm = nn.LayerNorm(config.width, eps=_EPSILON)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(self._make_block(index) for index in range(config.layers))
        self.final_norm = nn.LayerNorm(config.width, eps=_EPSILON) if config.norm_first else nn.Identity()
        if self.has_readout:
            self.readout = nn.Linear(config.width, config.width)
            self.readout_norm = nn.LayerNorm(config.width, eps=_EPSILON)

    def forward(
        self, tokens: Tensor, labels: Tensor | None, positions: Tensor | None = None, extra: Tensor | None = None
    ) -> Tensor:
        x = self._embed(tokens, labels, extra)  # b s d     s = n + 1 with classes, else n
        for block in self.blocks[:-1]:
            x = self.run_block(block, x)  # b s d
        return self._read_out(x, positions)  # b n d | b k d | m d

    def with_features(self, tokens: Tensor, labels: Tensor | None, positions: Tensor) -> tuple[Tensor, Features]:
        states = [self._embed(tokens, labels)]  # b s d
        for block in self.blocks[:-1]:
            states.append(self.run_block(block, states[-1]))
        return self._read_out(states[-1], positions), tuple(x[:, self.prefix :] for x in states)

    def _embed(self, tokens: Tensor, labels: Tensor | None, extra: Tensor | None = None) -> Tensor:
        # fmt: off
        ids = self._prepend_class(tokens, labels)                         # b s
        x = self.words(ids) + self.positions.weight                       # b s d
        if extra is not None:
            x[:, self.prefix :] += extra
        return self.dropout(self.embedding_norm(x))                       # b s d
        # fmt: on

    def _read_out(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """Apply the last block, only at the positions, and the dense readout if there is one."""
        # fmt: off
        x = self.run_block(self.blocks[-1], x, self._in_sequence(positions))   # b s d | b k d | m d
        if positions is None:
            x = x[:, self.prefix :]                                       # b n d
        # fmt: on
        x = self.final_norm(x)
        if not self.has_readout:
            return x
        return self.readout_norm(activation(self.exact_gelu)(self.readout(x)))

    def _make_block(self, index: int) -> nn.Module:
        return Block(self.config, exact_gelu=self.exact_gelu)

    def _prepend_class(self, tokens: Tensor, labels: Tensor | None) -> Tensor:
        labels = check_inputs(tokens, labels, self.num_tokens, self.config.num_labels)
        return tokens if labels is None else torch.cat([labels[:, None] + self.codebook_size, tokens], dim=1)

    def _in_sequence(self, positions: Tensor | None) -> Tensor | None:
        """Return positions in the sequence, which may start with the class token, from positions of tokens."""
        if positions is None or not self.prefix:
            return positions
        return F.pad(positions, (1, 0)) if positions.dtype is torch.bool else positions + 1


class Block(nn.Module):
    """A residual block of self-attention and MLP.

    exact_gelu: as in `TransformerTrunk`.
    qkv_bias: queries, keys and values have a bias.
    epsilon: the epsilon of LayerNorm.
    """

    def __init__(
        self,
        config: TransformerConfig,
        *,
        exact_gelu: bool = False,
        qkv_bias: bool = True,
        epsilon: float = _EPSILON,
    ) -> None:
        super().__init__()
        self.activation = activation(exact_gelu)
        self.heads, self.dropout, self.norm_first = config.heads, config.dropout, config.norm_first
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=qkv_bias)
        self.out = nn.Linear(config.width, config.width)
        self.attention_norm = nn.LayerNorm(config.width, eps=epsilon)
        self.up = nn.Linear(config.width, config.mlp_width)
        self.down = nn.Linear(config.mlp_width, config.width)
        self.mlp_norm = nn.LayerNorm(config.width, eps=epsilon)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Return vectors (b, s, d), or with positions (b, k, d) or (m, d), see `take`. x: (b, s, d)."""
        attended = self._attend(self.attention_norm(x) if self.norm_first else x, positions)  # b s d | b k d | m d
        x = x if positions is None else take(x, positions)
        if self.norm_first:
            x = x + self._drop(self.out(attended))
            return x + self._drop(self._mlp(self.mlp_norm(x)))
        x = self.attention_norm(x + self._drop(self.out(attended)))
        return self.mlp_norm(x + self._drop(self._mlp(x)))

    def _attend(self, x: Tensor, positions: Tensor | None) -> Tensor:
        width = x.shape[-1]
        # fmt: off
        if positions is None or positions.dtype is torch.bool:  # rows of a mask are ragged: select after attention
            q, k, v = self.qkv(x).split(width, dim=-1)                                        # b s d, three times
        else:
            bias = (None, None) if self.qkv.bias is None else self.qkv.bias.tensor_split([width])
            q = F.linear(take(x, positions), self.qkv.weight[:width], bias[0])                # b k d
            k, v = F.linear(x, self.qkv.weight[width:], bias[1]).chunk(2, dim=-1)
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (q, k, v))      # b h s d/h
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        y = y.transpose(1, 2).flatten(2)                                                      # b s d
        # fmt: on
        return y[positions] if positions is not None and positions.dtype is torch.bool else y

    def _mlp(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


def check_inputs(tokens: Tensor, labels: Tensor | None, num_tokens: int, num_labels: int) -> Tensor | None:
    """Raise InputError unless tokens are (b, num_tokens) and labels (b,) in [0, num_labels).

    Returns the labels, or None if num_labels is 0.
    """
    if tokens.ndim != 2 or tokens.shape[1] != num_tokens:
        raise InputError(f"tokens has shape {tuple(tokens.shape)}; expected (images, {num_tokens})")
    if not num_labels:
        return None
    if labels is None or labels.shape != tokens.shape[:1]:
        got = "None" if labels is None else f"of shape {tuple(labels.shape)}"
        raise InputError(f"labels is {got}; expected one label for each of {len(tokens)} images")
    if is_readable(labels):
        check_range("labels", labels, num_labels)
    return labels


def linear_in_float32(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply a linear layer in float32 or better, so that in half precision codes with close logits keep their order."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    return F.linear(x.to(dtype), weight.to(dtype), bias.to(dtype))


def activation(exact_gelu: bool) -> Callable[[Tensor], Tensor]:
    """Return the exact GELU or its tanh approximation."""
    return F.gelu if exact_gelu else gelu


def gelu(x: Tensor) -> Tensor:
    """Compute the tanh approximation of GELU, which the official weights need.

    Without gradients, x may be overwritten. On a CPU, it can only be differentiated once.
    """
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64) or torch.compiler.is_compiling():
        return F.gelu(x, approximate="tanh")
    if torch.is_grad_enabled():
        return _Gelu.apply(x)  # pyright: ignore[reportReturnType]
    # 0.5 x (1 + tanh u) = x sigmoid(2 u). On a CPU, sigmoid is three times as fast as tanh, and small pieces that are
    # changed in place stay in the cache.
    linear = x.new_tensor(_GELU_LINEAR)
    for piece in x.view(-1).split(_GELU_PIECE):
        piece.mul_(torch.addcmul(linear, piece, piece, value=_GELU_CUBIC).mul_(piece).sigmoid_())
    return x


class _Gelu(torch.autograd.Function):
    """GELU with gradients. Forward saves the slope instead of x, so that backward is one product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        value, slope = torch.empty_like(x), torch.empty_like(x)
        linear, offset = x.new_tensor(_GELU_LINEAR), x.new_tensor(-2 * _GELU_LINEAR)
        for x_, y, s in zip(*(t.view(-1).split(_GELU_PIECE) for t in (x, value, slope)), strict=True):
            q = torch.addcmul(linear, x_, x_, value=_GELU_CUBIC)  # 2 u / x
            torch.mul(x_, q, out=s).sigmoid_()
            torch.mul(x_, s, out=y)
            # (x s)' = s + x s (1 - s) (2 u)', and (2 u)' = 3 q - 2 linear.
            s.addcmul_(torch.addcmul(y, y, s, value=-1), torch.add(offset, q, alpha=3))
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        (slope,) = ctx.saved_tensors
        return gradient * slope


def initialize(module: nn.Module) -> None:
    """Initialize a module as in the paper: weights from a normal with std 0.02, truncated at 2 std, and biases 0."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.trunc_normal_(module.weight, std=0.02, a=-0.04, b=0.04)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
