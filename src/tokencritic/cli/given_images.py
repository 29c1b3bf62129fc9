"""What `refine` and `edit` share: the classes of pictures that a user names."""

from typing import TYPE_CHECKING

from tokencritic.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from tokencritic.pipeline import TokenCriticPipeline


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
