"""Learning to generate: MaskGIT's objective on token arrays."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from tokencritic.data.tokens import TokenArrays
from tokencritic.distribution import unwrapped
from tokencritic.errors import InputError
from tokencritic.image_forms import to_pil
from tokencritic.masking import Schedule
from tokencritic.models.generator import Generator
from tokencritic.pictures.grids import image_grid
from tokencritic.sampling.inputs import device_of
from tokencritic.sampling.loop import sample
from tokencritic.sampling.propose import AnyGenerator
from tokencritic.sampling.scorers import ConfidenceScorer, Scorer
from tokencritic.tokenizers.tokenizer import Tokenizer
from tokencritic.training.losses import generator_loss, training_mask
from tokencritic.training.task import AT_ONCE, Loss
from tokencritic.training.token_rows import VALIDATION, TokenRows, check_fit, check_tokenizer

_COLUMNS, _ROWS = 10, 2  # of a picture of samples
_STEPS = 12


@dataclass(frozen=True)
class GeneratorObjective:
    """label_smoothing: the share of each target that is spread evenly over all codes.

    drop_label: the share of examples that are shown the null class instead of their own; the model needs null_class.
    schedule: of the mask ratio.
    """

    label_smoothing: float = 0.1
    drop_label: float = 0.0
    schedule: Schedule = "cosine"

    def __post_init__(self) -> None:
        for name in ("label_smoothing", "drop_label"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must lie in [0, 1)")


class GeneratorTask:
    """model: of the tokens' sizes. tokenizer: the one that made them, to show samples; None, and there is no picture.

    seed: of the masks.
    """

    name = "generator"

    def __init__(
        self,
        model: Generator,
        arrays: TokenArrays,
        objective: GeneratorObjective,
        tokenizer: Tokenizer | None = None,
        seed: int = 0,
    ) -> None:
        check_fit("generator", model, arrays)
        check_tokenizer(tokenizer, arrays)
        if objective.drop_label and not model.config.null_class:
            raise InputError(f"drop_label is {objective.drop_label} but the generator's null_class is false")
        self.model, self.objective, self.tokenizer = model, objective, tokenizer
        self.rows = TokenRows(arrays, seed, labelled=model.num_classes > 0)

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    @property
    def num_images(self) -> int:
        return self.rows.num_images

    def to(self, device: torch.device) -> None:
        for part in (self.model, self.tokenizer):
            if part is not None:
                part.to(device)

    def loss(self, network: nn.Module, rows: Tensor, step: int) -> Loss:
        tokens, labels, seeds = self.rows(rows, step, device_of(network))
        return Loss(generator_loss(network, tokens, labels, seeds, **asdict(self.objective)).values, {})

    def after_step(self, step: int, progress: float) -> None:
        """Nothing else moves."""

    @torch.no_grad()
    def validate(self, network: nn.Module, rows: Tensor) -> dict[str, float]:
        """`loss`, with every label shown, and `accuracy` of the likeliest code: both at the hidden tokens."""
        losses, hits = [], []
        for part in rows.split(AT_ONCE):
            tokens, labels, seeds = self.rows(part, VALIDATION, device_of(network))
            mask = training_mask(seeds, tokens.shape[1], self.objective.schedule)
            logits = network(tokens.masked_fill(mask, self.model.mask_id), labels, mask).float()
            smoothing = self.objective.label_smoothing
            losses.append(F.cross_entropy(logits, tokens[mask], reduction="none", label_smoothing=smoothing))
            hits.append(logits.argmax(-1) == tokens[mask])
        return {"loss": torch.cat(losses).mean().item(), "accuracy": torch.cat(hits).float().mean().item()}

    def pictures(self, network: nn.Module) -> dict[str, Image.Image]:
        if self.tokenizer is None:
            return {}
        return {"samples": samples_picture(unwrapped(network), ConfidenceScorer(), self.tokenizer)}

    def facts(self) -> dict[str, Any]:
        return {"config": asdict(self.model.config), "objective": asdict(self.objective), **self.rows.facts()}

    def state_dict(self) -> dict[str, Tensor]:
        return {}


@torch.no_grad()
def samples_picture(generator: AnyGenerator, scorer: Scorer, tokenizer: Tokenizer) -> Image.Image:
    """A grid of samples from the seeds 0, 1, ...: each column one class, and the columns spread over all classes."""
    classes = getattr(generator, "num_classes", 0)
    labels = [column * classes // _COLUMNS for column in range(_COLUMNS)] * _ROWS if classes else None
    tokens = sample(generator, scorer, labels, range(_COLUMNS * _ROWS), steps=_STEPS)
    images = tokenizer.decode(tokens).float().cpu().permute(0, 2, 3, 1).numpy()
    return image_grid([to_pil(image) for image in images], _COLUMNS)
