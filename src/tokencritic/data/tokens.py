"""Token arrays: a folder with `tokens.npy`, `labels.npy` and `tokens.json`, memory-mapped.

tokens.npy: uint16 (rows, n). labels.npy: int32 (rows,). tokens.json: what made them; it is written last, so a folder
without it is not whole.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from tokencritic.errors import InputError

TOKENS = "tokens.npy"
LABELS = "labels.npy"
FACTS = "tokens.json"

TOKEN_TYPE = np.dtype("<u2")
LABEL_TYPE = np.dtype("<i4")
MAX_CODEBOOK = 2**16

_ROWS_CHECKED_AT_ONCE = 2**16


@dataclass(frozen=True, eq=False)
class TokenArrays:
    """Tokenized images. tokens: uint16 (rows, n), below `codebook_size`. labels: int32 (rows,), below the class count.

    facts: the whole JSON, with the crop policy, the passes, the counts and the facts of the image source.
    """

    tokens: np.ndarray
    labels: np.ndarray
    tokenizer_fingerprint: str
    codebook_size: int
    grid: tuple[int, int]
    class_names: tuple[str, ...]
    facts: dict[str, Any]

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def open(cls, folder: str | Path, tokenizer_fingerprint: str | None = None) -> Self:
        """Map a folder written by `tokenize`. tokenizer_fingerprint: that of the model's tokenizer, which must agree."""
        folder = Path(folder)
        facts = read_facts(folder)
        if facts is None:
            raise InputError(f"{folder} has no {FACTS}; expected a folder that tokenizing has finished")
        made_with = facts["tokenizer_fingerprint"]
        if tokenizer_fingerprint is not None and tokenizer_fingerprint != made_with:
            raise InputError(
                f"{folder} was made with tokenizer {made_with[:16]}, and this tokenizer is "
                f"{tokenizer_fingerprint[:16]}; tokenize the images with this one"
            )
        height, width = facts["grid"]
        tokens = _map(folder / TOKENS, TOKEN_TYPE, (facts["rows"], height * width))
        labels = np.array(_map(folder / LABELS, LABEL_TYPE, (facts["rows"],)))
        _check_below(folder / TOKENS, tokens, facts["codebook_size"], "code")
        _check_below(folder / LABELS, labels, len(facts["class_names"]), "class")
        return cls(
            tokens, labels, made_with, facts["codebook_size"], (height, width), tuple(facts["class_names"]), facts
        )


def read_facts(folder: Path) -> dict[str, Any] | None:
    """The JSON of a token folder, checked; None where there is none."""
    file = folder / FACTS
    if not file.is_file():
        return None
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{file} is not JSON: {error}") from error
    kinds = {"tokenizer_fingerprint": str, "codebook_size": int, "grid": list, "class_names": list, "rows": int}
    for name, kind in kinds.items():
        if not isinstance(facts, dict) or not isinstance(facts.get(name), kind):
            raise InputError(f"{file} has no {name} of type {kind.__name__}; expected a file that tokenizing wrote")
    if len(facts["grid"]) != 2 or not all(isinstance(side, int) and side > 0 for side in facts["grid"]):
        raise InputError(f"{file} has grid {facts['grid']}; expected [height, width]")
    return facts


def _map(file: Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{file} is not a whole .npy file: {error}") from error
    if array.dtype != dtype or array.shape != shape:
        raise InputError(f"{file} holds {array.dtype} {array.shape}; the {FACTS} beside it says {dtype} {shape}")
    return array


def _check_below(file: Path, values: np.ndarray, limit: int, what: str) -> None:
    for start in range(0, len(values), _ROWS_CHECKED_AT_ONCE):
        part = values[start : start + _ROWS_CHECKED_AT_ONCE]
        low, high = int(part.min()), int(part.max())
        if low < 0 or high >= limit:
            raise InputError(f"{file} holds {low if low < 0 else high}; the last {what} is {limit - 1}")
