"""What is trained: the model with its optimizer, AdamW, and its moving average, one update at a time."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from tokencritic.contracts import Trunk
from tokencritic.distribution import Ranks, distribute, local, whole
from tokencritic.randomness import example_seeds
from tokencritic.training.settings import OptimizerSettings, TrainingSettings
from tokencritic.training.task import Task, named


def make_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.AdamW:
    """AdamW, fused, over the parameters that want a gradient. Its state is there from the start, at 0, to be loaded into."""
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in wanted if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in wanted if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas, fused=True)
    for parameter in wanted:
        optimizer.state[parameter] = {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return optimizer


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state by parameter and name, as `weight.exp_avg`: the very tensors, to be saved or loaded into."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {f"{names[p]}.{key}": value for p, values in optimizer.state.items() for key, value in values.items()}


@torch.no_grad()
def scale_gradients(model: nn.Module, factor: Tensor, clip: float) -> Tensor:
    """Multiply every gradient by `factor`, and by what the norm of all then exceeds `clip`. Returns that norm."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = whole(nn.utils.get_total_norm(gradients)) * factor
    torch._foreach_mul_([local(g) for g in gradients], factor * (clip / (norm + 1e-6)).clamp(max=1.0))  # pyright: ignore[reportPrivateImportUsage]
    return norm


class Average:
    """The exponential moving average of a model's parameters and float buffers. The model must stay where it is."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._model = dict(model.state_dict())  # the model's own tensors, not copies
        self.values = {name: value.detach().clone() for name, value in self._model.items()}
        moving = [name for name, value in self._model.items() if value.is_floating_point()]
        self._pairs = [local(self.values[n]) for n in moving], [local(self._model[n]) for n in moving]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """step: counts from 0. The decay is min(decay, (1 + step) / (10 + step))."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(*self._pairs, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model holds the average inside of this, and its own values again after it."""
        own = {name: value.detach().clone() for name, value in self._model.items()}
        self._fill(self.values)
        try:
            yield
        finally:
            self._fill(own)

    @torch.no_grad()
    def _fill(self, values: dict[str, Tensor]) -> None:
        for name, value in self._model.items():
            value.copy_(values[name])


class Learner:
    """The model of a task as the ranks train it together.

    state: every tensor of the run by name, to be saved or loaded into.
    """

    def __init__(
        self, task: Task[Any], optimization: OptimizerSettings, settings: TrainingSettings, ranks: Ranks
    ) -> None:
        self.task, self.optimization, self.settings, self.ranks = task, optimization, settings, ranks
        task.to(ranks.device)
        model = task.model.train()
        for trunk in (module for module in model.modules() if isinstance(module, Trunk)):
            trunk.recompute_activations = settings.recompute_activations
            for block in trunk.blocks if settings.compile else ():
                block.compile()
        self.network = distribute(model, ranks, settings.distribution)
        self.optimizer = make_optimizer(model, optimization)
        self.average = Average(model, optimization.ema)
        moments = optimizer_tensors(model, self.optimizer)
        self.state = named(
            model=model.state_dict(), average=self.average.values, optimizer=moments, task=task.state_dict()
        )

    def backward(self, rows: Tensor, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the gradients of a step, part by part. rows: those of all ranks.

        Returns the mean loss and the norm of its gradient, (2,) over all ranks, and the task's numbers of this rank. They
        stay on the device: on a GPU, looking at each would hold up the queue.
        """
        rank = torch.tensor([self.ranks.rank])
        torch.manual_seed(int(example_seeds(self.settings.seed, step, rank)))  # for dropout
        total, gathered = torch.zeros(2, device=self.ranks.device), []  # the sum of the losses, and how many they are
        parts = rows[self.ranks.rank :: self.ranks.size].chunk(self.settings.accumulation)
        for place, part in enumerate(parts):
            with self._synchronized(place == len(parts) - 1):
                with self._precision():
                    loss = self.task.loss(self.network, part, step)
                value = loss.values.float().sum()
                value.backward()
            total += torch.stack([value.detach(), value.new_tensor(loss.values.numel())])
            gathered.append({name: number.detach().float().mean() for name, number in loss.numbers.items()})
        total = self.ranks.total(total)
        norm = scale_gradients(self.network, self.ranks.size / total[1], self.optimization.clip)
        numbers = {name: torch.stack([part[name] for part in gathered]).mean() for name in gathered[0]}
        return torch.stack([total[0] / total[1], norm]), numbers

    def update(self, step: int, share: float) -> None:
        """Move the weights and their average. share: of the run that is done."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.optimization.rate(share)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.task.after_step(step, share)
        self.average.update(step)

    def _synchronized(self, last: bool) -> Any:
        """Gradients go over the network once a step, with the last part."""
        if isinstance(self.network, DistributedDataParallel):
            return nullcontext() if last else self.network.no_sync()
        if isinstance(self.network, FSDPModule):
            self.network.set_requires_gradient_sync(last)
        return nullcontext()

    def _precision(self) -> Any:
        enabled = self.settings.precision == "bfloat16"
        return torch.autocast(self.ranks.device.type, torch.bfloat16, enabled=enabled)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The network holds the averaged weights inside of this, in eval mode and without gradients."""
        with self.average.applied(), torch.no_grad(), self._precision():
            self.network.eval()
            yield
            self.network.train()
        if isinstance(self.network, FSDPModule):  # which keeps some weights gathered after a pass
            self.network.reshard()

    def gathered(self) -> dict[str, Tensor]:
        """A copy of `state` on the CPU, put together from all ranks; empty on all but the first."""
        copies: dict[str, Tensor] = {}
        for name, tensor in self.state.items():
            value = whole(tensor.detach())
            if self.ranks.first:
                copies[name] = value.to("cpu", copy=True, memory_format=torch.contiguous_format)
        return copies
