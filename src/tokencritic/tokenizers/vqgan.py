"""Convolutional tokenizers: the paper's, MaskGIT's VQGAN, and the VQGAN of taming-transformers (Esser et al., 2021).

Both VQGANs are chains of the same layers, which have the names of the published torch weights. MaskGIT's VQGAN has no
attention. If one of its residual blocks changes the number of channels, the shortcut is a 1x1 convolution of the
block's *output*.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokencritic.errors import InputError, check_at_least
from tokencritic.tokenizers.quantizer import Quantizer
from tokencritic.tokenizers.tokenizer import Tokenizer

GROUPS = 32
_EPSILON = 1e-6


@dataclass(frozen=True)
class LevelsConfig:
    """Sizes of a convolutional encoder and of its mirror image, the decoder.

    image_size: pixels along each side.
    channels: 3 for colour, 1 for grey.
    filters: channels of the network at full resolution.
    multipliers: factors of `filters`, one per level. Each level has half the resolution of the one before.
    blocks: residual blocks at each level and in the middle.
    """

    image_size: int = 256
    channels: int = 3
    filters: int = 128
    multipliers: tuple[int, ...] = (1, 1, 2, 2, 4)
    blocks: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "multipliers", tuple(self.multipliers))  # JSON has lists
        check_at_least(1, image_size=self.image_size, channels=self.channels, blocks=self.blocks)
        if self.filters < 1 or self.filters % GROUPS:
            raise InputError(f"filters is {self.filters}; it must be a positive multiple of {GROUPS}")
        if not self.multipliers or min(self.multipliers) < 1:
            raise InputError(f"multipliers is {self.multipliers}; give one positive integer per level")

    @property
    def factor(self) -> int:
        """The number of pixels along each side of one token."""
        return 2 ** (len(self.multipliers) - 1)

    @property
    def widths(self) -> tuple[int, ...]:
        """The channels of each level, the full resolution first."""
        return tuple(self.filters * multiplier for multiplier in self.multipliers)


@dataclass(frozen=True)
class VQGANConfig(LevelsConfig):
    """Sizes of a VQGAN. The defaults are the paper's for 256 x 256 images.

    codebook_size: number of codes.
    code_width: dimension of a code.
    """

    codebook_size: int = 1024
    code_width: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, codebook_size=self.codebook_size, code_width=self.code_width)


PAPER_256 = VQGANConfig()
PAPER_512 = VQGANConfig(image_size=512)


class VQGAN(Tokenizer):
    """MaskGIT's VQGAN. It is fully convolutional, so the weights do not depend on `image_size`."""

    Config = VQGANConfig

    def __init__(self, config: VQGANConfig = PAPER_256) -> None:
        super().__init__(config, config.factor)
        self.encoder = make_encoder(config, config.code_width, maskgit=True, strided=False)
        self.decoder = make_decoder(config, config.code_width, maskgit=True)
        self.quantizer = Quantizer(config.codebook_size, config.code_width)

    def to_latents(self, images: Tensor) -> Tensor:
        return self.encoder(images)

    def to_images(self, latents: Tensor) -> Tensor:
        return self.decoder(latents)


@dataclass(frozen=True)
class TamingConfig(VQGANConfig):
    """Sizes of taming-transformers' VQGAN. The defaults are the published ImageNet model with 1024 codes.

    blocks: residual blocks at each level of the encoder; the decoder has one more.
    attention: the levels, 0 the finest, with an attention block after each residual block; the middle always has one.
    latent_width: channels between the networks and the codebook's convolutions.
    """

    attention: tuple[int, ...] = (4,)
    latent_width: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "attention", tuple(self.attention))  # JSON has lists
        check_at_least(1, latent_width=self.latent_width)
        if not set(self.attention) <= set(range(len(self.multipliers))):
            raise InputError(f"attention is {self.attention}; expected levels from 0 to {len(self.multipliers) - 1}")


class TamingVQGAN(Tokenizer):
    """taming-transformers' VQGAN. The networks work on images in [-1, 1]. The weights do not depend on `image_size`."""

    Config = TamingConfig

    def __init__(self, config: TamingConfig) -> None:
        super().__init__(config, config.factor)
        self.encoder = make_encoder(config, config.latent_width, config.attention, maskgit=False, strided=True)
        self.decoder = make_decoder(config, config.latent_width, config.attention, maskgit=False)
        self.quantizer = Quantizer(config.codebook_size, config.code_width)
        self.quant_conv = nn.Conv2d(config.latent_width, config.code_width, 1)
        self.post_quant_conv = nn.Conv2d(config.code_width, config.latent_width, 1)

    def to_latents(self, images: Tensor) -> Tensor:
        return self.quant_conv(self.encoder(2 * images - 1))

    def to_images(self, latents: Tensor) -> Tensor:
        return self.decoder(self.post_quant_conv(latents)) / 2 + 0.5


