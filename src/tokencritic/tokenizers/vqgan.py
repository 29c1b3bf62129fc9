"""Convolutional tokenizers: the paper's, MaskGIT's VQGAN, and the VQGAN of taming-transformers (Esser et al., 2021).

Both are chains of the same layers, under the names that their weights have on disk. MaskGIT's has no attention and one quirk:
where a residual block changes the number of channels, its shortcut is a 1x1 convolution of the block's *output*.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokencritic.errors import InputError, check_at_least
from tokencritic.tokenizers.quantizer import Quantizer
from tokencritic.tokenizers.tokenizer import Tokenizer

GROUPS = 32
_EPSILON = 1e-6


@dataclass(frozen=True)
class VQGANConfig:
    """Sizes; the defaults are the paper's for 256 x 256 images.

    image_size: pixels along each side. channels: 3 for colour, 1 for grey. filters: channels of the network at full resolution.
    codebook_size: how many codes there are. multipliers: of `filters`, one per level, each level but the last at twice the
    resolution of the next. blocks: residual blocks at each level and in the middle. code_width: numbers in one code.
    """

    image_size: int = 256
    channels: int = 3
    filters: int = 128
    multipliers: tuple[int, ...] = (1, 1, 2, 2, 4)
    blocks: int = 2
    codebook_size: int = 1024
    code_width: int = 256

    def __post_init__(self) -> None:
        object.__setattr__(self, "multipliers", tuple(self.multipliers))  # JSON has lists
        check_at_least(1, image_size=self.image_size, channels=self.channels, blocks=self.blocks)
        check_at_least(1, codebook_size=self.codebook_size, code_width=self.code_width)
        if self.filters < 1 or self.filters % GROUPS:
            raise InputError(f"filters is {self.filters}; it must be a positive multiple of {GROUPS}")
        if not self.multipliers or min(self.multipliers) < 1:
            raise InputError(f"multipliers is {self.multipliers}; give one positive integer per level")

    @property
    def factor(self) -> int:
        """Pixels along each side of one token."""
        return 2 ** (len(self.multipliers) - 1)

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels at each level, the full resolution first."""
        return tuple(self.filters * multiplier for multiplier in self.multipliers)


PAPER_256 = VQGANConfig()
PAPER_512 = VQGANConfig(image_size=512)


class VQGAN(Tokenizer):
    """MaskGIT's VQGAN. The network is fully convolutional: `image_size` changes no weight."""

    Config = VQGANConfig

    def __init__(self, config: VQGANConfig = PAPER_256) -> None:
        super().__init__(config, config.factor)
        self.encoder, self.decoder = _maskgit_encoder(config), _maskgit_decoder(config)
        self.quantizer = Quantizer(config.codebook_size, config.code_width)

    def to_latents(self, images: Tensor) -> Tensor:
        return self.encoder(_channels_last(images))

    def to_images(self, latents: Tensor) -> Tensor:
        return self.decoder(_channels_last(latents))


@dataclass(frozen=True)
class TamingConfig(VQGANConfig):
    """Sizes; the defaults are those of the published ImageNet model with 1024 codes.

    blocks: residual blocks at each level of the encoder; the decoder has one more. attention: the levels, 0 the finest, with an
    attention block after each residual block; the middle always has one. latent_width: channels between the networks and
    the codebook's convolutions.
    """

    attention: tuple[int, ...] = (4,)
    latent_width: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "attention", tuple(self.attention))  # JSON has lists
        check_at_least(1, latent_width=self.latent_width)
        if not set(self.attention) <= set(range(len(self.multipliers))):
            raise InputError(f"attention is {self.attention}; expected levels from 0 to {len(self.multipliers) - 1}")


PUBLISHED_1024 = TamingConfig()


class TamingVQGAN(Tokenizer):
    """taming-transformers' VQGAN. Inside, images lie in [-1, 1]. `image_size` changes no weight."""

    Config = TamingConfig

    def __init__(self, config: TamingConfig = PUBLISHED_1024) -> None:
        super().__init__(config, config.factor)
        self.encoder, self.decoder = _taming_encoder(config), _taming_decoder(config)
        self.quantizer = Quantizer(config.codebook_size, config.code_width)
        self.quant_conv = nn.Conv2d(config.latent_width, config.code_width, 1)
        self.post_quant_conv = nn.Conv2d(config.code_width, config.latent_width, 1)

    def to_latents(self, images: Tensor) -> Tensor:
        return self.quant_conv(self.encoder(_channels_last(2 * images - 1)))

    def to_images(self, latents: Tensor) -> Tensor:
        return self.decoder(_channels_last(self.post_quant_conv(latents))) / 2 + 0.5


