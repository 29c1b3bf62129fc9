"""How to sample, as one value: what a model folder keeps as its defaults and a command line overrides."""

import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.masking import Schedule
from tokencritic.sampling.loop import Temperature, sample, temperature_range
from tokencritic.sampling.propose import Proposal, Step
from tokencritic.sampling.refine import refine
from tokencritic.sampling.scorers import (
    ChanceScorer,
    ConfidenceScorer,
    CriticScorer,
    HaltonScorer,
    NoiseOn,
    RandomScorer,
    Scorer,
    check_noise,
    check_times,
    chooses,
)

Sampler = Literal["critic", "chance", "confidence", "random", "halton"]
RejectBy = Literal["classifier", "critic"]
# Those that take tokens back, while t/T is between two times.
REVOKING: frozenset[Sampler] = frozenset({"critic", "chance"})
# What differs in refining: the critic chooses all the time.
REFINING: dict[str, Any] = {"steps": 9, "critic_from": 1.0, "critic_until": 0.0}


@dataclass(frozen=True)
class SamplingSettings:
    """Arguments of `sample`, of the scorer it is given, and of rejection.

    sampler: who chooses; None is the critic where there is one, else the generator's confidence. "chance" chooses in place of
        the critic, the control of what the critic's choice is worth.
    selection_noise: None is the scorer's own default. noise_on: what the critic's is added to.
    critic_from, critic_until: the critic chooses while t/T is between them, MaskGIT's confidence before and after; 1 and 0 is
        the critic all the time. However late and in however few steps it begins, the last choice is its.
    guidance: classifier-free guidance scale, 1 is none.
    candidates: how many images are drawn for each that is kept; the paper's acceptance rate is 1 / candidates.
    reject_by: which of them is kept: the one whose class the classifier finds likeliest, or the one the critic trusts most.
    """

    sampler: Sampler | None = None
    steps: int = 18
    temperature: Temperature = 1.0
    selection_noise: float | None = None
    noise_on: NoiseOn = "probability"
    critic_from: float = 1.0
    critic_until: float = 0.0
    schedule: Schedule = "cosine"
    passes_per_level: int = 1
    guidance: float = 1.0
    candidates: int = 1
    reject_by: RejectBy = "classifier"

    def __post_init__(self) -> None:
        if self.sampler is not None and self.sampler not in get_args(Sampler):
            raise InputError(f"sampler is {self.sampler!r}; choose one of {', '.join(get_args(Sampler))}")
        if isinstance(self.temperature, list):  # as JSON has it
            object.__setattr__(self, "temperature", tuple(self.temperature))
        for name in ("steps", "passes_per_level", "candidates"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise InputError(f"{name} is {value!r}; it must be an integer, at least 1")
        if self.reject_by not in get_args(RejectBy):
            raise InputError(f"reject_by is {self.reject_by!r}; choose one of {', '.join(get_args(RejectBy))}")
        if self.schedule not in get_args(Schedule):
            raise InputError(f"schedule is {self.schedule!r}; choose one of {', '.join(get_args(Schedule))}")
        if self.noise_on not in get_args(NoiseOn):
            raise InputError(f"noise_on is {self.noise_on!r}; choose one of {', '.join(get_args(NoiseOn))}")
        if not math.isfinite(self.guidance):
            raise InputError(f"guidance is {self.guidance}; it must be a number")
        if self.selection_noise is not None:
            check_noise(self.selection_noise)
        check_times(self.critic_from, self.critic_until)
        temperature_range(self.temperature)

    def scorer(self, critic: Any | None, grid: tuple[int, int] | None = None) -> Scorer:
        """critic: the model's, or None; grid: (height, width) of the tokens."""
        noise: dict[str, Any] = {} if self.selection_noise is None else {"selection_noise": self.selection_noise}
        sampler = self.chosen_sampler(critic is not None)
        if sampler == "critic":
            if critic is None:
                raise InputError(
                    "sampler is critic but the model has none; choose confidence, random, halton or chance"
                )
            since, until = self._times
            return CriticScorer(critic, noise_on=self.noise_on, critic_from=since, critic_until=until, **noise)
        if sampler == "chance":
            return ChanceScorer(*self._times)
        if sampler == "confidence":
            return ConfidenceScorer(**noise)
        return RandomScorer() if sampler == "random" else HaltonScorer(grid)

    @property
    def probabilities(self) -> bool:
        """Whether the critic's scores are probabilities at every step."""
        return self.noise_on == "probability" and (self.critic_from, self.critic_until) == (1, 0)

    @property
    def _times(self) -> tuple[float, float]:
        """From and until when the critic chooses; the last choice is that of the last step but one, at t/T = 2/T."""
        return max(self.critic_from, min(1.0, 2 / self.steps)), self.critic_until

    def chosen_sampler(self, has_critic: bool) -> Sampler:
        """The sampler that a model with or without a critic uses."""
        return self.sampler or ("critic" if has_critic else "confidence")

    def passes(self, num_tokens: int, has_critic: bool = True, refine_ratio: float | None = None) -> int:
        """Network passes for one image by itself: what comparisons of samplers are to be made at.

        The passes of generator and critic that the loop really runs, for every candidate, and one more of each candidate to
        rank it where there are several. Guidance makes each generator pass two. Decoding to pixels is not counted.
        num_tokens: of an image. has_critic: whether the model has one, which decides what sampler None means.
        refine_ratio: count a refinement that hides this share first, instead of an image from nothing.
        """
        sampler = self.chosen_sampler(has_critic)
        times = self._times if sampler in REVOKING else None
        loop = self.steps, self.schedule, self.passes_per_level
        generated, judged = _count_passes(num_tokens, *loop, times, refine_ratio)
        drawn = generated * (1 if self.guidance == 1 else 2) + (judged if sampler == "critic" else 0)
        return drawn if self.candidates == 1 else self.candidates * (drawn + 1)

    def check_critic_chooses(self, num_tokens: int, has_critic: bool = True) -> None:
        """A critic that hands over before it has chosen once is none: the images would be MaskGIT's under its name. Chance in
        its place would be none either.
        """
        sampler = self.chosen_sampler(has_critic)
        if self.critic_until == 0 or self.steps == 1 or sampler not in REVOKING:
            return
        loop = self.steps, self.schedule, self.passes_per_level
        if _count_passes(num_tokens, *loop, self._times, None)[1] == 0:
            who = "the critic" if sampler == "critic" else sampler
            raise InputError(
                f"critic_until is {self.critic_until:g}, too early for {who} to choose even once in {self.steps} steps "
                f"of {num_tokens} tokens; take less, or more steps"
            )

    def by_chance(self) -> "SamplingSettings":
        """A critic's control: chance in its place, and all else the same."""
        return dataclasses.replace(self, sampler="chance", selection_noise=None, noise_on="probability")

    def loop_arguments(self) -> dict[str, Any]:
        """What `sample` takes by name."""
        names = ("steps", "temperature", "schedule", "passes_per_level")
        return {name: getattr(self, name) for name in names}


@lru_cache
def _count_passes(
    num_tokens: int,
    steps: int,
    schedule: Schedule,
    passes_per_level: int,
    times: tuple[float, float] | None,
    refine_ratio: float | None,
) -> tuple[int, int]:
    """How often the loop calls its generator, and how often the critic chooses: found by running it with two that only count.

    times: from and until when the critic chooses, or chance in its place; None for a sampler that takes nothing back.
    """
    generator, scorer = _CountingGenerator(), _CountingScorer(times)
    loop: dict[str, Any] = {"steps": steps, "schedule": schedule, "passes_per_level": passes_per_level}
    if refine_ratio is None:
        sample(generator, scorer, None, [0], num_tokens=num_tokens, mask_id=1, **loop)
    else:
        tokens = torch.zeros(1, num_tokens, dtype=torch.int64)
        refine(generator, scorer, tokens, None, ratio=refine_ratio, mask_id=1, **loop)
    return generator.calls, scorer.calls


class _CountingGenerator:
    """One code only, so that a pass costs nothing."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, masked_tokens: Tensor, labels: Tensor | None, /) -> Tensor:
        self.calls += 1
        return torch.zeros(*masked_tokens.shape, 1)


class _CountingScorer:
    """Hides what was hidden before, as a scorer that keeps tokens must, and counts only the choices that are a critic's."""

    def __init__(self, times: tuple[float, float] | None) -> None:
        self.calls, self.times = 0, times

    def revokes(self, step: Step) -> bool:
        return self.times is not None and chooses(step, *self.times)

    def __call__(self, proposal: Proposal, /) -> Tensor:
        self.calls += self.revokes(proposal.step)
        return (~proposal.mask).float()
