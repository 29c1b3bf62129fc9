"""The learner: a model with its AdamW optimizer and the moving average of its weights. It performs one update."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from tokencritic.contracts import Trunk
from tokencritic.devices import compile_blocks
from tokencritic.distribution import Ranks, distribute, local, whole
from tokencritic.randomness import example_seeds
from tokencritic.training.settings import OptimizerSettings, TrainingSettings
from tokencritic.training.task import Task


def make_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.AdamW:
    """Create a fused AdamW for the trainable parameters, with a state of zeros that a checkpoint can be loaded into."""
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in wanted if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in wanted if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas, fused=True)
    for parameter in wanted:
        moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        optimizer.state[parameter] = {"step": torch.zeros((), device=parameter.device), **moments}
    return optimizer


class Learner:
    """The model of a task in training, distributed over ranks.

    state: every tensor of the run by name, such as `model.head.weight`. Checkpoints save it and are loaded into it.
    """

    def __init__(self, task: Task, optimization: OptimizerSettings, settings: TrainingSettings, ranks: Ranks) -> None:
        self.task, self.optimization, self.settings, self.ranks = task, optimization, settings, ranks
        task.to(ranks.device)
        model = task.model.train()
        for trunk in (module for module in model.modules() if isinstance(module, Trunk)):
            trunk.recompute_activations = settings.recompute_activations
        if settings.compile:
            compile_blocks(*task.parts)
        self.network = distribute(model, ranks, settings.distribution)
        self.optimizer = make_optimizer(model, optimization)
        own = model.state_dict()  # the model's own tensors, updated in place
        average = {name: value.clone() for name, value in own.items()}
        self._average, self._own = ([local(value) for value in values.values()] for values in (average, own))
        state = self.optimizer.state
        moments = {f"{name}.{key}": v for name, p in model.named_parameters() for key, v in state.get(p, {}).items()}
        groups = {"model": own, "average": average, "optimizer": moments, "task": task.state_dict()}
        self.state = {f"{group}.{name}": tensor for group in groups for name, tensor in groups[group].items()}

    def parts(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return this rank's rows of a step, split by accumulation. rows: (b,) int64, the batch of all ranks."""
        return rows[self.ranks.share(len(rows))].chunk(self.settings.accumulation)

    def backward(self, rows: Tensor, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the clipped gradients of a step, accumulated over the parts of the batch.

        rows: (b,) int64, the batch of all ranks.

        Returns the mean loss and the gradient norm over all ranks, (2,), and this rank's `Loss.numbers`. All of them
        stay on the device, because reading them would synchronise a GPU at every step.
        """
        rank = torch.tensor([self.ranks.rank])
        torch.manual_seed(int(example_seeds(self.settings.seed, step, rank)))  # for dropout
        total, gathered = torch.zeros(2, device=self.ranks.device), []  # total: sum and number of the loss values
        parts = self.parts(rows)
        for part in parts:
            # Ranks exchange gradients once per step, with the last part.
            if isinstance(self.network, DistributedDataParallel):
                self.network.require_backward_grad_sync = part is parts[-1]
            elif isinstance(self.network, FSDPModule):
                self.network.set_requires_gradient_sync(part is parts[-1])
            with self._precision():
                loss = self.task.loss(self.network, part, step)
            value = loss.values.float().sum()
            value.backward()
            total += torch.stack([value.detach(), loss.num_counted()])
            gathered.append({name: number.detach().float().mean() for name, number in loss.numbers.items()})
        total = self.ranks.total(total)
        gradients = [parameter.grad for parameter in self.network.parameters() if parameter.grad is not None]
        factor = self.ranks.size / total[1]
        norm = whole(nn.utils.get_total_norm(gradients)) * factor
        factor = factor * (self.optimization.clip / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_([local(gradient) for gradient in gradients], factor)  # pyright: ignore[reportPrivateImportUsage]
        numbers = {name: torch.stack([part[name] for part in gathered]).mean() for name in gathered[0]}
        return torch.stack([total[0] / total[1], norm]), numbers

    def update(self, step: int, share: float) -> None:
        """Update the weights and their moving average.

        share: the share of the run that is done, in [0, 1].
        """
        for group in self.optimizer.param_groups:
            group["lr"] = self.optimization.rate(share)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.task.after_step(step, share)
        decay = min(self.optimization.ema, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._average, self._own, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    def _precision(self) -> Any:
        if self.settings.precision == "float32":
            return nullcontext()
        return torch.autocast(self.ranks.device.type, torch.bfloat16)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Return a context in which the network has the averaged weights, in evaluation mode and without gradients."""
        kept = [value.clone() for value in self._own]
        torch._foreach_copy_(self._own, self._average)  # pyright: ignore[reportPrivateImportUsage]
        with torch.no_grad(), self._precision():
            self.network.eval()
            yield
            self.network.train()
        torch._foreach_copy_(self._own, kept)  # pyright: ignore[reportPrivateImportUsage]
        if isinstance(self.network, FSDPModule):  # FSDP keeps some weights gathered after a forward pass
            self.network.reshard()

    def gathered(self) -> dict[str, Tensor]:
        """Return a copy of `state` on the CPU, gathered from all ranks. It is empty on all ranks but the first."""
        values = ((name, whole(tensor.detach())) for name, tensor in self.state.items())  # a collective per tensor
        contiguous = torch.contiguous_format
        return {n: v.to("cpu", copy=True, memory_format=contiguous) for n, v in values if self.ranks.first}
