"""How to sample: the settings as one value, and how a model's own settings resolve. Importable without torch."""

import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import Any, Literal, NamedTuple, get_args

from tokencritic.errors import InputError
from tokencritic.plan import Plan, Step, check_window, in_window
from tokencritic.sampling.samplers import SAMPLERS, Sampler
from tokencritic.schedules import SCHEDULES, Guidance, GuidanceSchedule, find_schedule

Temperature = float | tuple[float, float]
NoiseKind = Literal["uniform", "gumbel"]
RejectBy = Literal["classifier", "critic"]
REFINEMENT_RATIO = 0.6  # the paper's share of tokens that refinement hides first


GUIDANCE = ("guidance", "guidance_schedule", "guidance_power")  # the settings of guidance


@dataclass(frozen=True)
class SamplingSettings:
    """How to sample.

    sampler: a name of `SAMPLERS`; None is the critic where the model has one, else the generator's confidence. steps: how
    many, T in the paper. schedule: a name of `SCHEDULES`: how many tokens stay hidden after each step, and how the
    numbers below run over the steps; "paper" is this paper's, the others are of published generators. temperature: of the
    sampled codes, one number or (start, end) for T(t) = (start - end) t/T + end; 0 is greedy. selection_noise: randomness
    in which tokens are kept, K in the paper; None is the sampler's default. noise_kind: of the critic: "uniform" on the
    probability, annealed, as in the paper, or "gumbel" on the logit, constant. critic_window: (start, end), the critic is
    active for t/T in (end, start]; the generator's confidence chooses before and after. early_noise: selection noise of
    confidence before the window. remask_quota: of the inline critic, which share of the visible tokens it re-masks, times
    that of the tokens still hidden. remask_noise: Gumbel noise on the inline critic's logits. halton_roll: each image's
    Halton order starts at a random place. guidance: classifier-free guidance scale s for logits null + s (class - null),
    1 is none. guidance_schedule: the scale is constant, or grows from 1 with the share x of the steps done: linear, or
    cosine, as (1 - cos(pi x^p)) / 2. guidance_power: p of the cosine. candidates: images sampled for each that is kept
    (rejection); the paper's acceptance rate is 1 / candidates. reject_by: keep the candidate whose class the classifier
    finds likeliest, or the one that the critic trusts most.
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
            if isinstance(value := vars(self)[name], list):  # as JSON has it
                object.__setattr__(self, name, tuple(value))
        choices = {"sampler": (None, *SAMPLERS), "noise_kind": get_args(NoiseKind), "reject_by": get_args(RejectBy)}
        for name, known in choices.items():
            if (value := vars(self)[name]) not in known:
                raise InputError(f"{name} is {value!r}; choose one of {', '.join(filter(None, known))}")
        for name in ("steps", "candidates"):
            value = vars(self)[name]
            if not isinstance(value, Integral) or value < 1:
                raise InputError(f"{name} is {value!r}; it must be an integer, at least 1")
        find_schedule(self.schedule)
        self.guidance_over_steps()
        for name in ("selection_noise", "early_noise", "remask_noise"):
            if (value := vars(self)[name]) is not None:
                check_noise(value, name)
        check_quota(self.remask_quota)
        check_window(self.critic_window)
        temperature_range(self.temperature)

    def guidance_over_steps(self) -> Guidance:
        """The guidance as the generator takes it."""
        return Guidance(self.guidance, self.guidance_schedule, self.guidance_power)

    def of(self, has_critic: bool) -> "SamplingSettings":
        """These settings with the sampler and its noise named, for a model with or without a critic."""
        row = self.row(has_critic)
        noise = row.default_noise if self.selection_noise is None else self.selection_noise
        return dataclasses.replace(self, sampler=row.name, selection_noise=noise)

    def row(self, has_critic: bool) -> Sampler:
        """The row of the sampler that a model with or without a critic uses."""
        return SAMPLERS[self.sampler or ("critic" if has_critic else "confidence")]

    def in_effect(self, has_critic: bool) -> dict[str, Any]:
        """Every setting as a JSON value with nothing left open; None for those that the sampler does not have."""
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
        """Whether the critic's scores are probabilities at every step."""
        by_critic = SAMPLERS[self.sampler or "critic"].uses_critic
        return by_critic and self.noise_kind == "uniform" and self.critic_window == (1, 0)

    def evaluations(self, num_tokens: int, has_critic: bool = True, refine_ratio: float | None = None) -> "Evaluations":
        """How often the loop evaluates each network for one image.

        Counted in the plan that the loop runs, for every candidate, and once more for each candidate to rank it where there
        are several. Guidance makes each generator evaluation two. Decoding is not counted. refine_ratio: count a refinement
        that hides this share first, instead of an image from nothing.
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
        """Network evaluations per image, see `evaluations`. An inline critic is part of a generator evaluation."""
        found = self.evaluations(num_tokens, has_critic, refine_ratio)
        return found.generator + found.critic + found.classifier

    def check_critic_window(self, num_tokens: int, has_critic: bool = True) -> None:
        """Raises InputError if the critic window contains no step: the images would be MaskGIT's under another name."""
        row = self.row(has_critic)
        if self.steps <= 1 + row.uses_inline_critic or not row.revokes:
            return
        if self._run(num_tokens, self.critic_window, None)[1 + row.uses_inline_critic] == 0:
            start, end = self.critic_window
            raise InputError(
                f"critic_window is {start:g} {end:g}; it contains none of {self.steps} steps of {num_tokens} tokens at which "
                "the critic could choose; widen it, or take more steps"
            )

    def _run(
        self, num_tokens: int, window: tuple[float, float] | None, refine_ratio: float | None
    ) -> "tuple[tuple[Step, ...], int, int]":
        return _run_steps(self.schedule, num_tokens, self.steps, window, refine_ratio)

    def with_open_window(self, num_tokens: int) -> "SamplingSettings":
        """These settings with the critic window widened, if it contains no step, until it contains one."""
        plan = Plan.make([num_tokens], self.steps, schedule=SCHEDULES[self.schedule])
        start, end = self.critic_window
        start = max(start, min(1.0, 2 / self.steps))  # the last choice is that of the last step but one
        inline = SAMPLERS[self.sampler or "critic"].uses_inline_critic  # which judges visible tokens
        run = plan.with_effect(lambda s: s.time <= start)
        chosen = (s for s, before in run if not s.is_last and not (inline and before == plan.num_free))
        times = [s.time for s in chosen if s.time <= start]
        if times and max(times) <= end:
            end = max(0.0, round(max(times) - 0.05, 2))
        return dataclasses.replace(self, critic_window=(start, end))

    def with_random_remasking(self) -> "SamplingSettings":
        """The critic's control: random re-masking in its place, and all else the same."""
        return dataclasses.replace(self, sampler="random-remask", selection_noise=None, noise_kind="uniform")


