"""Checkpoints of other projects, and the conversion of their arrays to a model of this package."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.models.saved import SavedModel, check_finite_weights, misfit

_PUBLISHED_IMAGE_SIZE = 256
_Model = TypeVar("_Model", bound=SavedModel)


@dataclass(frozen=True)
class Origin:
    """The origin of one tensor.

    shapes: the expected shapes of the source arrays, by name.
    convert: a function from the source arrays to the tensor.
    """

    shapes: dict[str, tuple[int, ...]]
    convert: Callable[..., Tensor] = lambda tensor: tensor


@dataclass(frozen=True)
class Checkpoint:
    """The arrays of a file, by name."""

    file: str | Path
    arrays: Mapping[str, Tensor]

    def shape(self, name: str, dimensions: int) -> tuple[int, ...]:
        """Return the shape of an array. Raises InputError unless the array has this number of dimensions."""
        if name not in self.arrays:
            raise InputError(f"{self.file} is not a checkpoint of this kind: it has no array {name}")
        shape = tuple(self.arrays[name].shape)
        if len(shape) != dimensions or 0 in shape:
            raise InputError(f"{self.file} has {name} of shape {shape}; expected {dimensions} dimensions, all above 0")
        return shape

    def count(self, pattern: str) -> int:
        """Return the number of distinct values of the pattern's group at the start of array names."""
        return len({match[1] for name in self.arrays if (match := re.match(pattern, name))})

    def levels(self, filters: int, widths: list[int], image_size: int | None) -> dict[str, Any]:
        """Return the fields of a `VQGANConfig` that depend on the channels of its levels and on the image size.

        filters: channels of the first level.
        widths: channels of each level, multiples of `filters`.
        image_size: pixels along each side; None for the published size, because the files do not contain it.
        """
        if any(width % filters for width in widths):
            raise InputError(f"{self.file} has levels of {widths} channels; expected multiples of {filters}")
        size = image_size or max(_PUBLISHED_IMAGE_SIZE, 2 ** (len(widths) - 1))
        return {"image_size": size, "filters": filters, "multipliers": tuple(width // filters for width in widths)}

    def build(
        self, kind: type[_Model], sizes: dict[str, Any], origin_of: Callable[[str, tuple[int, ...]], Origin]
    ) -> _Model:
        """Return a model in float32 and evaluation mode. Raises InputError unless every array is used exactly once.

        kind: the class of the model.
        sizes: the fields of its config.
        origin_of: a function from a name and a shape of the model's state dict to the origin of the tensor.
        """
        try:
            model = kind.without_weights(kind.Config(**sizes))
        except InputError as error:
            raise InputError(f"{self.file}: {error}") from error
        origins = {name: origin_of(name, tuple(value.shape)) for name, value in model.state_dict().items()}
        expected = {name: shape for origin in origins.values() for name, shape in origin.shapes.items()}
        if complex_ones := [name for name in expected if name in self.arrays and self.arrays[name].is_complex()]:
            raise InputError(f"{self.file} has {complex_ones[0]} of complex numbers; expected real ones")
        if wrong := misfit(expected, self.arrays):
            raise InputError(f"{self.file} does not hold the arrays of a {kind.__name__} ({wrong})")
        tensors = {
            name: origin.convert(*(self.arrays[other].float() for other in origin.shapes)).contiguous()
            for name, origin in origins.items()
        }
        check_finite_weights(self.file, tensors)
        model.load_state_dict(tensors, assign=True)
        return model.eval()
