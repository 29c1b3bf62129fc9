"""MaskBit's tokenizer (Weber et al., 2024): a convolutional network whose codes are the signs of the latents.

It has no codebook.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tokencritic.errors import check_at_least
from tokencritic.models.maskbit import part_bits
from tokencritic.tokenizers.tokenizer import Tokenizer
from tokencritic.tokenizers.vqgan import LevelsConfig, make_decoder, make_encoder


@dataclass(frozen=True)
class MaskBitTokenizerConfig(LevelsConfig):
    """Sizes of MaskBit's tokenizer. The defaults are the published tokenizer of 14 bits.

    splits: tokens per place, as in `MaskBitConfig`.
    bits_per_part: bits of a token, as in `MaskBitConfig`.
    """

    splits: int = 2
    bits_per_part: int = 7

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, splits=self.splits, bits_per_part=self.bits_per_part)

    @property
    def bits(self) -> int:
        """The number of bits of a place."""
        return self.splits * self.bits_per_part

    @property
    def codebook_size(self) -> int:
        return 2**self.bits_per_part


class BitQuantizer(nn.Module):
    """A quantizer by sign. Bit j of a place is 1 if latent j is above 0.

    The bits of a place are split into tokens, the lowest bits first.
    """

    def __init__(self, splits: int, bits_per_part: int) -> None:
        super().__init__()
        self.splits, self.bits_per_part = splits, bits_per_part

    @torch.no_grad()
    def nearest(self, latents: Tensor) -> Tensor:
        """Return the tokens of latents: (b, bits, h, w) -> (b, h * w * splits) int64."""
        parts = (latents > 0).permute(0, 2, 3, 1).unflatten(-1, (self.splits, self.bits_per_part))  # b h w splits bits
        return (parts.long() << torch.arange(self.bits_per_part, device=latents.device)).sum(-1).flatten(1)

    def look_up(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        """Return the bits of tokens: (b, h * w * splits) int64 -> (b, bits, h, w) int64, -1 or +1.

        grid: (h, w * splits) of the tokens.
        """
        bits = part_bits(tokens, self.bits_per_part).unflatten(1, (grid[0], -1, self.splits))  # b h w splits bits
        return bits.flatten(3).permute(0, 3, 1, 2)


class MaskBitTokenizer(Tokenizer):
    """MaskBit's tokenizer. Each place of an image is encoded as `splits` tokens of `bits_per_part` bits.

    The parts of a place are side by side in the token grid (height, width * splits). The weights do not depend on
    `image_size`.
    """

    Config = MaskBitTokenizerConfig

    def __init__(self, config: MaskBitTokenizerConfig) -> None:
        super().__init__(config, config.factor)
        side, self.splits = self.grid[0], config.splits
        self.grid = (side, side * config.splits)  # pyright: ignore[reportIncompatibleVariableOverride]
        self.num_tokens = side * side * config.splits
        self.encoder = make_encoder(config, config.bits, maskgit=True, strided=True)
        self.decoder = make_decoder(config, config.bits, maskgit=True)
        quantizer: Any = BitQuantizer(config.splits, config.bits_per_part)  # has no codebook to train
        self.quantizer = quantizer

    def to_latents(self, images: Tensor) -> Tensor:
        return self.encoder(images)

    def to_images(self, latents: Tensor) -> Tensor:
        return self.decoder(latents.to(self.dtype))
