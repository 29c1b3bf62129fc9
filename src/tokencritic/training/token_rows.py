"""Token arrays as training reads them: examples by their numbers, each with a seed of its own."""

import hashlib
import json
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokencritic.data.tokens import TokenArrays
from tokencritic.errors import InputError
from tokencritic.randomness import example_seeds

_VALIDATION_STEP = 2**62  # whose seeds validation uses, always the same; no run gets so far


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
        """How many different images there are: each pass over them has made one row of each."""
        return len(self.arrays) // self.arrays.facts.get("passes", 1)

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
    sizes = {"num_tokens": arrays.tokens.shape[1], "codebook_size": arrays.codebook_size}
    return {**sizes, "num_classes": len(arrays.class_names)}


def check_fit(what: str, model: Any, arrays: TokenArrays) -> None:
    """The model has the tokens' sizes, where it has them as attributes; it may be one without classes."""
    for name, right in sizes_of(arrays).items():
        own = getattr(model, name, None)
        if own not in ((None, right, 0) if name == "num_classes" else (None, right)):
            raise InputError(f"the {what}'s {name} is {own} but the tokens' is {right}; they must be equal")
