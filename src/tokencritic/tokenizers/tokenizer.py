"""The base class of this package's tokenizers. The networks are in `compact.py` and `vqgan.py`."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tokencritic.contracts import ImageTokenizer
from tokencritic.errors import InputError, as_integers, check_range, is_readable
from tokencritic.models.saved import SavedModel
from tokencritic.tokenizers.quantizer import Quantizer

PIXELS = 2**20  # maximum number of pixels encoded or decoded in parallel: four images of 512 x 512


@dataclass(frozen=True)
class TokenizerOutput:
    """The output of a tokenizer's forward pass in training.

    reconstruction: (b, c, h, w), not clamped. Its gradient reaches the encoder by the straight-through estimator.
    tokens: (b, n) int64.
    latents: (b, d, gh, gw), the output of the encoder.
    quantized: (b, d, gh, gw), the nearest codes, with a gradient to the codebook only.
    """

    reconstruction: Tensor
    tokens: Tensor
    latents: Tensor
    quantized: Tensor


class Tokenizer(SavedModel, ImageTokenizer):
    """The base class of tokenizers: images (b, c, h, w) in [0, 1] to tokens (b, n) and back.

    Tokens are in row-major order of the grid. A subclass sets `quantizer` and implements `to_latents` and `to_images`.
    """

    quantizer: Quantizer
    grid: tuple[int, int]

    def __init__(self, config: Any, factor: int, margin: int = 0) -> None:
        """Set the sizes.

        config: a dataclass with `image_size`, `channels` and `codebook_size`.
        factor: pixels along each side of one token.
        margin: padding on each side, for an image size that is not a multiple of the factor.
        """
        super().__init__(config)
        size = config.image_size + 2 * margin
        if config.image_size < factor or size % factor:
            around = f" with a margin of {margin} on each side" if margin else ""
            raise InputError(f"image_size is {config.image_size}{around}; it must be a positive multiple of {factor}")
        self.factor, self.margin, side = factor, margin, size // factor
        self.image_size, self.channels, self.codebook_size = config.image_size, config.channels, config.codebook_size
        self.grid = (side, side)  # pyright: ignore[reportIncompatibleVariableOverride]
        self.num_tokens = side * side

    @abstractmethod
    def to_latents(self, images: Tensor) -> Tensor:
        """Compute the latents before quantization: (b, c, h, w) in [0, 1] -> (b, d, gh, gw)."""

    @abstractmethod
    def to_images(self, latents: Tensor) -> Tensor:
        """Decode quantized latents: (b, d, gh, gw) -> (b, c, h, w) in about [0, 1], not clamped."""

    @torch.no_grad()
    def encode(self, images: Tensor) -> Tensor:
        """Encode images to tokens: (b, c, h, w) float in [0, 1] -> (b, n) int64."""
        images = checked_images(self, images)
        if len(images) == 0:
            return torch.zeros(0, self.num_tokens, dtype=torch.int64, device=images.device)
        return self.quantizer.nearest(in_slices(self.to_latents, images, self.image_size))

    @torch.no_grad()
    def decode(self, tokens: Tensor) -> Tensor:
        """Decode tokens to images: (b, n) int64, codes only -> (b, c, h, w) float in [0, 1]."""
        tokens = checked_tokens(self, tokens)
        if len(tokens) == 0:
            shape = (0, self.channels, self.image_size, self.image_size)
            return torch.zeros(shape, dtype=self.dtype, device=self.device)
        latents = self.quantizer.look_up(tokens, self.grid)
        return in_slices(self.to_images, latents, self.image_size).clamp_(0, 1)

    def forward(self, images: Tensor) -> TokenizerOutput:
        """Encode, quantize and reconstruct images: (b, c, h, w) float in [0, 1]."""
        # fmt: off
        latents = self.to_latents(checked_images(self, images))       # b d gh gw
        tokens = self.quantizer.nearest(latents)                      # b n
        quantized = self.quantizer.look_up(tokens, self.grid)         # b d gh gw
        passed = latents + (quantized - latents).detach()             # straight through
        return TokenizerOutput(self.to_images(passed), tokens, latents, quantized)
        # fmt: on


def in_slices(network: Callable[[Tensor], Tensor], batch: Tensor, image_size: int) -> Tensor:
    """Apply a network to a batch in slices of at most `PIXELS` pixels, and at least one image, to bound the memory.

    The network must process each image independently, so that the slices do not change the result.
    """
    return torch.cat([network(part) for part in batch.split(max(1, PIXELS // image_size**2))])


def checked_images(tokenizer: ImageTokenizer, images: Tensor) -> Tensor:
    """Return images (b, c, h, w) in the tokenizer's precision.

    Raises InputError unless they are floats in [0, 1] of the tokenizer's size.
    """
    expected = (tokenizer.channels, tokenizer.image_size, tokenizer.image_size)
    if images.ndim != 4 or images.shape[1:] != expected:
        right = f"(images, {', '.join(map(str, expected))})"
        raise InputError(f"images has shape {tuple(images.shape)}; expected {right}")
    if not images.is_floating_point():
        raise InputError(f"images is {images.dtype}; expected floats in [0, 1]")
    if len(images) and is_readable(images):
        low, high = (float(x) for x in images.aminmax())
        if not (low >= 0 and high <= 1):
            raise InputError(f"images holds values from {low:.4g} to {high:.4g}; expected floats in [0, 1]")
    return images.to(tokenizer.dtype)


def checked_tokens(tokenizer: ImageTokenizer, tokens: Tensor) -> Tensor:
    """Return tokens (b, n) as int64. Raises InputError unless they are codes of the tokenizer, n per image."""
    if tokens.ndim != 2 or tokens.shape[1] != tokenizer.num_tokens:
        raise InputError(f"tokens has shape {tuple(tokens.shape)}; expected (images, {tokenizer.num_tokens})")
    tokens = as_integers("tokens", tokens)
    if is_readable(tokens):
        check_range("tokens", tokens, tokenizer.codebook_size)
    return tokens
