"""TiTok (Yu et al., 2024): a tokenizer that encodes an image as a short row of tokens without a grid.

A vision transformer reads the patches and N learned latents. The transformed latents are quantized to tokens. A second
vision transformer maps the tokens to logits over the codes of MaskGIT's VQGAN. The decoder of the VQGAN reads the mean
of the codes under the softmax.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokencritic.contracts import ImageTokenizer
from tokencritic.errors import InputError, check_at_least
from tokencritic.models.saved import SavedModel
from tokencritic.models.transformer import Block, TransformerConfig
from tokencritic.tokenizers.quantizer import Quantizer
from tokencritic.tokenizers.tokenizer import checked_images, checked_tokens, in_slices
from tokencritic.tokenizers.vqgan import VQGANConfig, make_decoder

_EPSILON = 1e-5
HEAD_WIDTH = 64


@dataclass(frozen=True)
class TiTokConfig(VQGANConfig):
    """Sizes of TiTok. The defaults are TiTok-L-32. A patch has `factor` pixels along each side.

    The fields of `VQGANConfig` are the sizes of the images, the codebook and the pixel decoder.

    num_tokens: N, tokens per image.
    encoder_width, decoder_width: size of a vector in each vision transformer.
    encoder_layers, decoder_layers: number of blocks of each vision transformer.
    pixel_codebook_size: number of codes of the VQGAN.
    pixel_code_width: dimension of a code of the VQGAN.
    """

    codebook_size: int = 4096
    code_width: int = 12
    num_tokens: int = 32
    encoder_width: int = 1024
    encoder_layers: int = 24
    decoder_width: int = 1024
    decoder_layers: int = 24
    pixel_codebook_size: int = 1024
    pixel_code_width: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, num_tokens=self.num_tokens, pixel_codebook_size=self.pixel_codebook_size)
        check_at_least(1, encoder_layers=self.encoder_layers, decoder_layers=self.decoder_layers)
        check_at_least(1, pixel_code_width=self.pixel_code_width)
        for name in ("encoder_width", "decoder_width"):
            if (width := vars(self)[name]) < 1 or width % HEAD_WIDTH:
                raise InputError(
                    f"{name} is {width}; it must be a positive multiple of {HEAD_WIDTH}, the width of a head"
                )
        if self.image_size % self.factor:
            raise InputError(f"image_size is {self.image_size}; it must be a multiple of {self.factor}")

    @property
    def side(self) -> int:
        """The number of patches along each side of the image."""
        return self.image_size // self.factor


L32 = TiTokConfig()


class TiTok(SavedModel, ImageTokenizer):
    """A tokenizer between images (b, c, h, w) in [0, 1] and tokens (b, n).

    The codes have length 1. Latents are normalized before they are compared with the codes.
    """

    Config = TiTokConfig
    grid = None

    def __init__(self, config: TiTokConfig = L32) -> None:
        super().__init__(config)
        self.num_tokens, self.codebook_size = config.num_tokens, config.codebook_size
        self.image_size, self.channels, self.side = config.image_size, config.channels, config.side
        self.encoder = Encoder(config)
        self.quantizer = Quantizer(config.codebook_size, config.code_width)
        self.decoder = Decoder(config)
        self.pixel_codebook = nn.Parameter(torch.empty(config.pixel_codebook_size, config.pixel_code_width))
        nn.init.normal_(self.pixel_codebook)
        self.pixel_decoder = make_decoder(config, config.pixel_code_width, maskgit=True)

    @torch.no_grad()
    def encode(self, images: Tensor) -> Tensor:
        images = checked_images(self, images)
        if len(images) == 0:
            return torch.zeros(0, self.num_tokens, dtype=torch.int64, device=images.device)
        latents = F.normalize(in_slices(self.encoder, images, self.image_size), dim=1)  # b d n
        return self.quantizer.nearest(latents[:, :, None])

    @torch.no_grad()
    def decode(self, tokens: Tensor) -> Tensor:
        tokens = checked_tokens(self, tokens)
        if len(tokens) == 0:
            return self.pixel_codebook.new_zeros(0, self.channels, self.image_size, self.image_size)
        return in_slices(self.to_images, tokens, self.image_size).clamp_(0, 1)

    def to_images(self, tokens: Tensor) -> Tensor:
        """Decode tokens: (b, n) int64 -> (b, c, h, w) in about [0, 1], not clamped."""
        # fmt: off
        codes = F.embedding(tokens, self.quantizer.codebook)                          # b n d
        pixels = self.decoder(codes).softmax(-1) @ self.pixel_codebook                # b gg e
        return self.pixel_decoder(pixels.unflatten(1, (self.side, self.side)).movedim(-1, 1))
        # fmt: on


class VisionTransformer(nn.Module):
    """A transformer of pre-norm blocks between two norms.

    The sequence consists of a class token, the g x g places of the image and the N latents.
    """

    def __init__(self, config: TiTokConfig, width: int, layers: int) -> None:
        super().__init__()
        self.places = config.side**2
        block = TransformerConfig(
            width=width, heads=width // HEAD_WIDTH, mlp_width=4 * width, dropout=0.0, norm_first=True
        )
        self.norm_in, self.norm_out = nn.LayerNorm(width, _EPSILON), nn.LayerNorm(width, _EPSILON)
        self.blocks = nn.ModuleList(Block(block, exact_gelu=True, epsilon=_EPSILON) for _ in range(layers))

    def transformed(self, x: Tensor, wanted: range) -> Tensor:
        """Return the vectors at the wanted positions of the sequence: (b, s, d) -> (b, k, d)."""
        x = self.norm_in(x)
        for block in self.blocks[:-1]:
            x = block(x)
        positions = torch.arange(wanted.start, wanted.stop, device=x.device).expand(len(x), -1)
        return self.norm_out(self.blocks[-1](x, positions))


class Encoder(VisionTransformer):
    """The encoder: images (b, c, h, w) -> latents (b, d, n)."""

    def __init__(self, config: TiTokConfig) -> None:
        width = config.encoder_width
        super().__init__(config, width, config.encoder_layers)
        self.num_tokens = config.num_tokens
        self.patches = nn.Conv2d(config.channels, width, config.factor, config.factor)
        # The class token and the latents include their positions. Patches only have positions here.
        self.sequence = nn.Parameter(0.02 * torch.randn(1 + self.places + config.num_tokens, width))
        self.to_code = nn.Conv1d(width, config.code_width, 1)

    def forward(self, images: Tensor) -> Tensor:
        # fmt: off
        x = self.patches(images).flatten(2).transpose(1, 2)                           # b gg w
        x = F.pad(x, (0, 0, 1, self.num_tokens)) + self.sequence                      # b 1+gg+n w
        x = self.transformed(x, range(1 + self.places, x.shape[1]))                   # b n w
        # fmt: on
        # The published weights were trained with this reshape. It is not a transpose and mixes tokens and channels.
        return self.to_code(x.reshape(len(x), -1, self.num_tokens))


class Decoder(VisionTransformer):
    """The decoder: codes (b, n, d) -> logits over the VQGAN's codes at each place (b, gg, pixel_codebook_size)."""

    def __init__(self, config: TiTokConfig) -> None:
        width = config.decoder_width
        super().__init__(config, width, config.decoder_layers)
        self.from_code = nn.Linear(config.code_width, width)
        # The class token, and the mask token at each place, with their positions.
        self.sequence = nn.Parameter(0.02 * torch.randn(1 + self.places, width))
        self.positions = nn.Parameter(0.02 * torch.randn(config.num_tokens, width))
        layers = nn.Linear(width, 2 * width), nn.Tanh(), nn.Linear(2 * width, config.pixel_codebook_size)
        self.to_logits = nn.Sequential(*layers)

    def forward(self, codes: Tensor) -> Tensor:
        # fmt: off
        x = self.from_code(codes) + self.positions                                    # b n w
        x = torch.cat([self.sequence.expand(len(x), -1, -1), x], dim=1)               # b 1+gg+n w
        return self.to_logits(self.transformed(x, range(1, 1 + self.places)))         # b gg p
        # fmt: on
