"""How to sample, as one value: what a model folder keeps as its defaults and a command line overrides."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tokencritic.errors import InputError
from tokencritic.masking import Schedule
from tokencritic.sampling.loop import Temperature, temperature_range
from tokencritic.sampling.scorers import ConfidenceScorer, CriticScorer, HaltonScorer, RandomScorer, Scorer, check_noise

Sampler = Literal["critic", "confidence", "random", "halton"]


@dataclass(frozen=True)
class SamplingSettings:
    """Arguments of `sample`, and of the scorer it is given.

    sampler: who chooses; None is the critic where there is one, else the generator's confidence.
    selection_noise: None is the scorer's own default. guidance: classifier-free guidance scale, 1 is none.
    """

    sampler: Sampler | None = None
    steps: int = 18
    temperature: Temperature = 1.0
    selection_noise: float | None = None
    schedule: Schedule = "cosine"
    passes_per_level: int = 1
    guidance: float = 1.0

    def __post_init__(self) -> None:
        if self.sampler is not None and self.sampler not in get_args(Sampler):
            raise InputError(f"sampler is {self.sampler!r}; choose one of {', '.join(get_args(Sampler))}")
        if isinstance(self.temperature, list):  # as JSON has it
            object.__setattr__(self, "temperature", tuple(self.temperature))
        for name in ("steps", "passes_per_level"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.schedule not in get_args(Schedule):
            raise InputError(f"schedule is {self.schedule!r}; choose one of {', '.join(get_args(Schedule))}")
        if not math.isfinite(self.guidance):
            raise InputError(f"guidance is {self.guidance}; it must be a number")
        if self.selection_noise is not None:
            check_noise(self.selection_noise)
        temperature_range(self.temperature)

    def scorer(self, critic: Any | None, grid: tuple[int, int] | None = None) -> Scorer:
        """critic: the model's, or None; grid: (height, width) of the tokens."""
        noise: dict[str, Any] = {} if self.selection_noise is None else {"selection_noise": self.selection_noise}
        sampler = self.sampler or ("confidence" if critic is None else "critic")
        if sampler == "critic":
            if critic is None:
                raise InputError("sampler is critic but the model has none; choose confidence, random or halton")
            return CriticScorer(critic, **noise)
        if sampler == "confidence":
            return ConfidenceScorer(**noise)
        return RandomScorer() if sampler == "random" else HaltonScorer(grid)

    def loop_arguments(self) -> dict[str, Any]:
        """What `sample` takes by name."""
        names = ("steps", "temperature", "schedule", "passes_per_level")
        return {name: getattr(self, name) for name in names}
