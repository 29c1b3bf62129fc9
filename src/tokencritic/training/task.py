"""What the training loop is given: a task knows what is learned, and nothing of steps, ranks or checkpoints."""

from typing import Any, NamedTuple, Protocol

import torch
from PIL import Image
from torch import Tensor, nn

from tokencritic.models.saved import SavedModel

AT_ONCE = 64  # held-out examples in one pass


class Loss(NamedTuple):
    """values: unreduced, any shape; the loop takes their mean over the batch of all ranks and all accumulated parts.

    numbers: scalars for the log, by name, without gradient.
    """

    values: Tensor
    numbers: dict[str, Tensor]


class Task(Protocol):
    """What is learned. `model` is what is kept; the task's own state is whatever else belongs to the run."""

    @property
    def name(self) -> str:
        """The model's name in the run folder and in a pipeline: tokenizer, generator, critic or classifier."""
        ...

    @property
    def model(self) -> SavedModel: ...

    @property
    def num_rows(self) -> int:
        """How many examples there are; training and validation speak of them by their number, a row."""
        ...

    @property
    def num_images(self) -> int:
        """How many different images these are: rows r and r + num_images show the same one, cropped anew."""
        ...

    def to(self, device: torch.device) -> None:
        """Move the model and whatever else a step needs."""
        ...

    def loss(self, network: nn.Module, rows: Tensor, step: int) -> Loss:
        """The loss on some examples: a function of its arguments and the weights alone.

        network: the model, perhaps wrapped for distributed training; call it, and not the model. rows: (b,) int64.
        """
        ...

    def after_step(self, step: int, progress: float) -> None:
        """Whatever else moves, such as a codebook or a discriminator. progress: the share of the run that is done."""
        ...

    def validate(self, network: nn.Module, rows: Tensor) -> dict[str, float]:
        """Numbers on held-out examples, `loss` among them; the network holds the averaged weights, in eval mode."""
        ...

    def pictures(self, network: nn.Module) -> dict[str, Image.Image]:
        """What the network makes of fixed seeds or examples, by name; none is fine."""
        ...

    def facts(self) -> dict[str, Any]:
        """What must be the same when a run goes on, as JSON values by name."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors of the task's own state by name, not copies: going on with a run fills them in place."""
        ...
