"""LlamaGen's tokenizer (Sun et al., 2024): taming-transformers' VQGAN with latents and codes of length 1."""

from dataclasses import asdict, dataclass

import torch.nn.functional as F
from torch import Tensor

from tokencritic.errors import check_at_least
from tokencritic.tokenizers.quantizer import UnitQuantizer
from tokencritic.tokenizers.vqgan import TamingConfig, TamingVQGAN, VQGANConfig


@dataclass(frozen=True)
class LlamaGenConfig(VQGANConfig):
    """Sizes of LlamaGen's tokenizer. The defaults are the published ImageNet model with 16 x 16 pixels per token.

    blocks, latent_width: as in `TamingConfig`.
    """

    codebook_size: int = 16384
    code_width: int = 8
    latent_width: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, latent_width=self.latent_width)


class LlamaGenVQ(TamingVQGAN):
    """LlamaGen's tokenizer. Attention is at the deepest level and in the middle.

    The networks work on images in [-1, 1]. The weights do not depend on `image_size`.
    """

    Config = LlamaGenConfig

    def __init__(self, config: LlamaGenConfig) -> None:
        super().__init__(TamingConfig(**asdict(config), attention=(len(config.multipliers) - 1,)))
        self.config = config
        self.quantizer = UnitQuantizer(config.codebook_size, config.code_width)

    def to_latents(self, images: Tensor) -> Tensor:
        return F.normalize(super().to_latents(images), dim=1)
