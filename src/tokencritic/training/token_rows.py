"""Token arrays as training reads them, and what the generator's and the critic's tasks on them share."""

import hashlib
import json
from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from tokencritic.contracts import MaskedGenerator, Scorer, TokenCritic
from tokencritic.data.tokens import TokenArrays
from tokencritic.distribution import unwrapped
from tokencritic.errors import InputError
from tokencritic.image_forms import to_pil
from tokencritic.pictures.grids import image_grid
from tokencritic.randomness import example_seeds
from tokencritic.sampling.starts import sample
from tokencritic.tokenizers.tokenizer import Tokenizer
from tokencritic.training.task import Task

_VALIDATION_STEP = 2**62  # whose seeds validation uses, always the same; no run gets so far
_COLUMNS, _ROWS = 10, 2  # of a picture of samples
_STEPS = 12


class TokenRows:
    """Rows of token arrays: call with rows and a step, get their tokens, labels and seeds.

    seed: of masks and draws. labelled: False gives None for labels, for models without classes.
    """

    def __init__(self, arrays: TokenArrays, seed: int = 0, labelled: bool = True) -> None:
        self.arrays, self.seed, self.labelled = arrays, seed, labelled
        self._tokens = arrays.tokens.view(np.ndarray)  # the map's own indexing is slower

    def __len__(self) -> int:
        return len(self.arrays)

    @property
    def num_images(self) -> int:
        """How many different images there are."""
        return self.arrays.num_images

    def __call__(self, rows: Tensor, step: int | None, device: torch.device) -> tuple[Tensor, Tensor | None, Tensor]:
        """rows: (b,) int64. step: None is validation. Returns tokens (b, n), labels (b,) or None, and seeds (b,): int64."""
        indices = rows.cpu().numpy()
        tokens = torch.from_numpy(self._tokens.take(indices, axis=0).astype(np.int64))
        labels = None
        if self.labelled:
            labels = torch.from_numpy(self.arrays.labels.take(indices).astype(np.int64)).to(device)
        seeds = example_seeds(self.seed, _VALIDATION_STEP if step is None else step, rows)
        return tokens.to(device), labels, seeds.to(device)

    def facts(self) -> dict[str, Any]:
        """Which tokens these are, whose, and of what classes."""
        text = json.dumps(self.arrays.facts, sort_keys=True)
        return {
            "tokens": hashlib.sha256(text.encode()).hexdigest(),
            "tokenizer_fingerprint": self.arrays.tokenizer_fingerprint,
            "class_names": list(self.arrays.class_names),
        }


def sizes_of(arrays: TokenArrays) -> dict[str, int]:
    """What a model for these tokens must have, by the names of its config."""
    num_tokens, num_classes = arrays.tokens.shape[1], len(arrays.class_names)
    return {"num_tokens": num_tokens, "codebook_size": arrays.codebook_size, "num_classes": num_classes}


def check_fit(what: str, model: MaskedGenerator | TokenCritic, arrays: TokenArrays) -> None:
    """Raises InputError unless the model has the tokens' sizes; it may be one without classes."""
    own = (model.num_tokens, model.codebook_size, model.num_classes or None)
    for (name, right), value in zip(sizes_of(arrays).items(), own, strict=True):
        if value not in (None, right):
            raise InputError(f"the {what}'s {name} is {value} but the tokens' is {right}; they must be equal")


class TokenTask(Task[Any]):
    """A task on token arrays, for a model of their sizes.

    tokenizer: the one that made the tokens, to show samples; None, and there is no picture. seed: of masks and draws.
    """

    def __init__(
        self, model: Any, arrays: TokenArrays, objective: Any, tokenizer: Tokenizer | None, seed: int, *others: Any
    ) -> None:
        check_fit(self.name, model, arrays)
        if tokenizer is not None:
            own, made = tokenizer.fingerprint()[:16], arrays.tokenizer_fingerprint[:16]
            if own != made:
                raise InputError(
                    f"the tokens were made with tokenizer {made}, and this tokenizer is {own}; give that one"
                )
        self.rows = TokenRows(arrays, seed, labelled=model.num_classes > 0)
        super().__init__(model, self.rows, objective, seed, tokenizer, *others)
        self.num_classes, self.tokenizer, self.num_images = model.num_classes, tokenizer, self.rows.num_images

    @abstractmethod
    def sampler(self, model: Any) -> tuple[MaskedGenerator, Scorer]:
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
        return {"samples": image_grid([to_pil(image) for image in images], _COLUMNS)}
