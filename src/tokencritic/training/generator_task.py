"""Learning to generate: MaskGIT's objective on token arrays."""

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from tokencritic.contracts import MaskedGenerator, Scorer
from tokencritic.data.tokens import TokenArrays
from tokencritic.errors import InputError
from tokencritic.models.generator import Generator
from tokencritic.sampling.scorers import ConfidenceScorer
from tokencritic.tokenizers.tokenizer import Tokenizer
from tokencritic.training.losses import generator_loss
from tokencritic.training.task import Loss
from tokencritic.training.token_rows import TokenTask


@dataclass(frozen=True)
class GeneratorObjective:
    """What the generator's loss is made of.

    label_smoothing: the share of each target that is spread evenly over all codes.
    drop_label: the share of examples that are shown the null class instead of their own; the model needs null_class.
    """

    label_smoothing: float = 0.1
    drop_label: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < 1:
                raise InputError(f"{name} is {value}; it must lie in [0, 1)")


class GeneratorTask(TokenTask):
    """A generator learns to fill in hidden tokens; see `TokenTask`."""

    name = "generator"

    def __init__(
        self,
        model: Generator,
        arrays: TokenArrays,
        objective: GeneratorObjective,
        tokenizer: Tokenizer | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(model, arrays, objective, tokenizer, seed)
        if objective.drop_label and not model.null_class:
            raise InputError(f"drop_label is {objective.drop_label} but the generator's null_class is false")

    def loss(self, network: nn.Module, rows: Tensor, step: int | None) -> Loss:
        options = asdict(self.objective) | ({"drop_label": 0.0} if step is None else {})
        found = generator_loss(network, *self.rows(rows, step, self.model.device), **options)
        # In validation alone: it takes another pass over all logits.
        return Loss(found.values, {"accuracy": found.hits} if step is None else {})

    def sampler(self, model: Any) -> tuple[MaskedGenerator, Scorer]:
        return model, ConfidenceScorer()
