"""How weights move: AdamW with decay groups, the learning rate over a run, and the moving average that is kept."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tokencritic.errors import InputError


@dataclass(frozen=True)
class OptimizerSettings:
    """learning_rate: at its height. warmup: the share of the run in which it rises; it then falls along a cosine to 0.

    weight_decay: of matrices; biases, norms and embeddings of one dimension have none. clip: the largest norm of a gradient.
    ema: decay of the moving average of the weights; it warms up, so that a short run does not keep its random start.
    """

    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.96)
    weight_decay: float = 0.045
    warmup: float = 0.03
    clip: float = 1.0
    ema: float = 0.999

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))
        for name in ("learning_rate", "clip"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}; it must be positive")
        if not (0 <= self.warmup < 1 and 0 <= self.ema < 1):
            raise InputError(f"warmup is {self.warmup} and ema {self.ema}; both must lie in [0, 1)")


def make_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.AdamW:
    """AdamW, fused, over the parameters that want a gradient."""
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in wanted if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in wanted if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas, fused=True)


def learning_rate(settings: OptimizerSettings, progress: float) -> float:
    """progress: the share of the run that is done, in [0, 1]."""
    rise = min(1.0, progress / settings.warmup) if settings.warmup else 1.0
    return settings.learning_rate * rise * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


class Average:
    """The exponential moving average of a model's parameters and float buffers."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.values = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """step: counts from 0. The decay is min(decay, (1 + step) / (10 + step))."""
        decay = min(self.decay, (1 + step) / (10 + step))
        pairs = [(self.values[name], value) for name, value in model.state_dict().items() if value.is_floating_point()]
        own, theirs = [mine for mine, _ in pairs], [value for _, value in pairs]
        torch._foreach_lerp_(own, theirs, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    def state_dict(self) -> dict[str, Tensor]:
        return self.values

    def load_state_dict(self, values: dict[str, Tensor]) -> None:
        for name, value in values.items():
            self.values[name].copy_(value)
