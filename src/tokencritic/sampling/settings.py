"""Sampling settings, their checks, and the network evaluations that they need. Importable without torch."""

import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import Any, Literal, NamedTuple, get_args

from tokencritic.errors import InputError, check_at_most, check_types
from tokencritic.plan import Plan, Step, check_window, in_window
from tokencritic.sampling.samplers import SAMPLERS, Sampler
from tokencritic.schedules import SCHEDULES, Guidance, GuidanceSchedule, find_schedule

Temperature = float | tuple[float, float]
NoiseKind = Literal["uniform", "gumbel"]
RejectBy = Literal["classifier", "critic"]
REFINEMENT_RATIO = 0.6  # the share of tokens hidden at the start of refinement, as in the paper
GUIDANCE = ("guidance", "guidance_schedule", "guidance_power")


@dataclass(frozen=True)
class SamplingSettings:
    """Sampling settings.

    sampler: a name of `SAMPLERS`; by default the critic if the model has one, else the generator's confidence.
    steps: number of steps, T in the paper.
    schedule: a name of `SCHEDULES`, which defines hidden tokens, temperature, noise and guidance over the steps.
    temperature: sampling temperature, one number, or (start, end) for (start - end) t/T + end; 0 is greedy.
    selection_noise: scale of the noise on the scores, K in the paper; by default the sampler's.
    noise_kind: noise of the critic, "uniform" on the probability, annealed, as in the paper, or "gumbel" on the logit,
    constant.
    critic_window: (start, end), the critic is active for t/T in (end, start]; otherwise the generator's confidence is.
    early_noise: selection noise of confidence before the critic window.
    remask_quota: share of visible tokens, in [0, 1], that the inline critic re-masks, times the share of hidden tokens.
    remask_noise: scale of the Gumbel noise on the inline critic's logits.
    halton_roll: start each image's Halton order at a random position.
    guidance: classifier-free guidance scale s for logits null + s (class - null); 1 disables it.
    guidance_schedule: constant scale, or growth from 1 with the share x of finished steps, linear or as
    (1 - cos(pi x^p)) / 2.
    guidance_power: exponent p of the cosine guidance schedule.
    candidates: rejection sampling, candidates per image; the paper's acceptance rate is 1 / candidates.
    reject_by: keep the candidate with the highest class probability of the classifier, or the highest mean score of the
    critic.
    """

    sampler: str | None = None
    steps: int = 18
    temperature: Temperature = 1.0
    selection_noise: float | None = None
    noise_kind: NoiseKind = "uniform"
    critic_window: tuple[float, float] = (1.0, 0.0)
    early_noise: float = 12.0
    remask_quota: float = 0.5
    remask_noise: float = 0.5
    schedule: str = "paper"
    halton_roll: bool = False
    guidance: float = 1.0
    guidance_schedule: GuidanceSchedule = "constant"
    guidance_power: float = 1.0
    candidates: int = 1
    reject_by: RejectBy = "classifier"

    def __post_init__(self) -> None:
        for name in ("temperature", "critic_window"):
            if isinstance(value := vars(self)[name], list):  # from JSON
                object.__setattr__(self, name, tuple(value))
        choices = {"sampler": (None, *SAMPLERS), "noise_kind": get_args(NoiseKind), "reject_by": get_args(RejectBy)}
        for name, known in choices.items():
            if (value := vars(self)[name]) not in known:
                raise InputError(f"{name} is {value!r}; choose one of {', '.join(filter(None, known))}")
        for name in ("steps", "candidates"):
            value = vars(self)[name]
            if not isinstance(value, Integral) or value < 1:
                raise InputError(f"{name} is {value!r}; it must be an integer, at least 1")
        check_at_most(steps=self.steps, candidates=self.candidates)
        find_schedule(self.schedule)
        self.guidance_over_steps()
        for name in ("selection_noise", "early_noise", "remask_noise"):
            if (value := vars(self)[name]) is not None:
                check_noise(value, name)
        check_quota(self.remask_quota)
        check_window(self.critic_window)
        temperature_range(self.temperature)

    def guidance_over_steps(self) -> Guidance:
        """Return the settings of guidance as one object."""
        return Guidance(self.guidance, self.guidance_schedule, self.guidance_power)

    def of(self, has_critic: bool) -> "SamplingSettings":
        """Return the settings with explicit sampler and selection noise, for a model with or without a critic."""
        row = self.row(has_critic)
        noise = row.default_noise if self.selection_noise is None else self.selection_noise
        return dataclasses.replace(self, sampler=row.name, selection_noise=noise)

    def row(self, has_critic: bool) -> Sampler:
        """Return the row of `SAMPLERS` that a model with or without a critic uses."""
        return SAMPLERS[self.sampler or ("critic" if has_critic else "confidence")]

    def in_effect(self, has_critic: bool) -> dict[str, Any]:
        """Return all settings as JSON values with defaults resolved; None for those that have no effect."""
        named = self.of(has_critic)
        own = SAMPLERS[str(named.sampler)].settings
        of_samplers = {name for row in SAMPLERS.values() for name in row.settings}
        values = {name: v if name not in of_samplers or name in own else None for name, v in vars(named).items()}
        window = None if values["critic_window"] is None else list(self.critic_window)
        reject_by = self.reject_by if self.candidates > 1 else None
        temperature = list(temperature_range(self.temperature))
        unused = () if self.guidance != 1 else GUIDANCE[1:]
        values |= {"temperature": temperature, "critic_window": window, "reject_by": reject_by}
        return values | dict.fromkeys(unused)

    @property
    def probabilities(self) -> bool:
        """True if the critic's scores are probabilities at every step."""
        by_critic = SAMPLERS[self.sampler or "critic"].uses_critic
        return by_critic and self.noise_kind == "uniform" and self.critic_window == (1, 0)

    def evaluations(self, num_tokens: int, has_critic: bool = True, refine_ratio: float | None = None) -> "Evaluations":
        """Return the number of evaluations of each network per image.

        All candidates count, and ranking several candidates adds one evaluation each. A generator evaluation with
        guidance counts as two. Decoding is not counted.

        refine_ratio: count a refinement that first hides this share of the tokens, in (0, 1], instead of sampling.
        """
        row = self.row(has_critic)
        window = self.critic_window if row.revokes else None
        run, chosen, judged = self._run(num_tokens, window, refine_ratio)
        guidance, schedule = self.guidance_over_steps(), SCHEDULES[self.schedule]
        scales = (guidance.at(schedule.guidance_left(step.done, step.steps)) for step in run)
        generator = sum(1 if scale == 1 else 2 for scale in scales)
        if row.uses_inline_critic and refine_ratio is not None:
            generator += 1  # the features of the given tokens
        critic, inline = (chosen if row.uses_critic else 0), (judged if row.uses_inline_critic else 0)
        if self.candidates == 1:
            return Evaluations(generator, critic, inline)
        by_critic = self.reject_by == "critic"
        one = Evaluations(generator, critic + by_critic, inline, 1 - by_critic)
        return Evaluations(*(self.candidates * count for count in one))

    def nfe(self, num_tokens: int, has_critic: bool = True, refine_ratio: float | None = None) -> int:
        """Return the network evaluations per image (NFE), see `evaluations`. Inline critics add none."""
        found = self.evaluations(num_tokens, has_critic, refine_ratio)
        return found.generator + found.critic + found.classifier

    def check_critic_window(self, num_tokens: int, has_critic: bool = True) -> None:
        """Raise InputError if the critic window contains no step. The sampler would then be MaskGIT's."""
        row = self.row(has_critic)
        if self.steps <= 1 + row.uses_inline_critic or not row.revokes:
            return
        if self._run(num_tokens, self.critic_window, None)[1 + row.uses_inline_critic] == 0:
            start, end = self.critic_window
            raise InputError(
                f"critic_window is {start:g} {end:g}; it contains none of {self.steps} steps of {num_tokens} tokens at "
                "which the critic can re-mask; widen it or use more steps"
            )

    def _run(
        self, num_tokens: int, window: tuple[float, float] | None, refine_ratio: float | None
    ) -> "tuple[tuple[Step, ...], int, int]":
        return _run_steps(self.schedule, num_tokens, self.steps, window, refine_ratio)

    def with_open_window(self, num_tokens: int) -> "SamplingSettings":
        """Return the settings, with a critic window that is widened to contain a step if it contains none."""
        plan = Plan.make([num_tokens], self.steps, schedule=SCHEDULES[self.schedule])
        start, end = self.critic_window
        start = max(start, min(1.0, 2 / self.steps))  # the last step hides nothing
        inline = SAMPLERS[self.sampler or "critic"].uses_inline_critic  # which only scores visible tokens
        run = plan.with_effect(lambda s: s.time <= start)
        chosen = (s for s, before in run if not s.is_last and not (inline and before == plan.num_free))
        times = [s.time for s in chosen if s.time <= start]
        if times and max(times) <= end:
            end = max(0.0, round(max(times) - 0.05, 2))
        return dataclasses.replace(self, critic_window=(start, end))

    def with_random_remasking(self) -> "SamplingSettings":
        """Return the same settings with random re-masking, the control, instead of the critic."""
        return dataclasses.replace(self, sampler="random-remask", selection_noise=None, noise_kind="uniform")


