"""Published schedules of the number of hidden tokens, temperature, noise and guidance over the steps.

Importable without torch. `SCHEDULES` has one row for each published sampler.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from tokencritic.errors import InputError

# cos(pi/3) is 0.5 + 1e-16 in float64. Without this tolerance, 129 instead of 128 of 256 tokens are hidden after 12 of
# 18 steps.
ROUNDING = 1e-9

Table = Callable[[int, int, float], list[int]]
Left = Callable[[int, int], float]
Confidence = Literal["log_prob", "tempered_log_prob", "tempered_logit"]
GuidanceSchedule = Literal["constant", "linear", "cosine"]


def before(done: int, steps: int) -> float:
    """Return the share of steps that remain before a step, after `done` others: t/T in the paper."""
    return (steps - done) / steps


def after(done: int, steps: int) -> float:
    """Return the share of steps that remain after a step: (t - 1)/T in the paper."""
    return (steps - done - 1) / steps


def until_last(done: int, steps: int) -> float:
    """Return a share that decreases linearly from 1 at the first step to 0 at the last."""
    return 1 - done / (steps - 1) if steps > 1 else 0.0


@dataclass(frozen=True)
class Schedule:
    """The schedule of a published sampler.

    summary: origin and form, for help texts.
    make_table: the function behind `table`.
    temperature_left, noise_left, guidance_left: the share that remains on the way from start to end. Functions of the
    number of finished steps and of all steps.
    inverse_temperature: interpolate 1/temperature instead of the temperature.
    confidence: the confidence by which sampled tokens are ranked, see `Proposal.confidence`.
    codes_by_noise: multiply the sampling temperature by the selection noise of the step.
    """

    name: str
    summary: str
    make_table: Table
    temperature_left: Left = before
    noise_left: Left = after
    guidance_left: Left = before
    inverse_temperature: bool = False
    confidence: Confidence = "log_prob"
    codes_by_noise: bool = False

    def table(self, num_tokens: int, steps: int, first_ratio: float = 1.0) -> list[int]:
        """Return the number of hidden tokens before each step and after the last: `steps + 1` integers, the last one 0.

        num_tokens: the number of tokens that may be hidden.
        first_ratio: the share hidden before the first step, in (0, 1].
        """
        if steps < 1:
            raise InputError(f"steps is {steps}; it must be at least 1")
        if not 0 < first_ratio <= 1:
            raise InputError(f"first_ratio is {first_ratio}; it must lie in (0, 1]")
        return self.make_table(num_tokens, steps, first_ratio)

    def temperature(self, start: float, end: float, done: int, steps: int) -> float:
        """Return the temperature of the step after `done` others, interpolated from start to end."""
        left = self.temperature_left(done, steps)
        if self.inverse_temperature and start > 0 and end > 0:
            return 1 / (1 / end + (1 / start - 1 / end) * left)
        return end + (start - end) * left


@dataclass(frozen=True)
class Guidance:
    """Classifier-free guidance over the steps: logits null + s (class - null) with scale s. A scale of 1 disables it.

    scale: the final scale.
    schedule: "constant" uses `scale` at every step. "linear" and "cosine" grow from 1 to `scale` with the share x of
    finished steps: by x, or by (1 - cos(pi x^power)) / 2.
    power: the exponent of the cosine schedule, above 0.
    """

    scale: float = 1.0
    schedule: GuidanceSchedule = "constant"
    power: float = 1.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.scale):
            raise InputError(f"guidance is {self.scale}; it must be finite")
        if self.schedule not in get_args(GuidanceSchedule):
            known = ", ".join(get_args(GuidanceSchedule))
            raise InputError(f"guidance_schedule is {self.schedule!r}; choose one of {known}")
        if not (math.isfinite(self.power) and self.power > 0):
            raise InputError(f"guidance_power is {self.power}; it must be a positive number")

    def at(self, left: float) -> float:
        """Return the scale when this share of the steps remains. left: in [0, 1]."""
        share = {"constant": 1.0, "linear": 1 - left, "cosine": (1 - math.cos(math.pi * (1 - left) ** self.power)) / 2}
        return 1 + (self.scale - 1) * share[self.schedule]


def _paper_table(num_tokens: int, steps: int, first_ratio: float) -> list[int]:
    """Return ceil(gamma N) for the cosine gamma, as in the paper."""
    shares = (first_ratio * max(0.0, math.cos(0.5 * math.pi * done / steps)) for done in range(steps + 1))
    return [_round_up(num_tokens, share) for share in shares]


def _revealing(share: Callable[[float], float]) -> Table:
    """Return a table that rounds down, reveals at least one token per step and hides one until the last step."""

    def table(num_tokens: int, steps: int, first_ratio: float) -> list[int]:
        counts = [hidden := _round_up(num_tokens, first_ratio)]
        for done in range(1, steps):
            fewer = min(counts[-1] - 1, math.floor(hidden * share(done / steps)))
            counts.append(min(counts[-1], max(1, fewer)))
        return [*counts, 0]

    return table


def _halton_table(num_tokens: int, steps: int, first_ratio: float) -> list[int]:
    hidden = _round_up(num_tokens, first_ratio)
    revealed = (max(done, math.floor((1 - _arccos(done / steps)) * hidden)) for done in range(1, steps + 1))
    return [hidden, *(max(0, hidden - count) for count in revealed)]


def _halton_confidence_table(num_tokens: int, steps: int, first_ratio: float) -> list[int]:
    hidden = _round_up(num_tokens, first_ratio)
    shares = (1 - _arccos(_float32(done / (steps - 1))) for done in range(steps - 1))
    revealed = (max(done, math.floor(share * hidden)) for done, share in enumerate(shares, 1))
    return [hidden, *(max(0, hidden - count) for count in revealed), 0]


def _round_up(num_tokens: int, share: float) -> int:
    return max(0, math.ceil(num_tokens * (share - ROUNDING)))


def _arccos(progress: float) -> float:
    return math.acos(progress) / (0.5 * math.pi)


def _float32_cosine(progress: float) -> float:
    """Return cos(pi/2 progress) in float32 arithmetic, where cos(pi/3) is below 0.5. Official MaskGIT depends on it."""
    return _float32(math.cos(_float32(_float32(0.5 * math.pi) * _float32(progress))))


def _float32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


PAPER = Schedule("paper", "Token-Critic: cosine, rounded up", _paper_table)

# To add a schedule, add one row.
SCHEDULES: dict[str, Schedule] = {
    row.name: row
    for row in (
        PAPER,
        Schedule("maskgit", "official MaskGIT: cosine, rounded down", _revealing(_float32_cosine)),
        Schedule(
            "titok",
            "TiTok: arccos, selection noise also scales the temperature",
            _revealing(_arccos),
            temperature_left=after,
            confidence="tempered_logit",
            codes_by_noise=True,
        ),
        Schedule(
            "maskbit",
            "MaskBit: arccos",
            _revealing(_arccos),
            temperature_left=after,
            confidence="tempered_log_prob",
        ),
        Schedule(
            "halton",
            "Halton-MaskGIT: arccos, rounded up",
            _halton_table,
            temperature_left=until_last,
            inverse_temperature=True,
        ),
        Schedule(
            "halton-confidence",
            "Halton-MaskGIT's confidence sampler",
            _halton_confidence_table,
            temperature_left=until_last,
            noise_left=until_last,
            guidance_left=until_last,
            inverse_temperature=True,
            confidence="tempered_log_prob",
        ),
    )
}


def find_schedule(name: str) -> Schedule:
    """Return the schedule with this name. Raises InputError for an unknown one."""
    if name not in SCHEDULES:
        raise InputError(f"schedule is {name!r}; choose one of {', '.join(SCHEDULES)}")
    return SCHEDULES[name]
