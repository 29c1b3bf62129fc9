"""The plan of a sampling run: how many tokens are hidden at each step, known before the loop. Importable without torch."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokencritic.errors import InputError

# cos(pi/3) comes out as 0.5 + 1e-16 in float64: without this slack 12 of 18 steps would hide 129 of 256 tokens, not 128.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Step:
    """One round of propose, score, re-mask.

    index: names the step's noise. time, time_after: the paper's t/T when the step begins and (t-1)/T when it ends.
    num_masked: how many tokens of each image are hidden when the step ends.
    """

    index: int = 0
    time: float = 1.0
    time_after: float = 0.0
    num_masked: tuple[int, ...] = ()

    @property
    def is_last(self) -> bool:
        """Whether nothing is hidden any more when the step ends."""
        return not any(self.num_masked)


@dataclass(frozen=True)
class Plan:
    """The steps of a run. num_free: how many tokens of each image may be hidden. start: the hiding before the first step."""

    num_free: tuple[int, ...]
    start: Step
    steps: tuple[Step, ...]

    @classmethod
    def make(cls, num_free: Sequence[int], steps: int, first_ratio: float = 1.0) -> "Plan":
        """T = `steps` steps that hide fewer and fewer of the `num_free` tokens of each image (Algorithm 2 line 3).

        first_ratio: the share hidden at the start, in (0, 1]; 1 to sample, 0.6 in the paper's refinement.
        """
        tables = {count: num_masked_table(count, steps, first_ratio) for count in set(num_free)}
        hidden = [tuple(tables[count][done] for count in num_free) for done in range(steps + 1)]
        made = (
            Step(done, (steps - done + 1) / steps, (steps - done) / steps, hidden[done]) for done in range(1, steps + 1)
        )
        return cls(tuple(num_free), Step(0, 1.0, 1.0, hidden[0]), tuple(made))

    def with_effect(self, revokes: Callable[[Step], bool]) -> Iterator[tuple[Step, tuple[int, ...]]]:
        """The steps that can change something, each with the counts that are hidden before it.

        A step that hides as many tokens as before changes nothing if everything is hidden, or if the scorer keeps what is
        visible: the same tokens would be sampled from the same logits later. The noise of a step is indexed by the step,
        so leaving one out moves nothing. revokes: whether the scorer may re-mask visible tokens at a step.
        """
        before = self.start.num_masked
        for step in self.steps:
            if step.num_masked != before or (before != self.num_free and revokes(step)):
                yield step, before
                before = step.num_masked


def num_masked_table(num_tokens: int, steps: int, first_ratio: float = 1.0) -> list[int]:
    """How many tokens are hidden before step 0, 1, ... and after the last: `steps + 1` integers, the last one 0.

    ceil(gamma N) in the paper, with the cosine gamma.
    """
    if steps < 1:
        raise InputError(f"steps is {steps}; it must be at least 1")
    if not 0 < first_ratio <= 1:
        raise InputError(f"first_ratio is {first_ratio}; it must lie in (0, 1]")
    ratios = (first_ratio * max(0.0, math.cos(0.5 * math.pi * done / steps)) for done in range(steps + 1))
    return [max(0, math.ceil(num_tokens * (ratio - ROUNDING))) for ratio in ratios]


def in_window(window: tuple[float, float], step: Step) -> bool:
    """Whether t/T lies in (end, start] when the step begins."""
    start, end = window
    return end < step.time <= start


def check_window(window: Any) -> None:
    """A critic window is (start, end) with 0 <= end < start <= 1."""
    pair = (
        isinstance(window, tuple | list) and len(window) == 2 and all(isinstance(time, int | float) for time in window)
    )
    if not pair or not 0 <= window[1] < window[0] <= 1:
        raise InputError(f"critic_window is {window}; it must be a start and an end with 0 <= end < start <= 1")
