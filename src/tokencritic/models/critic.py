"""The critic p_phi: a trunk and a head of one logit per token."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tokencritic.contracts import TokenCritic, Trunk
from tokencritic.errors import InputError, check_range, is_readable
from tokencritic.models.saved import SavedModel
from tokencritic.models.transformer import TransformerConfig, TransformerTrunk, initialize


@dataclass(frozen=True)
class CriticConfig(TransformerConfig):
    """The same sizes as a generator's; the defaults are the paper's critic for 256 x 256 images.

    reads_mask: the critic also reads which tokens were just sampled (the paper's ablation).
    ratio_conditioned: the loss adds the log-odds of the mask ratio to the logits, so that the critic need not learn it; False
    is the paper's.
    """

    layers: int = 20
    heads: int = 12
    reads_mask: bool = False
    ratio_conditioned: bool = False


PAPER_256 = CriticConfig()
PAPER_512 = CriticConfig(num_tokens=1024)


class Critic(SavedModel, TokenCritic):
    """A trunk like the generator's with one logit per token. `sigmoid` of it is the paper's p_phi(m = 1).

    `MaskedGenerator.start_critic` makes one whose trunk starts as the generator's. A critic of another family of generators
    is a subclass with its `Config`, which has the fields `reads_mask` and `ratio_conditioned` too, and its `trunk_type`.

    With `ratio_conditioned` the logit is the log of how much likelier the token is among originals than among sampled tokens.
    `sigmoid` of it is p_phi of an image of which half the tokens were sampled.
    """

    Config = CriticConfig
    trunk_type: ClassVar[type[Trunk]] = TransformerTrunk

    def __init__(self, config: Any = PAPER_256, trunk: Trunk | None = None) -> None:
        """trunk: a `trunk_type` of the config's sizes, whose weights are kept; a new one if not given."""
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
            # Added after `initialize` and 0 at first: with or without it, a critic starts as the same function.
            self.mask_embedding = nn.Parameter(torch.zeros(2, self.trunk.width))

    def forward(self, tokens: Tensor, labels: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """tokens: (b, n) int64, codes only; labels: (b,) int64; mask: (b, n) bool, True = just sampled, if `reads_mask`.

        Returns (b, n) logits, higher = more likely an original.
        """
        if is_readable(tokens):
            check_range("tokens", tokens, self.codebook_size)
        if self.reads_mask != (mask is not None):
            raise InputError(f"mask is {'given' if mask is not None else 'None'} but reads_mask is {self.reads_mask}")
        # fmt: off
        extra = None if mask is None else self.mask_embedding[mask.long()]    # b n d
        x = self.trunk(tokens, labels, extra=extra)                           # b n d
        return self.head(x)[..., 0].clone()                                   # b n; no view, which FSDP could not hook into
        # fmt: on