class Chain(nn.Module):
    """A sequence of layers with dotted names, in the channels-last memory format."""

    def __init__(self, layers: dict[str, nn.Module]) -> None:
        super().__init__()
        self.order = tuple(layers)
        for name, layer in layers.items():
            *path, last = name.split(".")
            parent: nn.Module = self
            for part in path:
                if part not in dict(parent.named_children()):
                    parent.add_module(part, nn.Module())
                parent = parent.get_submodule(part)
            parent.add_module(last, layer)

    def forward(self, x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        for name in self.order:
            x = self.get_submodule(name)(x)
        return x


class NormSwish(nn.GroupNorm):
    """GroupNorm followed by swish, x sigmoid(x). Without gradients, swish works in place."""

    def __init__(self, width: int) -> None:
        super().__init__(GROUPS, width, eps=_EPSILON)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the parent's name)
        return F.silu(super().forward(input), inplace=not torch.is_grad_enabled())


class ResidualBlock(nn.Module):
    """A residual block of two 3x3 convolutions, each after GroupNorm and swish.

    maskgit: the convolutions have no bias, and the shortcut is a convolution of the block's output.
    """

    def __init__(self, width: int, new_width: int, maskgit: bool) -> None:
        super().__init__()
        self.maskgit = maskgit
        self.norm1, self.norm2 = NormSwish(width), NormSwish(new_width)
        self.conv1 = nn.Conv2d(width, new_width, 3, padding=1, bias=not maskgit)
        self.conv2 = nn.Conv2d(new_width, new_width, 3, padding=1, bias=not maskgit)
        self.nin_shortcut = None
        if width != new_width:
            self.nin_shortcut = nn.Conv2d(new_width if maskgit else width, new_width, 1, bias=not maskgit)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(self.norm2(self.conv1(self.norm1(x))))
        if self.nin_shortcut is not None:
            x = self.nin_shortcut(y if self.maskgit else x)
        return y + x if torch.is_grad_enabled() else y.add_(x)


class Attention(nn.Module):
    """A residual block of self-attention over all places with one head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, width, eps=_EPSILON)
        self.q, self.k, self.v = (nn.Conv2d(width, width, 1) for _ in range(3))
        self.proj_out = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        # fmt: off
        y = self.norm(x)                                                              # b c h w
        q, k, v = (layer(y).flatten(2).transpose(1, 2) for layer in (self.q, self.k, self.v))   # b hw c
        y = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]  # b hw c
        # fmt: on
        return x + self.proj_out(y.transpose(1, 2).view_as(x))


def make_encoder(
    config: LevelsConfig, latent_width: int, attention: tuple[int, ...] = (), *, maskgit: bool, strided: bool
) -> Chain:
    """Make an encoder: images (b, c, h, w) -> latents (b, latent_width, gh, gw).

    strided: downsample with convolutions of stride 2 instead of average pooling.
    """
    layers: dict[str, nn.Module] = {}
    layers["conv_in"] = nn.Conv2d(config.channels, config.filters, 3, padding=1, bias=not maskgit)
    width = config.filters
    for i, new_width in enumerate(config.widths):
        layers |= _level(f"down.{i}", width, new_width, config.blocks, i in attention, maskgit)
        width = new_width
        if i == len(config.widths) - 1:
            break
        if not strided:
            layers[f"down.{i}.pool"] = nn.AvgPool2d(2)
        else:  # padded only at the bottom and the right
            layers[f"down.{i}.pad"] = nn.ZeroPad2d((0, 1, 0, 1))
            layers[f"down.{i}.downsample.conv"] = nn.Conv2d(width, width, 3, stride=2)
    layers |= _middle(config, maskgit)
    layers["norm_out"] = NormSwish(width)
    kernel = 1 if maskgit else 3
    layers["conv_out"] = nn.Conv2d(width, latent_width, kernel, padding=kernel // 2)
    return Chain(layers)


def make_decoder(config: LevelsConfig, latent_width: int, attention: tuple[int, ...] = (), *, maskgit: bool) -> Chain:
    """Make a decoder: latents (b, latent_width, gh, gw) -> images (b, c, h, w).

    Levels are numbered from the finest and run in reverse order.
    """
    width = config.widths[-1]
    layers: dict[str, nn.Module] = {"conv_in": nn.Conv2d(latent_width, width, 3, padding=1)}
    layers |= _middle(config, maskgit)
    blocks = config.blocks if maskgit else config.blocks + 1
    for i, new_width in reversed(list(enumerate(config.widths))):
        layers |= _level(f"up.{i}", width, new_width, blocks, i in attention, maskgit)
        width = new_width
        if i:
            layers[f"up.{i}.repeat"] = nn.Upsample(scale_factor=2.0, mode="nearest")
            name = "upsample_conv" if maskgit else "upsample.conv"
            layers[f"up.{i}.{name}"] = nn.Conv2d(width, width, 3, padding=1)
    layers["norm_out"] = NormSwish(width)
    layers["conv_out"] = nn.Conv2d(width, config.channels, 3, padding=1)
    return Chain(layers)


def _level(name: str, width: int, new_width: int, count: int, attention: bool, maskgit: bool) -> dict[str, nn.Module]:
    """Make the residual blocks of a level, each followed by attention if the level has attention."""
    layers: dict[str, nn.Module] = {}
    for i in range(count):
        layers[f"{name}.block.{i}"] = ResidualBlock(new_width if i else width, new_width, maskgit)
        if attention:
            layers[f"{name}.attn.{i}"] = Attention(new_width)
    return layers


def _middle(config: LevelsConfig, maskgit: bool) -> dict[str, nn.Module]:
    """Make the middle: `blocks` residual blocks for MaskGIT, else two residual blocks with attention between them."""
    width = config.widths[-1]
    if maskgit:
        return {f"mid.{i}": ResidualBlock(width, width, maskgit) for i in range(config.blocks)}
    layers: dict[str, nn.Module] = {"mid.block_1": ResidualBlock(width, width, maskgit)}
    return layers | {"mid.attn_1": Attention(width), "mid.block_2": ResidualBlock(width, width, maskgit)}
