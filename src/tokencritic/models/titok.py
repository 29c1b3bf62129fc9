"""TiTok's generator for 32 and 64 tokens (Yu et al., 2024), a BERT encoder with an untied head, and its critic."""

from dataclasses import dataclass
from typing import ClassVar

from tokencritic.models.critic import Critic, CriticOptions
from tokencritic.models.generator import UntiedGenerator
from tokencritic.models.transformer import TransformerConfig, TransformerTrunk


@dataclass(frozen=True)
class BertConfig(TransformerConfig):
    """Sizes of a BERT generator. The defaults are the published generator for 32 tokens. Blocks are post-norm."""

    num_tokens: int = 32
    codebook_size: int = 4096
    null_class: bool = True
    norm_first: ClassVar[bool] = False  # pyright: ignore[reportIncompatibleVariableOverride]


@dataclass(frozen=True)
class BertCriticConfig(CriticOptions, BertConfig):
    """Sizes and options of a BERT critic."""


class BertTrunk(TransformerTrunk):
    """MaskGIT's transformer with the exact GELU and without the dense readout."""

    exact_gelu, has_readout = True, False


class BertCritic(Critic):
    """A critic on the trunk of `BertGenerator`."""

    Config = BertCriticConfig
    trunk_type = BertTrunk


class BertGenerator(UntiedGenerator):
    """TiTok's `ImageBert`."""

    Config = BertConfig
    trunk_type, critic_type = BertTrunk, BertCritic
