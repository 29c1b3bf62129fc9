"""What the training loop is given: a task knows what is learned, and nothing of steps, ranks or checkpoints."""

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor, nn

VALIDATION_BATCH = 64  # held-out examples in one forward pass


class Loss(NamedTuple):
    """values: unreduced, any shape; the loop takes their mean over the batch of all ranks and all accumulated parts.

    numbers: for the log, by name; scalars or, as the values, unreduced. The loop takes their means.
    counted: bool, of the shape of the values: those that count; the others must be 0. None if all do.
    """

    values: Tensor
    numbers: dict[str, Tensor]
    counted: Tensor | None = None

    def num_counted(self) -> Tensor:
        """How many values count: a scalar float on their device, which the host does not wait for."""
        if self.counted is None:
            return torch.full((), float(self.values.numel()), device=self.values.device)
        return self.counted.sum().float()


class Task(ABC):
    """What is learned. Subclasses say how the loss comes about and override what else is different.

    name: the model's name in the run folder and in a pipeline: see `KINDS` in `pipeline_folder.py`.
    model: a `SavedModel`, what is kept. objective: a dataclass. seed: of all that is random in the loss.
    num_rows: how many examples there are; training and validation name them by their number, a row.
    num_images: how many different images these are: rows r and r + num_images show the same one, cropped anew.
    parts: every module that a step needs, the model among them.
    """

    name: str

    def __init__(self, model: Any, num_rows: int, objective: Any, seed: int, *others: Any) -> None:
        """others: what else a step needs; those that are torch modules move with the model."""
        self.model, self.objective, self.seed = model, objective, seed
        self.num_rows = self.num_images = num_rows
        self.parts = [part for part in (model, *others) if isinstance(part, nn.Module)]

    def to(self, device: torch.device) -> None:
        """Move the model and whatever else a step needs."""
        for part in self.parts:
            part.to(device)

    @abstractmethod
    def loss(self, network: nn.Module, rows: Tensor, step: int | None) -> Loss:
        """The loss on some examples: a function of its arguments and the weights alone.

        network: the model, perhaps wrapped for distributed training; call it, and not the model. rows: (b,) int64.
        step: None is validation: the same masks each time, and neither augmentation nor dropped labels.
        """

    def after_step(self, step: int, progress: float) -> None:  # noqa: B027 - most tasks have nothing to move
        """Move whatever else moves, such as a codebook. progress: the share of the run that is done."""

    @torch.no_grad()
    def validate(self, network: nn.Module, rows: Tensor) -> dict[str, float]:
        """Numbers on held-out examples, `loss` among them; the network holds the averaged weights, in eval mode."""
        parts = [self.loss(network, part, None) for part in rows.split(VALIDATION_BATCH)]
        loss = sum(part.values.float().sum() for part in parts) / sum(part.num_counted() for part in parts)
        gathered = {name: torch.cat([part.numbers[name] for part in parts]) for name in parts[0].numbers}
        return {"loss": float(loss), **{name: values.float().mean().item() for name, values in gathered.items()}}

    def pictures(self, network: nn.Module) -> dict[str, Image.Image]:
        """What the network makes of fixed seeds or examples, by name."""
        return {}

    def facts(self) -> dict[str, Any]:
        """What must be the same when a run is resumed, as JSON values by name; subclasses add what the examples are."""
        return {"config": asdict(self.model.config), "objective": asdict(self.objective), "seed": self.seed}

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors of the task's own state by name, not copies: resuming a run fills them in place."""
        return {}
