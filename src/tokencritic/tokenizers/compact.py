"""A compact tokenizer for small images, made to be trained on a CPU in minutes.

All work is done at the resolution of the token grid, where it is matrix products: the image's patches become channels, a
few residual blocks mix neighbouring places, and the decoder mirrors the encoder.
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
    """Sizes; the defaults are for 28 x 28 grey images, 7 x 7 tokens.

    image_size: pixels along each side. channels: 3 for colour, 1 for grey. codebook_size: how many codes there are.
    factor: pixels along each side of one token. margin: black pixels that are added around the image, so that its size becomes
    a multiple of the factor, and cut off again. width: channels of the network. encoder_blocks, decoder_blocks: residual
    blocks of each side. encoder_kernel: of the encoder's convolutions; with 1, a token tells of its own pixels alone.
    code_width: numbers in one code.
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


# 14 x 14 tokens, each of which tells of its own 2 x 2 pixels alone: hardly anything is lost, and tokens that do not fit
# together show.
FASHION_MNIST = CompactConfig(factor=2, width=48, encoder_kernel=1, codebook_size=128, code_width=4)
CIFAR_10 = CompactConfig(image_size=32, channels=3, width=128, decoder_blocks=4, codebook_size=1024)


class CompactTokenizer(Tokenizer):
    """Patches, residual blocks on the token grid, a codebook, and the same back."""

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
    """A convolution for the neighbourhood, of 3x3 if not said otherwise, and a 1x1 for the channels, with a residual sum."""

    def __init__(self, width: int, kernel: int = 3) -> None:
        super().__init__()
        self.norm = ChannelNorm(width)
        self.mix = nn.Conv2d(width, width, kernel, padding=kernel // 2)
        self.out = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.out(F.silu(self.mix(self.norm(x))))


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of (b, c, h, w); on the channels-last memory format it copies nothing."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the parent's name)
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
