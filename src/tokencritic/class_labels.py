"""Conversion of class labels between numbers and names."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor

from tokencritic.bounds import DIGITS
from tokencritic.errors import InputError

ClassLabels = int | str | Sequence[int | str]


@dataclass(frozen=True)
class Classes:
    """The classes of a model.

    count: the number of classes; 0 for a model without classes.
    names: one name per class, or none.
    """

    count: int
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.names and len(self.names) != self.count:
            raise InputError(f"class_names has {len(self.names)} entries for {self.count} classes")

    def labels(self, class_labels: ClassLabels | None, called: str = "class_labels") -> Tensor | None:
        """Return the labels of classes: (b,) int64; None for a model without classes.

        class_labels: numbers or names, one or several. None selects the only class of a model with one class. A model
        without classes requires None.
        called: the name of the argument in error messages.
        """
        if class_labels is None:
            if self.count > 1:
                raise InputError(f"{called} is missing; the model has {self.count} classes, give one or several")
            return torch.zeros(1, dtype=torch.int64) if self.count else None
        if self.count == 0:
            raise InputError(f"{called} is {class_labels!r}, and the model has no classes; leave it out")
        wanted = [class_labels] if isinstance(class_labels, int | Integral | str) else list(class_labels)
        if not wanted:
            raise InputError(f"{called} is empty; give at least one class")
        return torch.tensor([self._number(label, called) for label in wanted], dtype=torch.int64)

    def in_turn(self, num: int, class_labels: ClassLabels | None = None, called: str = "class_labels") -> Tensor | None:
        """Return labels (num,) that cycle through some classes, by default all; None for a model without classes."""
        every = range(self.count) if self.count else None
        turns = self.labels(every if class_labels is None else class_labels, called)
        return None if turns is None else turns.repeat(-(-num // len(turns)))[:num]

    def names_of(self, labels: Iterable[int] | Tensor | None) -> list[str]:
        """Return the names of classes. Without names, the classes are numbered.

        A name that several classes have is followed by the number of the class. For labels of None the list is empty.
        """
        numbers = [] if labels is None else [int(label) for label in labels]
        if not self.names:
            return [f"class {label}" if self.count else "" for label in numbers]
        uses = Counter(self.names)
        return [
            self.names[label] if uses[self.names[label]] == 1 else f"{self.names[label]} ({label})" for label in numbers
        ]

    def _number(self, label: int | str, called: str) -> int:
        if isinstance(label, str) and not label.isdecimal():
            matches = [i for i, name in enumerate(self.names) if name.lower() == label.lower()]
            if not matches:
                some = ", ".join(self.names[:10]) or "none: give numbers"
                raise InputError(f"{called} holds {label!r}; the model's class names are {some}")
            return matches[0]
        known = isinstance(label, Integral | str) and len(str(label)) <= DIGITS
        if not known or not 0 <= int(label) < self.count:
            raise InputError(f"{called} holds {label}; expected 0 to {self.count - 1}, or a class name")
        return int(label)
