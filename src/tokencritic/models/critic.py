"""The critic p_phi: complete tokens in, for each token a logit of being an original out."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from tokencritic.errors import InputError, check_range
from tokencritic.models.generator import Generator
from tokencritic.models.saved import ADDED_LATER, SavedModel
from tokencritic.models.transformer import TransformerConfig, Trunk, initialize


@dataclass(frozen=True)
class CriticConfig(TransformerConfig):
    """The same sizes as a generator's; the defaults are the paper's critic for 256 x 256 images.

    reads_mask: the critic is also told which tokens were just drawn (the paper's ablation).
    told_ratio: in training the share of drawn tokens is given with the loss, so that the critic need not find it out; False
    is the paper's.
    """

    layers: int = 20
    heads: int = 12
    reads_mask: bool = False
    told_ratio: bool = field(default=False, metadata=ADDED_LATER)


PAPER_256 = CriticConfig()
PAPER_512 = CriticConfig(num_tokens=1024)


class Critic(SavedModel):
    """A transformer like the generator's with one logit per token. `sigmoid` of it is the paper's p_phi(m = 1).

    With `told_ratio` the logit is what the token itself says: the log of how much likelier it is among originals than among
    drawn tokens. `sigmoid` of it is p_phi of an image of which half the tokens were drawn.
    """

    Config = CriticConfig

    def __init__(self, config: CriticConfig = PAPER_256) -> None:
        super().__init__(config)
        self.num_tokens, self.codebook_size = config.num_tokens, config.codebook_size
        self.num_classes, self.num_labels = config.num_classes, config.num_labels
        self.reads_mask, self.told_ratio = config.reads_mask, config.told_ratio
        self.trunk = Trunk(config)
        self.head = nn.Linear(config.width, 1)
        self.apply(initialize)
        if config.reads_mask:
            # Added after `initialize` and 0 at first: with or without it, a critic starts as the same function.
            self.mask_embedding = nn.Parameter(torch.zeros(2, config.width))

    @classmethod
    def from_generator(cls, generator: Generator, layers: int | None = None, **overrides: Any) -> Self:
        """A critic whose trunk starts as a copy of the first `layers` layers of a generator's (all of them by default).

        overrides: fields of `CriticConfig` to set: `reads_mask`, `told_ratio`, `dropout`; sizes stay the generator's.
        """
        own: TransformerConfig = generator.config
        if layers is not None and not 1 <= layers <= own.layers:
            raise InputError(f"layers is {layers}; the generator has {own.layers}, give 1 to {own.layers}")
        unknown = overrides.keys() - {"reads_mask", "told_ratio", "dropout"}
        if unknown:
            raise InputError(f"{', '.join(sorted(unknown))} must stay as in the generator to start from its trunk")
        sizes = {field.name: getattr(own, field.name) for field in fields(own)}
        critic = cls(replace(CriticConfig(**sizes), layers=layers or own.layers, **overrides))
        wanted = critic.trunk.state_dict().keys()
        critic.trunk.load_state_dict({k: v for k, v in generator.trunk.state_dict().items() if k in wanted})
        return critic.to(generator.bias.device)

    def forward(self, tokens: Tensor, labels: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """tokens: (b, n) int64, codes only; labels: (b,) int64; mask: (b, n) bool, True = just drawn, if `reads_mask`.

        Returns (b, n) logits, higher = more likely an original.
        """
        if not tokens.is_cuda and not torch.compiler.is_compiling():
            check_range("tokens", tokens, self.codebook_size)
        if self.reads_mask != (mask is not None):
            raise InputError(f"mask is {'given' if mask is not None else 'None'} but reads_mask is {self.reads_mask}")
        # fmt: off
        extra = None if mask is None else self.mask_embedding[mask.long()]    # b n d
        x = self.trunk(tokens, labels, extra=extra)                           # b n d
        return self.head(x)[..., 0].clone()                                   # b n; no view, which FSDP could not hook into
        # fmt: on
