"""The critic p_phi: a trunk and a head with one logit per token."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tokencritic.contracts import TokenCritic, Trunk
from tokencritic.errors import InputError, check_range, is_readable
from tokencritic.models.saved import SavedModel
from tokencritic.models.transformer import TransformerConfig, TransformerTrunk, initialize


@dataclass(frozen=True)
class CriticOptions:
    """The fields that the config of a critic has beside those of its trunk.

    reads_mask: the critic also reads which tokens were just sampled, as in the paper's ablation.
    ratio_conditioned: train with the ratio-conditioned loss, which adds the log-odds of the mask ratio to the logits;
    the paper does not.
    """

    reads_mask: bool = False
    ratio_conditioned: bool = False


@dataclass(frozen=True)
class CriticConfig(CriticOptions, TransformerConfig):
    """Sizes and options of a critic. The defaults are the paper's critic for 256 x 256 images."""

    layers: int = 20
    heads: int = 12


PAPER_256 = CriticConfig()
PAPER_512 = CriticConfig(num_tokens=1024)


class Critic(SavedModel, TokenCritic):
    """A critic with the generator's kind of trunk and one logit per token. The sigmoid is the paper's p_phi(m = 1).

    `MaskedGenerator.start_critic` initializes a critic from the generator's trunk. A critic for another family of
    generators is a subclass with its own `Config`, which is also a `CriticOptions`, and `trunk_type`.

    With `ratio_conditioned`, the logit is a log likelihood ratio of original against sampled tokens. Its sigmoid is
    p_phi for an image with half of its tokens sampled.
    """

    Config = CriticConfig
    trunk_type: ClassVar[type[Trunk]] = TransformerTrunk

    def __init__(self, config: Any = PAPER_256, trunk: Trunk | None = None) -> None:
        """Initialize the critic. trunk: a trained `trunk_type` with the config's sizes; by default a new one."""
        super().__init__(config)
        self.num_tokens, self.num_classes = config.num_tokens, config.num_classes
        self.codebook_size = config.codebook_size
        self.reads_mask, self.ratio_conditioned = config.reads_mask, config.ratio_conditioned
        self.trunk = self.trunk_type(config) if trunk is None else trunk
        self.head = nn.Linear(self.trunk.width, 1)
        kept = {} if trunk is None else {name: value.clone() for name, value in trunk.state_dict().items()}
        self.apply(initialize)
        if trunk is not None:
            trunk.load_state_dict(kept)
        if config.reads_mask:
            # Added after `initialize` and zero, so that a critic starts as the same function with and without it.
            self.mask_embedding = nn.Parameter(torch.zeros(2, self.trunk.width))

    def forward(self, tokens: Tensor, labels: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Return logits (b, n), higher = more likely an original.

        tokens: (b, n) int64, codes only.
        labels: (b,) int64 or None.
        mask: (b, n) bool, True where the token was just sampled; only if `reads_mask`.
        """
        if is_readable(tokens):
            check_range("tokens", tokens, self.codebook_size)
        if self.reads_mask != (mask is not None):
            got, expected = ("None" if absent else "given" for absent in (mask is None, not self.reads_mask))
            raise InputError(f"mask is {got}; expected {expected}, because reads_mask is {self.reads_mask}")
        # fmt: off
        extra = None if mask is None else self.mask_embedding[mask.long()]    # b n d
        x = self.trunk(tokens, labels, extra=extra)                           # b n d
        return self.head(x)[..., 0].clone()                                   # b n; FSDP hooks reject views
        # fmt: on
