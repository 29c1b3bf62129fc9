"""Conversion of class labels between numbers and names."""

from collections import Counter
from collections.abc import Iterable, Sequence
from numbers import Integral

from tokencritic.errors import InputError

ClassLabels = int | str | Sequence[int | str]


def label_numbers(class_labels: ClassLabels, names: Sequence[str], num_classes: int, called: str) -> list[int]:
    """Convert one or several class numbers or names to a list of numbers.

    names: the name of each class, or empty.
    called: the name of the labels in error messages.
    """
    wanted = [class_labels] if isinstance(class_labels, int | Integral | str) else list(class_labels)
    if not wanted:
        raise InputError(f"{called} is empty; give at least one class")
    return [_number(label, names, num_classes, called) for label in wanted]


def _number(label: int | str, names: Sequence[str], num_classes: int, called: str) -> int:
    if isinstance(label, str) and not label.isdecimal():
        matches = [i for i, name in enumerate(names) if name.lower() == label.lower()]
        if not matches:
            some = ", ".join(names[:10]) or "unknown, give numbers"
            raise InputError(f"{called} holds {label!r}; the model's class names are {some}")
        return matches[0]
    if not isinstance(label, Integral | str) or not 0 <= int(label) < num_classes:
        raise InputError(f"{called} holds {label}; expected 0 to {num_classes - 1}, or a class name")
    return int(label)


def label_names(labels: Iterable[int], names: Sequence[str]) -> list[str]:
    """Return the name of each label: "class 3" without names, and "crane (134)" for names that occur twice."""
    if not names:
        return [f"class {label}" for label in labels]
    uses = Counter(names)
    named = ((label, names[label]) for label in labels)
    return [name if uses[name] == 1 else f"{name} ({label})" for label, name in named]
