"""The command line that makes the same images."""

import dataclasses
import shlex
from collections.abc import Sequence

from tokencritic.sampling.settings import SamplingSettings
from tokencritic.studio.work import Generate, Refine


def sample_command(model: str, work: Generate, settings: SamplingSettings, class_names: Sequence[str]) -> str:
    """`token-critic sample` for one way of making the images of `work`."""
    words = ["token-critic", "sample", model, "--num", str(len(work.labels)), "--seed", str(work.seed)]
    if work.classes is not None:
        words += ["--classes", *(class_word(label, class_names) for label in work.classes)]
    return shlex.join(words + _flags(settings))


def refine_command(model: str, work: Refine, label: int, file: str, class_names: Sequence[str]) -> str:
    """`token-critic refine` of a file. label: the class it was refined as."""
    file = f"./{file}" if file.startswith("-") else file
    words = ["token-critic", "refine", model, file, "--classes", class_word(label, class_names)]
    words += ["--ratio", repr(work.ratio), "--seed", str(work.seed)]
    return shlex.join(words + _flags(work.settings))


def class_word(label: int, class_names: Sequence[str]) -> str:
    """A class by its name, or by its number where the name could be taken for something else."""
    name = class_names[label] if class_names else ""
    same = sum(other.lower() == name.lower() for other in class_names)
    return str(label) if not name or name.isdecimal() or name.startswith("-") or same > 1 else name


def _flags(settings: SamplingSettings) -> list[str]:
    """All of them, so that the command does not depend on the defaults of the model's folder."""
    words = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value is not None:
            values = value if isinstance(value, tuple) else (value,)
            words += [f"--{field.name}", *(str(part) for part in values)]
    return words
