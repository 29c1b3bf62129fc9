"""What the generator's and the critic's tasks share: token arrays to learn from, and samples to show."""

from abc import abstractmethod
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from tokencritic.data.tokens import TokenArrays
from tokencritic.distribution import unwrapped
from tokencritic.errors import InputError
from tokencritic.image_forms import to_pil
from tokencritic.models.critic import Critic
from tokencritic.models.generator import Generator
from tokencritic.pictures.grids import grid
from tokencritic.sampling.inputs import device_of
from tokencritic.sampling.loop import sample
from tokencritic.sampling.propose import AnyGenerator
from tokencritic.sampling.scorers import Scorer
from tokencritic.tokenizers.tokenizer import Tokenizer
from tokencritic.training.task import Task
from tokencritic.training.token_rows import TokenRows, check_fit

_COLUMNS, _ROWS = 10, 2  # of a picture of samples
_STEPS = 12


class TokenTask(Task[Any]):
    """A task on token arrays, for a model of their sizes.

    tokenizer: the one that made the tokens, to show samples; None, and there is no picture. seed: of masks and draws.
    """

    def __init__(
        self,
        model: Generator | Critic,
        arrays: TokenArrays,
        objective: Any,
        tokenizer: Tokenizer | None,
        seed: int,
        *others: Any,
    ) -> None:
        check_fit(self.name, model, arrays)
        if tokenizer is not None:
            own, made = tokenizer.fingerprint()[:16], arrays.tokenizer_fingerprint[:16]
            if own != made:
                raise InputError(f"the tokens were made with tokenizer {made}, and this tokenizer is {own}; give that one")
        self.rows = TokenRows(arrays, seed, labelled=model.num_classes > 0)
        super().__init__(model, self.rows, objective, seed, tokenizer, *others)
        self.num_classes, self.tokenizer, self.num_images = model.num_classes, tokenizer, self.rows.num_images

    def read(self, network: nn.Module, rows: Tensor, step: int | None) -> tuple[Tensor, Tensor | None, Tensor]:
        """Tokens, labels and seeds of some examples, where the network lies; see `TokenRows`."""
        return self.rows(rows, step, device_of(network))

    @abstractmethod
    def sampler(self, model: Any) -> tuple[AnyGenerator, Scorer]:
        """The generator and the scorer whose samples are shown. model: the trained one, without a wrapper."""

    @torch.no_grad()
    def pictures(self, network: nn.Module) -> dict[str, Image.Image]:
        """A grid of samples from the seeds 0, 1, ...: each column one class, and the columns spread over all classes."""
        if self.tokenizer is None:
            return {}
        labels = None
        if self.num_classes:
            labels = [column * self.num_classes // _COLUMNS for column in range(_COLUMNS)] * _ROWS
        tokens = sample(*self.sampler(unwrapped(network)), labels, range(_COLUMNS * _ROWS), steps=_STEPS)
        images = self.tokenizer.decode(tokens).float().cpu().permute(0, 2, 3, 1).numpy()
        return {"samples": grid([to_pil(image) for image in images], _COLUMNS)}
