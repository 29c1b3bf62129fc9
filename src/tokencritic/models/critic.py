"""The critic p_phi: a trunk and a head of one logit per token."""

from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from tokencritic.contracts import TokenCritic, Trunk
from tokencritic.errors import InputError, check_range
from tokencritic.models.generator import Generator
from tokencritic.models.saved import SavedModel
from tokencritic.models.transformer import TransformerConfig, TransformerTrunk, initialize

_OWN = ("reads_mask", "ratio_conditioned")  # fields that a generator's config does not have


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

    With `ratio_conditioned` the logit is the log of how much likelier the token is among originals than among sampled tokens.
    `sigmoid` of it is p_phi of an image of which half the tokens were sampled.
    """

    Config = CriticConfig

    def __init__(self, config: CriticConfig = PAPER_256, trunk: Trunk | None = None) -> None:
        """trunk: of any family, with the config's sizes, whose weights are kept; a new one of ours if not given."""
        super().__init__(config)
        self.num_tokens, self.num_classes = config.num_tokens, config.num_classes
        self.codebook_size = config.codebook_size
        self.reads_mask, self.ratio_conditioned = config.reads_mask, config.ratio_conditioned
        self.trunk = TransformerTrunk(config) if trunk is None else trunk
        self.head = nn.Linear(config.width, 1)
        kept = {} if trunk is None else {name: value.clone() for name, value in trunk.state_dict().items()}
        self.apply(initialize)
        if trunk is not None:
            trunk.load_state_dict(kept)
        if config.reads_mask:
            # Added after `initialize` and 0 at first: with or without it, a critic starts as the same function.
            self.mask_embedding = nn.Parameter(torch.zeros(2, config.width))

    @classmethod
    def from_generator(cls, generator: Generator, layers: int | None = None, **overrides: Any) -> Self:
        """A critic whose trunk starts as a copy of the first `layers` layers of a generator's (all of them by default).

        overrides: fields of `CriticConfig` to set: `reads_mask`, `ratio_conditioned`, `dropout`; sizes stay the generator's.
        """
        unknown = overrides.keys() - {*_OWN, "dropout"}
        if unknown:
            raise InputError(f"{', '.join(sorted(unknown))} must stay as in the generator to start from its trunk")
        layers = generator.config.layers if layers is None else layers
        own: dict[str, Any] = asdict(generator.config) | {"layers": layers} | overrides
        config = CriticConfig(**own)
        return cls(config, generator.trunk.first_layers(config.layers, config.dropout)).to(generator.device)

    def forward(self, tokens: Tensor, labels: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """tokens: (b, n) int64, codes only; labels: (b,) int64; mask: (b, n) bool, True = just sampled, if `reads_mask`.

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
