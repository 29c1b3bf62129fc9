"""What an importer is: one row for every family of published generators."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokencritic.contracts import ImageTokenizer
from tokencritic.models.generator import TrunkGenerator
from tokencritic.sampling.settings import SamplingSettings


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

    generator_marks, tokenizer_marks: names of tensors that the files of this family, and of no other, have.
    read: makes the model; it raises InputError for files that are something else.
    """

    name: str
    title: str
    generator_marks: tuple[str, ...]
    tokenizer_marks: tuple[str, ...]
    read: Callable[[Sources], Imported]