def settings_from(values: Any) -> SamplingSettings:
    """Return the settings of a JSON value. Raises InputError for unknown names and for values of other types."""
    if not isinstance(values, dict):
        raise InputError(f"settings are {values!r:.60}; expected an object of settings")
    if unknown := sorted(values.keys() - {field.name for field in dataclasses.fields(SamplingSettings)}):
        raise InputError(f"unknown setting {unknown[0]!r:.60}")
    check_types(values, SamplingSettings)
    return SamplingSettings(**values)


class Evaluations(NamedTuple):
    """The number of evaluations of each network per image."""

    generator: int
    critic: int = 0
    inline_critic: int = 0
    classifier: int = 0


@lru_cache
def _run_steps(
    schedule: str, num_tokens: int, steps: int, window: tuple[float, float] | None, refine_ratio: float | None
) -> tuple[tuple[Step, ...], int, int]:
    """Return the executed steps, the number of selections inside the window, and how many of them had visible tokens.

    window: the critic window, None for a sampler without one.
    """

    def revokes(step: Step) -> bool:
        return window is not None and in_window(window, step)

    plan = Plan.make([num_tokens], steps, 1.0 if refine_ratio is None else refine_ratio, SCHEDULES[schedule])
    run = list(plan.with_effect(revokes))
    chosen = [before for step, before in run if not step.is_last and revokes(step)]
    judged = [before for before in chosen if before != plan.num_free]
    given = refine_ratio is not None and revokes(plan.start)
    return tuple(step for step, _ in run), len(chosen) + given, len(judged) + given


def check_noise(value: float, name: str = "selection_noise") -> None:
    """Raise InputError unless noise is finite and 0 or more."""
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{name} is {value}; it must be a number of 0 or more")


def check_quota(value: float) -> None:
    """Raise InputError unless a quota is in [0, 1]."""
    if not 0 <= value <= 1:
        raise InputError(f"remask_quota is {value}; it must lie in [0, 1]")


def temperature_range(temperature: Temperature) -> tuple[float, float]:
    """Return (start, end) of a temperature, and check it. The paper's T(t) = a t/T + b has start a + b and end b."""
    pair = tuple(temperature) if isinstance(temperature, tuple | list) else (temperature, temperature)
    if len(pair) != 2:
        raise InputError(f"temperature is {temperature}; give one number, or a pair (start, end)")
    start, end = pair
    if not (math.isfinite(start) and math.isfinite(end) and min(start, end) >= 0):
        raise InputError(
            f"temperature is {temperature}; it must be 0 (greedy) or positive, or a pair (start, end) of such"
        )
    return start, end
