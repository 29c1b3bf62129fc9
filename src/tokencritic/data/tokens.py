"""Token arrays: a folder with `tokens.npy`, `labels.npy` and `tokens.json`, memory-mapped.

tokens.npy: uint16 (rows, n). labels.npy: int32 (rows,). tokens.json: what made them; it is written last, so a folder
without it is not whole. Packed, all three are in one compressed `tokens.npz`, which a model folder may bring along.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from tokencritic.data.npz import arrays_of, write_arrays
from tokencritic.errors import InputError, check_range
from tokencritic.files import read_json, reading
from tokencritic.pretrained import place_of

TOKENS = "tokens.npy"
LABELS = "labels.npy"
FACTS = "tokens.json"
PACKED = "tokens.npz"

TOKEN_TYPE = np.dtype("<u2")
LABEL_TYPE = np.dtype("<i4")
CROPS = "passes"  # the stored name of how many rows each image has


@dataclass(frozen=True, eq=False)
class TokenArrays:
    """Tokenized images. tokens: uint16 (rows, n), below `codebook_size`. labels: int32 (rows,), below the class count; all -1
    for images without classes, whose class_names are empty.

    facts: the whole JSON, with the crop policy, the counts and the facts of the image source.
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

    @property
    def num_images(self) -> int:
        """How many different images there are: each has as many rows as crops were made of it."""
        return len(self) // self.facts.get(CROPS, 1)

    @classmethod
    def open(cls, place: str | Path, tokenizer_fingerprint: str | None = None) -> Self:
        """Map a folder written by `tokenize`, or read packed tokens: of the file, or of the model that brings it.

        tokenizer_fingerprint: that of the model's tokenizer, which must agree.
        """
        place = Path(place_of(place))
        facts, ((tokens_file, tokens), (labels_file, labels)) = _read(place)
        made_with = facts["tokenizer_fingerprint"]
        if tokenizer_fingerprint is not None and tokenizer_fingerprint != made_with:
            raise InputError(
                f"{place} was made with tokenizer {made_with[:16]}, and this tokenizer is "
                f"{tokenizer_fingerprint[:16]}; tokenize the images with this one"
            )
        names, size, (height, width) = tuple(facts["class_names"]), facts["codebook_size"], facts["grid"]
        _check(tokens_file, tokens, TOKEN_TYPE, (facts["rows"], height * width), size)
        # Without classes they are -1.
        _check(labels_file, labels if names else labels + 1, LABEL_TYPE, (facts["rows"],), len(names) or 1)
        return cls(tokens, np.array(labels), made_with, size, (height, width), names, facts)

    def pack(self, file: Path) -> None:
        """Write them as one compressed file, whole or not at all."""
        facts = np.frombuffer(json.dumps(self.facts).encode(), np.uint8)
        write_arrays(file, {"tokens": self.tokens, "labels": self.labels, "facts": facts})


def read_facts(folder: Path) -> dict[str, Any] | None:
    """The JSON of a token folder, checked; None where there is none."""
    file = folder / FACTS
    return _check_facts(file, read_json(file)) if file.is_file() else None


def _check_facts(file: Path, facts: Any) -> dict[str, Any]:
    kinds = {"tokenizer_fingerprint": str, "codebook_size": int, "grid": list, "class_names": list, "rows": int}
    for name, kind in kinds.items():
        if not isinstance(facts, dict) or not isinstance(facts.get(name), kind):
            raise InputError(f"{file} has no {name} of type {kind.__name__}; expected a file that tokenizing wrote")
    if len(facts["grid"]) != 2 or not all(isinstance(side, int) and side > 0 for side in facts["grid"]):
        raise InputError(f"{file} has grid {facts['grid']}; expected [height, width]")
    return facts


def _read(place: Path) -> tuple[dict[str, Any], list[tuple[Path, np.ndarray]]]:
    """The facts; and tokens and labels, each with its file. The arrays of a folder stay on disk."""
    packed = place if place.suffix == ".npz" else place / PACKED
    if packed.is_file():
        with arrays_of(packed) as arrays:
            if not {"facts", "tokens", "labels"} <= set(arrays):
                raise InputError(f"{packed} holds no packed tokens; expected those, or a folder that `tokenize` wrote")
            facts = _check_facts(packed, json.loads(arrays["facts"].tobytes()))
            return facts, [(packed, arrays["tokens"]), (packed, arrays["labels"])]
    facts, found = read_facts(place), []
    if facts is None:
        raise InputError(f"{place} has no {FACTS}; expected a folder that tokenizing has finished")
    for file in (place / TOKENS, place / LABELS):
        with reading(file, "a whole .npy file"):
            found.append((file, np.load(file, mmap_mode="r", allow_pickle=False)))
    return facts, found


def _check(file: Path, array: np.ndarray, dtype: np.dtype, shape: tuple[int, ...], limit: int) -> None:
    if array.dtype != dtype or array.shape != shape:
        raise InputError(f"{file} holds {array.dtype} {array.shape}; the {FACTS} beside it says {dtype} {shape}")
    check_range(str(file), array, limit)