class Evaluations(NamedTuple):
    """How often each network is evaluated for one image."""

    generator: int
    critic: int = 0
    inline_critic: int = 0
    classifier: int = 0


@lru_cache
def _run_steps(
    schedule: str, num_tokens: int, steps: int, window: tuple[float, float] | None, refine_ratio: float | None
) -> tuple[tuple[Step, ...], int, int]:
    """The steps at which the loop evaluates its generator, how often it chooses inside the window (None for no window), and
    how often some tokens are visible then.
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
    """Noise is a finite number of 0 or more."""
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{name} is {value}; it must be a number of 0 or more")


def check_quota(value: float) -> None:
    """A quota is a share."""
    if not 0 <= value <= 1:
        raise InputError(f"remask_quota is {value}; it must lie in [0, 1]")


def temperature_range(temperature: Temperature) -> tuple[float, float]:
    """(start, end), checked. T(t) = a t/T + b in the paper has start = a + b and end = b."""
    pair = tuple(temperature) if isinstance(temperature, tuple | list) else (temperature, temperature)
    if len(pair) != 2:
        raise InputError(f"temperature is {temperature}; give one number, or a pair (start, end)")
    start, end = pair
    if not (math.isfinite(start) and math.isfinite(end) and min(start, end) >= 0):
        raise InputError(
            f"temperature is {temperature}; it must be 0 (greedy) or positive, or a pair (start, end) of such"
        )
    return start, end
