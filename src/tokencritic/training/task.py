"""The base class of tasks. A task defines the model and its loss; the training loop handles ranks and checkpoints."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor, nn

VALIDATION_BATCH = 64  # held-out examples in one forward pass


class Loss(NamedTuple):
    """The loss on a batch, with other values for the log.

    values: unreduced, any shape. The loop takes the mean over all ranks and accumulated parts.
    numbers: values for the log by name, scalar or unreduced. The loop takes their means.
    counted: bool, of the shape of the values, True where a value counts in the mean. The other values must be 0. None
    counts all values.
    """

    values: Tensor
    numbers: dict[str, Tensor]
    counted: Tensor | None = None

    def num_counted(self) -> Tensor:
        """Return the number of values in the mean: a scalar float on their device, computed without synchronisation."""
        if self.counted is None:
            return torch.full((), float(self.values.numel()), device=self.values.device)
        return self.counted.sum().float()


class Task(ABC):
    """The base class of training tasks. Subclasses implement `loss` and override other methods as needed.

    name: the name of the model in the run folder and in a pipeline; a key of `KINDS` in `pipeline_folder.py`.
    model: the `SavedModel` to train and save.
    objective: a dataclass with the settings of the loss.
    seed: determines all randomness of the loss.
    num_rows: the number of examples. An example is identified by its row in [0, num_rows).
    num_images: the number of distinct images. Rows r and r + num_images are two crops of the same image.
    parts: all modules that a step needs, including the model.
    """

    name: str

    def __init__(self, model: Any, num_rows: int, objective: Any, seed: int, *others: Any) -> None:
        """Initialize the task.

        others: other objects that a step needs. Torch modules among them are moved with the model.
        """
        self.model, self.objective, self.seed = model, objective, seed
        self.num_rows = self.num_images = num_rows
        self.parts = [part for part in (model, *others) if isinstance(part, nn.Module)]

    def to(self, device: torch.device) -> None:
        """Move all parts to a device."""
        for part in self.parts:
            part.to(device)

    @abstractmethod
    def loss(self, network: nn.Module, rows: Tensor, step: int | None) -> Loss:
        """Compute the loss on a batch. The result depends only on the arguments and the weights.

        network: the model, possibly wrapped for distributed training. Call `network`, not `self.model`.
        rows: (b,) int64.
        step: the training step. None is validation, with fixed masks and without augmentation or dropped labels.
        """

    def reading_ahead(self, parts: Iterable[tuple[Tensor, int]], images: int) -> AbstractContextManager[None]:
        """Return a context for training, in which the task may read data before `loss` needs it.

        parts: rows (b,) and step of each call of `loss` in training, in their order.
        images: the number of rows of all parts.
        """
        return nullcontext()

    def after_step(self, step: int, progress: float) -> None:  # noqa: B027 - most tasks have nothing to update
        """Update state that the optimizer does not update, such as a codebook.

        progress: the share of the run that is done, in [0, 1].
        """

    @torch.no_grad()
    def validate(self, network: nn.Module, rows: Tensor) -> dict[str, float]:
        """Compute `loss` and other values on held-out examples.

        network: the model with the averaged weights, in evaluation mode.
        rows: (b,) int64.
        """
        parts = [self.loss(network, part, None) for part in rows.split(VALIDATION_BATCH)]
        loss = sum(part.values.float().sum() for part in parts) / sum(part.num_counted() for part in parts)
        gathered = {name: torch.cat([part.numbers[name] for part in parts]) for name in parts[0].numbers}
        return {"loss": float(loss), **{name: values.float().mean().item() for name, values in gathered.items()}}

    def pictures(self, network: nn.Module) -> dict[str, Image.Image]:
        """Return pictures of the network's output for fixed seeds or examples, by name."""
        return {}

    def facts(self) -> dict[str, Any]:
        """Return the JSON values that must not change when a run is resumed, by name. Subclasses add the data set."""
        return {"config": asdict(self.model.config), "objective": asdict(self.objective), "seed": self.seed}

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors of the task's own state by name, without copying. Resuming a run fills them in place."""
        return {}
