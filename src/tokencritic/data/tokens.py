"""Token arrays: a memory-mapped folder with `tokens.npy`, `labels.npy` and `tokens.json`.

tokens.npy: uint16 (rows, n).
labels.npy: int32 (rows,).
tokens.json: how the tokens were made. It is written last, so a folder without it is incomplete.

Packed tokens are all three in one compressed `tokens.npz`. A model folder may include such a file.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from tokencritic.bounds import MOST
from tokencritic.data.npz import arrays_of, write_arrays
from tokencritic.errors import InputError, check_at_least, check_range
from tokencritic.files import parse_json, read_json, reading
from tokencritic.pretrained import place_of

TOKENS = "tokens.npy"
LABELS = "labels.npy"
FACTS = "tokens.json"
PACKED = "tokens.npz"

TOKEN_TYPE = np.dtype("<u2")
LABEL_TYPE = np.dtype("<i4")
CROPS = "passes"  # the key of the number of crops per image in tokens.json


@dataclass(frozen=True, eq=False)
class TokenArrays:
    """Tokenized images.

    tokens: uint16 (rows, n) in [0, codebook_size).
    labels: int32 (rows,) in [0, len(class_names)); -1 for images without classes, which have no class_names.
    grid: (height, width) of the tokens.
    facts: the content of tokens.json, including the crops, the counts and the image source.
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
        """The number of distinct images. Each image has one row per crop."""
        return len(self) // self.facts.get(CROPS, 1)

    @classmethod
    def open(cls, place: str | Path, tokenizer_fingerprint: str | None = None) -> Self:
        """Open a folder written by `tokenize`, or packed tokens.

        place: a folder of token arrays, a file of packed tokens, or a model that includes them.
        tokenizer_fingerprint: the fingerprint of the tokenizer in use; must match that of the tokens.
        """
        place = Path(place_of(place))
        facts, ((tokens_file, tokens), (labels_file, labels)) = _read(place)
        made_with = facts["tokenizer_fingerprint"]
        if tokenizer_fingerprint is not None and tokenizer_fingerprint != made_with:
            raise InputError(
                f"{place} was made with tokenizer {made_with[:16]}; expected {tokenizer_fingerprint[:16]}; "
                "tokenize the images again"
            )
        names, size, (height, width) = tuple(facts["class_names"]), facts["codebook_size"], facts["grid"]
        _check(tokens_file, tokens, TOKEN_TYPE, (facts["rows"], height * width), size)
        # Without classes they are -1.
        _check(labels_file, labels if names else labels + 1, LABEL_TYPE, (facts["rows"],), len(names) or 1)
        return cls(tokens, np.array(labels), made_with, size, (height, width), names, facts)

    def pack(self, file: Path) -> None:
        """Write the arrays and facts to one compressed file atomically."""
        facts = np.frombuffer(json.dumps(self.facts).encode(), np.uint8)
        write_arrays(file, {"tokens": self.tokens, "labels": self.labels, "facts": facts})


def read_facts(folder: Path) -> dict[str, Any] | None:
    """Read and check tokens.json of a folder. Returns None if the file does not exist."""
    file = folder / FACTS
    return _check_facts(file, read_json(file)) if file.is_file() else None


def _check_facts(file: Path, facts: Any) -> dict[str, Any]:
    kinds = {"tokenizer_fingerprint": str, "codebook_size": int, "grid": list, "class_names": list, "rows": int}
    for name, kind in kinds.items():
        if not isinstance(facts, dict) or not isinstance(facts.get(name), kind):
            raise InputError(f"{file} has no {name} of type {kind.__name__}; expected a file that `tokenize` wrote")
    crops, grid = facts.get(CROPS, 1), facts["grid"]
    if not isinstance(crops, int) or not 1 <= crops <= max(1, facts["rows"]):
        raise InputError(f"{file} has {CROPS} {crops!r:.60}; expected an integer from 1 to its rows, {facts['rows']}")
    if len(grid) != 2 or not all(isinstance(side, int) and 0 < side <= MOST["num_tokens"] for side in grid):
        raise InputError(f"{file} has grid {grid!r:.60}; expected [height, width]")
    if not all(isinstance(name, str) for name in facts["class_names"]):
        raise InputError(f"{file} has class_names {facts['class_names']!r:.60}; expected a list of names")
    if not isinstance(facts.get("corrupt", {}), dict):
        raise InputError(f"{file} has corrupt {facts['corrupt']!r:.60}; expected reasons by file")
    check_at_least(1, codebook_size=facts["codebook_size"])
    return facts


def _read(place: Path) -> tuple[dict[str, Any], list[tuple[Path, np.ndarray]]]:
    """Read the facts, and tokens and labels with the file of each. The arrays of a folder are memory-mapped."""
    packed = place if place.suffix == ".npz" else place / PACKED
    if packed.is_file():
        with arrays_of(packed) as arrays:
            if not {"facts", "tokens", "labels"} <= set(arrays):
                raise InputError(f"{packed} holds no packed tokens; expected facts, tokens and labels in an .npz")
            facts = _check_facts(packed, parse_json(packed, arrays["facts"].tobytes()))
            return facts, [(packed, arrays["tokens"]), (packed, arrays["labels"])]
    facts, found = read_facts(place), []
    if facts is None:
        raise InputError(f"{place} has no {FACTS}; expected a folder that `tokenize` has completed")
    for file in (place / TOKENS, place / LABELS):
        with reading(file, "a whole .npy file"):
            found.append((file, np.lib.format.open_memmap(file, mode="r")))
    return facts, found


def _check(file: Path, array: np.ndarray, dtype: np.dtype, shape: tuple[int, ...], limit: int) -> None:
    if array.dtype != dtype or array.shape != shape:
        raise InputError(f"{file} holds {array.dtype} {array.shape}; expected {dtype} {shape} by its {FACTS}")
    check_range(str(file), array, limit)
