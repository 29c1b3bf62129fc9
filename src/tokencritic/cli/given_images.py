"""What `refine` and `edit` share: pictures that a user names, and their classes."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from tokencritic.errors import InputError

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

    from tokencritic.pipeline import TokenCriticPipeline

_BROKEN = (OSError, SyntaxError, ValueError, EOFError)  # what Pillow raises on a broken file


def read_picture(file: Path) -> "Image.Image":
    """A picture in mode L or RGB. One that would take absurd room in memory is refused as if it were broken."""
    from PIL import Image

    from tokencritic.data.folder import read_image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return read_image(file)
    except (*_BROKEN, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error).strip() or type(error).__name__
        raise InputError(f"{file} is no image that can be read: {reason.splitlines()[0]}") from error


def labels_for(pipe: "TokenCriticPipeline", tokens: "Tensor", classes: list[str] | None, batch_size: int) -> "Tensor":
    """One class per image, (b,): as given, one for each or one for all; or as the classifier says. tokens: (b, n)."""
    if classes is None:
        if pipe.classifier is None:
            raise InputError(
                "--classes is missing and the model has no classifier; give one for each image, or one for all"
            )
        return pipe.classify(tokens, batch_size)
    if len(classes) not in (1, len(tokens)):
        raise InputError(
            f"--classes has {len(classes)} entries for {len(tokens)} images; give one for each, or one for all"
        )
    labels = pipe.labels(classes, called="--classes")
    return labels.expand(len(tokens)) if len(labels) == 1 else labels


def class_text(pipe: "TokenCriticPipeline", label: int) -> str:
    """ "class 2 (Pullover)", or "class 2" for a model without names."""
    return f"class {label}" + (f" ({pipe.class_names[label]})" if pipe.class_names else "")
