"""The contract of importers of published generators and tokenizers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokencritic.contracts import ImageTokenizer
from tokencritic.models.generator import TrunkGenerator
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class Sources:
    """The input of an importer.

    generator, tokenizer: the files of weights.
    heads: attention heads of the generator, None if not given.
    config: the authors' config, empty if there is none.
    """

    generator: Path
    tokenizer: Path
    heads: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Imported:
    """A generator and its tokenizer, both in evaluation mode. defaults: the authors' published sampling settings."""

    generator: TrunkGenerator
    tokenizer: ImageTokenizer
    defaults: SamplingSettings


@dataclass(frozen=True)
class Family:
    """The importer of a kind of published generator.

    generator_marks, tokenizer_marks: tensor names that identify files of this family; one of them is enough.
    read: builds the model. Raises InputError for files of another kind.
    """

    generator_marks: tuple[str, ...]
    tokenizer_marks: tuple[str, ...]
    read: Callable[[Sources], Imported]


@dataclass(frozen=True)
class TokenizerFamily:
    """The importer of a kind of tokenizer that is published without a generator.

    marks: as in `Family`.
    read: builds the tokenizer from a file and an image size; None for the published size.
    """

    marks: tuple[str, ...]
    read: Callable[[Path, int | None], Tokenizer]
