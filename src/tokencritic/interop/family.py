"""What an importer is: one for every family of published generators, and for tokenizers that are published alone."""

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
    """What a user has: the weight files of a generator and its tokenizer, and what the files do not tell.

    heads: of the generator's attention, None if not given. config: the authors' own config, empty if there is none.
    """

    generator: Path
    tokenizer: Path
    heads: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Imported:
    """A generator and its tokenizer, both in eval mode. defaults: the authors' published sampling settings."""

    generator: TrunkGenerator
    tokenizer: ImageTokenizer
    defaults: SamplingSettings


@dataclass(frozen=True)
class Family:
    """A kind of published generator. name: as the command line has it. title: with its authors' project.

    generator_marks, tokenizer_marks: names of tensors of which the files of this family have one, and no other family's.
    read: makes the model; it raises InputError for files that are something else.
    """

    name: str
    title: str
    generator_marks: tuple[str, ...]
    tokenizer_marks: tuple[str, ...]
    read: Callable[[Sources], Imported]


@dataclass(frozen=True)
class TokenizerFamily:
    """A kind of published tokenizer, imported without a generator. name, title, marks: as those of `Family`.

    read: makes the tokenizer of a file for images of a size, or of the size that it is published for.
    """

    name: str
    title: str
    marks: tuple[str, ...]
    read: Callable[[Path, int | None], Tokenizer]