class Chain(nn.Module):
    """Layers under dotted names, which run one after the other.

    layers: in the order in which their weights are kept. order: the names in the order in which they run, if it is another.
    """

    def __init__(self, layers: Mapping[str, nn.Module], order: Iterable[str] = ()) -> None:
        super().__init__()
        self.order = tuple(order or layers)
        for name, layer in layers.items():
            *path, last = name.split(".")
            parent: nn.Module = self
            for part in path:
                if part not in dict(parent.named_children()):
                    parent.add_module(part, nn.Module())
                parent = parent.get_submodule(part)
            parent.add_module(last, layer)

    def forward(self, x: Tensor) -> Tensor:
        for name in self.order:
            x = self.get_submodule(name)(x)
        return x


class ResidualBlock(Chain):
    """Two 3x3 convolutions, each after GroupNorm and swish, on top of the input. maskgit: without bias, and with the quirk."""

    def __init__(self, width: int, new_width: int, maskgit: bool) -> None:
        norm, convolution, shortcut = ("norm_", "conv_", "shortcut") if maskgit else ("norm", "conv", "nin_shortcut")
        layers: dict[str, nn.Module] = {}
        for number, old in ((1, width), (2, new_width)):
            layers[f"{norm}{number}"] = _norm(old)
            layers[f"swish{number}"] = Swish()
            layers[f"{convolution}{number}"] = nn.Conv2d(old, new_width, 3, padding=1, bias=not maskgit)
        super().__init__(layers)
        self.maskgit, self.shortcut_name = maskgit, shortcut if width != new_width else None
        if self.shortcut_name:
            layer = nn.Conv2d(new_width if maskgit else width, new_width, 1, bias=not maskgit)
            self.add_module(self.shortcut_name, layer)

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        if self.shortcut_name:
            x = self.get_submodule(self.shortcut_name)(y if self.maskgit else x)
        return y + x if torch.is_grad_enabled() else y.add_(x)


class Attention(nn.Module):
    """Self-attention of all places with one head, on top of the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = _norm(width)
        self.q, self.k, self.v = (nn.Conv2d(width, width, 1) for _ in range(3))
        self.proj_out = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        # fmt: off
        y = self.norm(x)                                                              # b c h w
        q, k, v = (layer(y).flatten(2).transpose(1, 2) for layer in (self.q, self.k, self.v))   # b hw c
        y = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]  # b hw c
        # fmt: on
        return x + self.proj_out(y.transpose(1, 2).view_as(x))


class Swish(nn.Module):
    """x sigmoid(x). Without gradients it overwrites x."""

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x, inplace=not torch.is_grad_enabled())


def _norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(GROUPS, width, eps=_EPSILON)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _upsample(name: str, convolution: nn.Module) -> dict[str, nn.Module]:
    return {f"{name}.repeat": nn.Upsample(scale_factor=2.0, mode="nearest"), f"{name}.conv": convolution}


def _maskgit_blocks(width: int, new_widths: list[int], count: int) -> list[ResidualBlock]:
    """`count` blocks to each of `new_widths` in turn, the first of them from `width`."""
    widths = [width, *(new for new in new_widths for _ in range(count))]
    return [ResidualBlock(old, new, maskgit=True) for old, new in pairwise(widths)]


def _maskgit_encoder(config: VQGANConfig) -> Chain:
    """Images (b, c, h, w) -> latents (b, code_width, gh, gw). The blocks are those of each level in turn, then the middle's."""
    layers: dict[str, nn.Module] = {"stem": nn.Conv2d(config.channels, config.filters, 3, padding=1, bias=False)}
    blocks = _maskgit_blocks(config.filters, [*config.widths, config.widths[-1]], config.blocks)
    for index, block in enumerate(blocks):
        level, place = divmod(index, config.blocks)
        if place == 0 and 0 < level < len(config.widths):
            layers[f"pools.{level - 1}"] = nn.AvgPool2d(2)
        layers[f"blocks.{index}"] = block
    layers |= {"norm": _norm(config.widths[-1]), "swish": Swish()}
    return Chain(layers | {"head": nn.Conv2d(config.widths[-1], config.code_width, 1)})


