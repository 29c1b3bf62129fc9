"""Another project's checkpoint, and fitting its arrays into a model of ours with one error that lists what does not fit."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.models.saved import SavedModel, misfit

_PUBLISHED_IMAGE_SIZE = 256
_Model = TypeVar("_Model", bound=SavedModel)


@dataclass(frozen=True)
class Origin:
    """Where one tensor of ours comes from: the others' names with the shapes they must have, and what to make of them."""

    shapes: dict[str, tuple[int, ...]]
    convert: Callable[..., Tensor] = lambda tensor: tensor


@dataclass(frozen=True)
class Checkpoint:
    """The arrays of a file by name. Sizes are read from their shapes."""

    file: str | Path
    arrays: Mapping[str, Tensor]

    def shape(self, name: str, dimensions: int) -> tuple[int, ...]:
        """The shape of an array; without it, or with one of another kind, the file is something else."""
        if name not in self.arrays:
            raise InputError(f"{self.file} is not a checkpoint of this kind: it has no array {name}")
        shape = tuple(self.arrays[name].shape)
        if len(shape) != dimensions or 0 in shape:
            raise InputError(f"{self.file} has {name} of shape {shape}; expected {dimensions} dimensions, all above 0")
        return shape

    def count(self, pattern: str) -> int:
        """How many different numbers the pattern's group takes at the start of names."""
        return len({match[1] for name in self.arrays if (match := re.match(pattern, name))})

    def levels(self, filters: int, widths: list[int], image_size: int | None) -> dict[str, Any]:
        """The part of a `VQGANConfig` that widths of levels and image size decide; the files do not tell the latter."""
        if any(width % filters for width in widths):
            first = f"which are no multiples of the first's, {filters}"
            raise InputError(f"{self.file} has levels of {widths} channels, {first}")
        size = image_size or max(_PUBLISHED_IMAGE_SIZE, 2 ** (len(widths) - 1))
        return {"image_size": size, "filters": filters, "multipliers": tuple(width // filters for width in widths)}

    def build(
        self, kind: type[_Model], sizes: dict[str, Any], origin_of: Callable[[str, tuple[int, ...]], Origin]
    ) -> _Model:
        """A model of the sizes, in eval mode and in float32, with every array of the file used exactly once.

        origin_of: from a name in the model's state dict, and its shape, to where the tensor comes from.
        """
        try:
            model = kind.without_weights(kind.Config(**sizes))
        except InputError as error:
            raise InputError(f"{self.file}: {error}") from error
        origins = {name: origin_of(name, tuple(value.shape)) for name, value in model.state_dict().items()}
        expected = {name: shape for origin in origins.values() for name, shape in origin.shapes.items()}
        if wrong := misfit(expected, self.arrays):
            raise InputError(f"{self.file} does not hold the arrays of a {kind.__name__} ({wrong})")
        tensors = {
            name: origin.convert(*(self.arrays[other].float() for other in origin.shapes)).contiguous()
            for name, origin in origins.items()
        }
        model.load_state_dict(tensors, assign=True)
        return model.eval()
