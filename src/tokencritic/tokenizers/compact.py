"""A compact tokenizer for small images that trains on a CPU in minutes.

All layers work at the resolution of the token grid. Patches of the image become channels, residual blocks mix
neighbouring positions, and the decoder mirrors the encoder.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokencritic.errors import InputError, check_at_least
from tokencritic.tokenizers.quantizer import Quantizer
from tokencritic.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class CompactConfig:
    """Sizes of a `CompactTokenizer`. The defaults are for grey images of 28 x 28 pixels and 7 x 7 tokens.

    image_size: pixels along each side.
    channels: 3 for colour, 1 for grey.
    factor: pixels along each side of one token.
    margin: black padding on each side, which makes the size a multiple of the factor and is cropped after decoding.
    width: channels of the network.
    encoder_blocks, decoder_blocks: number of residual blocks.
    encoder_kernel: kernel size of the encoder's convolutions, odd. With 1, a token depends only on its own pixels.
    codebook_size: number of codes.
    code_width: dimension of a code.
    """

    image_size: int = 28
    channels: int = 1
    factor: int = 4
    margin: int = 0
    width: int = 64
    encoder_blocks: int = 1
    decoder_blocks: int = 2
    encoder_kernel: int = 3
    codebook_size: int = 512
    code_width: int = 8

    def __post_init__(self) -> None:
        check_at_least(1, image_size=self.image_size, channels=self.channels, factor=self.factor, width=self.width)
        check_at_least(1, codebook_size=self.codebook_size, code_width=self.code_width)
        check_at_least(0, margin=self.margin, encoder_blocks=self.encoder_blocks, decoder_blocks=self.decoder_blocks)
        if self.encoder_kernel < 1 or self.encoder_kernel % 2 == 0:
            raise InputError(f"encoder_kernel is {self.encoder_kernel}; it must be odd")


# 14 x 14 tokens, each of which depends only on its own 2 x 2 pixels.
FASHION_MNIST = CompactConfig(factor=2, width=48, encoder_kernel=1, codebook_size=128, code_width=4)
CIFAR_10 = CompactConfig(image_size=32, channels=3, width=128, decoder_blocks=4, codebook_size=1024)


class CompactTokenizer(Tokenizer):
    """A tokenizer of patches, residual blocks on the token grid and a codebook, with a mirrored decoder."""

    Config = CompactConfig

    def __init__(self, config: CompactConfig = FASHION_MNIST) -> None:
        super().__init__(config, config.factor, config.margin)
        pixels = config.channels * config.factor**2
        kernel = config.encoder_kernel
        self.embed = nn.Conv2d(pixels, config.width, kernel, padding=kernel // 2)
        self.encoder = nn.Sequential(*(Block(config.width, kernel) for _ in range(config.encoder_blocks)))
        self.to_code = nn.Sequential(ChannelNorm(config.width), nn.Conv2d(config.width, config.code_width, 1))
        self.quantizer = Quantizer(config.codebook_size, config.code_width)
        self.from_code = nn.Conv2d(config.code_width, config.width, 3, padding=1)
        self.decoder = nn.Sequential(*(Block(config.width) for _ in range(config.decoder_blocks)))
        self.to_pixels = nn.Sequential(ChannelNorm(config.width), nn.Conv2d(config.width, pixels, 3, padding=1))

    def to_latents(self, images: Tensor) -> Tensor:
        # fmt: off
        x = F.pad(images, (self.margin,) * 4)                                 # b c h+2m w+2m
        x = F.pixel_unshuffle(2 * x - 1, self.factor)                         # b c*f*f gh gw
        x = self.embed(x.contiguous(memory_format=torch.channels_last))       # b w gh gw
        return self.to_code(self.encoder(x))                                  # b d gh gw
        # fmt: on

    def to_images(self, latents: Tensor) -> Tensor:
        # fmt: off
        x = self.decoder(self.from_code(latents))                             # b w gh gw
        x = F.pixel_shuffle(self.to_pixels(x), self.factor) / 2 + 0.5         # b c h+2m w+2m
        return F.pad(x, (-self.margin,) * 4)                                  # b c h w
        # fmt: on


class Block(nn.Module):
    """A residual block: a convolution over neighbouring positions, then a 1 x 1 convolution over the channels."""

    def __init__(self, width: int, kernel: int = 3) -> None:
        super().__init__()
        self.norm = ChannelNorm(width)
        self.mix = nn.Conv2d(width, width, kernel, padding=kernel // 2)
        self.out = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.out(F.silu(self.mix(self.norm(x))))


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of (b, c, h, w). It does not copy tensors in the channels-last memory format."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the parent's name)
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