def _maskgit_decoder(config: VQGANConfig) -> Chain:
    """(b, code_width, gh, gw) -> images (b, c, h, w). The blocks are the middle's, then those of each level, coarse first."""
    widths = config.widths[::-1]
    layers: dict[str, nn.Module] = {"stem": nn.Conv2d(config.code_width, widths[0], 3, padding=1)}
    blocks = _maskgit_blocks(widths[0], [widths[0], *widths], config.blocks)
    convolutions = [nn.Conv2d(width, width, 3, padding=1) for width in widths[:-1]]
    for index, block in enumerate(blocks):
        level, place = divmod(index, config.blocks)  # level 0 is the middle
        if place == 0 and level > 1:
            layers |= _upsample(f"upsamplers.{level - 2}", convolutions[level - 2])
        layers[f"blocks.{index}"] = block
    layers |= {"norm": _norm(widths[-1]), "swish": Swish()}
    return Chain(layers | {"head": nn.Conv2d(widths[-1], config.channels, 3, padding=1)})


def _taming_level(name: str, width: int, new_width: int, count: int, attention: bool) -> dict[str, nn.Module]:
    """Residual blocks, each followed by attention where the level has it."""
    blocks = [ResidualBlock(new_width if i else width, new_width, maskgit=False) for i in range(count)]
    attentions = [Attention(new_width) for _ in range(count if attention else 0)]
    layers: dict[str, nn.Module] = {}
    for i, block in enumerate(blocks):
        layers |= {f"{name}.block.{i}": block} | ({f"{name}.attn.{i}": attentions[i]} if attention else {})
    return layers


def _taming_middle(width: int) -> dict[str, nn.Module]:
    layers: dict[str, nn.Module] = {"mid.block_1": ResidualBlock(width, width, maskgit=False)}
    layers["mid.attn_1"] = Attention(width)
    return layers | {"mid.block_2": ResidualBlock(width, width, maskgit=False)}


def _taming_encoder(config: TamingConfig) -> Chain:
    """Images (b, c, h, w) -> (b, latent_width, gh, gw)."""
    layers: dict[str, nn.Module] = {"conv_in": nn.Conv2d(config.channels, config.filters, 3, padding=1)}
    widths = [config.filters, *config.widths]
    for i, new in enumerate(config.widths):
        shrink: dict[str, nn.Module] = {}
        if i < len(config.widths) - 1:  # padded below and on the right alone
            shrink[f"down.{i}.pad"] = nn.ZeroPad2d((0, 1, 0, 1))
            shrink[f"down.{i}.downsample.conv"] = nn.Conv2d(new, new, 3, stride=2)
        layers |= _taming_level(f"down.{i}", widths[i], new, config.blocks, i in config.attention) | shrink
    layers |= _taming_middle(config.widths[-1]) | {"norm_out": _norm(config.widths[-1]), "swish": Swish()}
    return Chain(layers | {"conv_out": nn.Conv2d(config.widths[-1], config.latent_width, 3, padding=1)})


def _taming_decoder(config: TamingConfig) -> Chain:
    """(b, latent_width, gh, gw) -> images (b, c, h, w). Levels are kept in the encoder's order and run backwards."""
    first: dict[str, nn.Module] = {"conv_in": nn.Conv2d(config.latent_width, config.widths[-1], 3, padding=1)}
    first |= _taming_middle(config.widths[-1])
    befores, levels = [*config.widths[1:], config.widths[-1]], []
    for i, new in enumerate(config.widths):
        grow = _upsample(f"up.{i}.upsample", nn.Conv2d(new, new, 3, padding=1)) if i else {}
        levels.append(_taming_level(f"up.{i}", befores[i], new, config.blocks + 1, i in config.attention) | grow)
    last: dict[str, nn.Module] = {"norm_out": _norm(config.widths[0]), "swish": Swish()}
    last["conv_out"] = nn.Conv2d(config.widths[0], config.channels, 3, padding=1)
    order = [name for layers in (first, *levels[::-1], last) for name in layers]
    return Chain({name: layer for layers in (first, *levels, last) for name, layer in layers.items()}, order)
