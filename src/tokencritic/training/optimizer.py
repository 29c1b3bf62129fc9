"""How weights move: AdamW with decay groups, the learning rate over a run, and the moving average that is kept."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from tokencritic.distribution import local, whole
from tokencritic.errors import InputError, check_at_least


@dataclass(frozen=True)
class OptimizerSettings:
    """AdamW and what goes with it.

    learning_rate: at its height. betas: decay of the running means of gradients and of their squares. warmup: the share of the
    run in which the rate rises. schedule: the rate then falls along a cosine to 0, or stays constant. weight_decay: of
    matrices; biases, norms and embeddings of one dimension have none. clip: the largest norm of a gradient. ema: decay of the
    moving average of the weights; it warms up, so that a short run does not keep its random start.
    """

    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.96)
    weight_decay: float = 0.045
    warmup: float = 0.03
    schedule: Literal["cosine", "constant"] = "cosine"
    clip: float = 1.0
    ema: float = 0.999

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))
        for name, value in {"learning_rate": self.learning_rate, "clip": self.clip}.items():
            if not value > 0:
                raise InputError(f"{name} is {value}; it must be positive")
        if not (len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)):
            raise InputError(f"betas is {self.betas}; it must be two numbers in [0, 1)")
        check_at_least(0, weight_decay=self.weight_decay)
        if not (0 <= self.warmup < 1 and 0 <= self.ema < 1):
            raise InputError(f"warmup is {self.warmup} and ema {self.ema}; both must lie in [0, 1)")
        if self.schedule not in ("cosine", "constant"):
            raise InputError(f"schedule is {self.schedule!r}; choose cosine or constant")


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


def learning_rate(settings: OptimizerSettings, progress: float) -> float:
    """progress: the share of the run that is done, in [0, 1]."""
    rise = min(1.0, progress / settings.warmup) if settings.warmup else 1.0
    fall = 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))) if settings.schedule == "cosine" else 1.0
    return settings.learning_rate * rise * fall


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
