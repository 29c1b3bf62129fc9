"""The paper's tokenizer: MaskGIT's VQGAN, a convolutional encoder and decoder without attention.

It computes what the official weights need, quirk included: where a residual block changes the number of channels, its
shortcut is a 1x1 convolution of the block's *output*.
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
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.quantizer = Quantizer(config.codebook_size, config.code_width)

    @property
    def last_layer(self) -> Tensor:
        return self.decoder.head.weight

    def to_latents(self, images: Tensor) -> Tensor:
        return self.encoder(images)

    def to_images(self, latents: Tensor) -> Tensor:
        return self.decoder(latents)


class Encoder(nn.Module):
    """Images (b, c, h, w) -> latents (b, d, gh, gw). `blocks` holds those of each level in turn, then the middle's."""

    def __init__(self, config: VQGANConfig) -> None:
        super().__init__()
        self.per_level, self.levels = config.blocks, len(config.widths)
        self.stem = nn.Conv2d(config.channels, config.filters, 3, padding=1, bias=False)
        self.blocks = residual_blocks(config.filters, [*config.widths, config.widths[-1]], config.blocks)
        self.norm = group_norm(config.widths[-1])
        self.head = nn.Conv2d(config.widths[-1], config.code_width, 1)

    def forward(self, x: Tensor) -> Tensor:
        # fmt: off
        x = self.stem(x.contiguous(memory_format=torch.channels_last))        # b f h w
        for index, block in enumerate(self.blocks):
            x = block(x)
            level, place = divmod(index, self.per_level)
            if place == self.per_level - 1 and level < self.levels - 1:
                x = F.avg_pool2d(x, 2)                                        # b f h/2 w/2
        return self.head(swish(self.norm(x)))                                 # b d gh gw
        # fmt: on


class Decoder(nn.Module):
    """Latents (b, d, gh, gw) -> images (b, c, h, w). `blocks` holds the middle's, then those of each level, coarse first."""

    def __init__(self, config: VQGANConfig) -> None:
        super().__init__()
        self.per_level = config.blocks
        widths = config.widths[::-1]
        self.stem = nn.Conv2d(config.code_width, widths[0], 3, padding=1)
        self.blocks = residual_blocks(widths[0], [widths[0], *widths], config.blocks)
        self.upsamplers = nn.ModuleList(Upsample(width) for width in widths[:-1])
        self.norm = group_norm(widths[-1])
        self.head = nn.Conv2d(widths[-1], config.channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        # fmt: off
        x = self.stem(x.contiguous(memory_format=torch.channels_last))        # b f gh gw
        for index, block in enumerate(self.blocks):
            x = block(x)
            level, place = divmod(index, self.per_level)                      # level 0 is the middle
            if place == self.per_level - 1 and 0 < level <= len(self.upsamplers):
                x = self.upsamplers[level - 1](x)                             # b f 2h 2w
        return self.head(swish(self.norm(x)))                                 # b c h w
        # fmt: on


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions without bias, each after GroupNorm and swish."""

    def __init__(self, width: int, new_width: int) -> None:
        super().__init__()
        self.norm_1 = group_norm(width)
        self.conv_1 = nn.Conv2d(width, new_width, 3, padding=1, bias=False)
        self.norm_2 = group_norm(new_width)
        self.conv_2 = nn.Conv2d(new_width, new_width, 3, padding=1, bias=False)
        self.shortcut = None if width == new_width else nn.Conv2d(new_width, new_width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv_1(swish(self.norm_1(x)))
        y = self.conv_2(swish(self.norm_2(y)))
        # Not `shortcut(x)`: the official weights were trained with the block's output here.
        rest = x if self.shortcut is None else self.shortcut(y)
        return y + rest if torch.is_grad_enabled() else y.add_(rest)


class Upsample(nn.Module):
    """Each pixel repeated 2 x 2, then a 3x3 convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


def residual_blocks(width: int, new_widths: list[int], count: int) -> nn.ModuleList:
    """`count` blocks to each of `new_widths` in turn, the first of them from `width`."""
    blocks = nn.ModuleList()
    for new_width in new_widths:
        for _ in range(count):
            blocks.append(ResidualBlock(width, new_width))
            width = new_width
    return blocks


def group_norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(GROUPS, width, eps=_EPSILON)


def swish(x: Tensor) -> Tensor:
    """x sigmoid(x). Without gradients it overwrites x."""
    return F.silu(x, inplace=not torch.is_grad_enabled())
