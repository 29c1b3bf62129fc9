"""TiTok's generator for 32 and 64 tokens (Yu et al., 2024): a BERT encoder with a head of its own, and its critic."""

from dataclasses import dataclass
from typing import ClassVar

from tokencritic.models.critic import Critic
from tokencritic.models.generator import UntiedGenerator
from tokencritic.models.transformer import TransformerConfig, TransformerTrunk


@dataclass(frozen=True)
class BertConfig(TransformerConfig):
    """Sizes; the defaults are the published generator's for 32 tokens. BERT normalises after each sum, always."""

    num_tokens: int = 32
    codebook_size: int = 4096
    null_class: bool = True
    norm_first: ClassVar[bool] = False  # pyright: ignore[reportIncompatibleVariableOverride]


@dataclass(frozen=True)
class BertCriticConfig(BertConfig):
    """The generator's sizes. reads_mask, ratio_conditioned: as in `CriticConfig`."""

    reads_mask: bool = False
    ratio_conditioned: bool = False


class BertTrunk(TransformerTrunk):
    """MaskGIT's transformer with the exact GELU and without the dense read-out."""

    exact_gelu, has_readout = True, False


class BertCritic(Critic):
    """A critic on the trunk of `BertGenerator`."""

    Config = BertCriticConfig
    trunk_type = BertTrunk


class BertGenerator(UntiedGenerator):
    """TiTok's `ImageBert`."""

    Config = BertConfig
    trunk_type, critic_type = BertTrunk, BertCritic
