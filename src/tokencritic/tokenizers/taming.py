"""The VQGAN of taming-transformers (Esser et al., 2021): with attention, and convolutions around the codebook.

Inside, images lie in [-1, 1]. Modules are named and nested as in the published checkpoints.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokencritic.errors import InputError, check_at_least
from tokencritic.tokenizers.quantizer import Quantizer
from tokencritic.tokenizers.tokenizer import Tokenizer
from tokencritic.tokenizers.vqgan import Upsample, VQGANConfig, group_norm, swish


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
    """taming-transformers' VQGAN. But for the attention the network is convolutional: `image_size` changes no weight."""

    Config = TamingConfig

    def __init__(self, config: TamingConfig = PUBLISHED_1024) -> None:
        super().__init__(config, config.factor)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.quantizer = Quantizer(config.codebook_size, config.code_width)
        self.quant_conv = nn.Conv2d(config.latent_width, config.code_width, 1)
        self.post_quant_conv = nn.Conv2d(config.code_width, config.latent_width, 1)

    @property
    def last_layer(self) -> Tensor:
        return self.decoder.conv_out.weight

    def to_latents(self, images: Tensor) -> Tensor:
        return self.quant_conv(self.encoder(2 * images - 1))

    def to_images(self, latents: Tensor) -> Tensor:
        return self.decoder(self.post_quant_conv(latents)) / 2 + 0.5


class Encoder(nn.Module):
    """Images (b, c, h, w) -> (b, latent_width, gh, gw)."""

    def __init__(self, config: TamingConfig) -> None:
        super().__init__()
        self.conv_in = nn.Conv2d(config.channels, config.filters, 3, padding=1)
        widths, last = [config.filters, *config.widths], len(config.widths) - 1
        self.down = nn.ModuleList(
            Level(widths[i], new, config.blocks, i in config.attention, Downsample(new) if i < last else None)
            for i, new in enumerate(config.widths)
        )
        self.mid = Middle(config.widths[-1])
        self.norm_out = group_norm(config.widths[-1])
        self.conv_out = nn.Conv2d(config.widths[-1], config.latent_width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        # fmt: off
        x = self.conv_in(x.contiguous(memory_format=torch.channels_last))     # b f h w
        for level in self.down:
            x = level(x)                                                      # b f h/2 w/2
        return self.conv_out(swish(self.norm_out(self.mid(x))))               # b d gh gw
        # fmt: on


class Decoder(nn.Module):
    """(b, latent_width, gh, gw) -> images (b, c, h, w). `up` is kept in the encoder's order and run backwards."""

    def __init__(self, config: TamingConfig) -> None:
        super().__init__()
        self.conv_in = nn.Conv2d(config.latent_width, config.widths[-1], 3, padding=1)
        self.mid = Middle(config.widths[-1])
        befores = [*config.widths[1:], config.widths[-1]]
        self.up = nn.ModuleList(
            Level(befores[i], new, config.blocks + 1, i in config.attention, Upsample(new) if i else None)
            for i, new in enumerate(config.widths)
        )
        self.norm_out = group_norm(config.widths[0])
        self.conv_out = nn.Conv2d(config.widths[0], config.channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        # fmt: off
        x = self.mid(self.conv_in(x.contiguous(memory_format=torch.channels_last)))   # b f gh gw
        for level in reversed(self.up):
            x = level(x)                                                              # b f 2h 2w
        return self.conv_out(swish(self.norm_out(x)))                                 # b c h w
        # fmt: on


class Level(nn.Module):
    """Residual blocks, each followed by attention where the level has it, then a change of resolution."""

    def __init__(
        self, width: int, new_width: int, blocks: int, attention: bool, resample: "Downsample | Upsample | None"
    ) -> None:
        super().__init__()
        self.block = nn.ModuleList(ResidualBlock(new_width if i else width, new_width) for i in range(blocks))
        self.attn = nn.ModuleList(Attention(new_width) for _ in range(blocks if attention else 0))
        self.downsample = resample if isinstance(resample, Downsample) else None
        self.upsample = resample if isinstance(resample, Upsample) else None

    def forward(self, x: Tensor) -> Tensor:
        for index, block in enumerate(self.block):
            x = block(x)
            if len(self.attn):
                x = self.attn[index](x)
        if self.downsample is not None:
            x = self.downsample(x)
        return x if self.upsample is None else self.upsample(x)


class Middle(nn.Module):
    """A residual block, attention, and another residual block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block_1 = ResidualBlock(width, width)
        self.attn_1 = Attention(width)
        self.block_2 = ResidualBlock(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.block_2(self.attn_1(self.block_1(x)))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions, each after GroupNorm and swish; the shortcut is of the block's input."""

    def __init__(self, width: int, new_width: int) -> None:
        super().__init__()
        self.norm1 = group_norm(width)
        self.conv1 = nn.Conv2d(width, new_width, 3, padding=1)
        self.norm2 = group_norm(new_width)
        self.conv2 = nn.Conv2d(new_width, new_width, 3, padding=1)
        self.nin_shortcut = None if width == new_width else nn.Conv2d(width, new_width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(swish(self.norm1(x)))
        y = self.conv2(swish(self.norm2(y)))
        return y + (x if self.nin_shortcut is None else self.nin_shortcut(x))


class Attention(nn.Module):
    """Self-attention of all places with one head, on top of the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = group_norm(width)
        self.q, self.k, self.v = (nn.Conv2d(width, width, 1) for _ in range(3))
        self.proj_out = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        # fmt: off
        y = self.norm(x)                                                              # b c h w
        q, k, v = (layer(y).flatten(2).transpose(1, 2) for layer in (self.q, self.k, self.v))   # b hw c
        y = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]  # b hw c
        # fmt: on
        return x + self.proj_out(y.transpose(1, 2).view_as(x))


class Downsample(nn.Module):
    """A 3x3 convolution with stride 2, padded below and on the right alone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, (0, 1, 0, 1)))
