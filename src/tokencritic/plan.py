"""The plan of a sampling run: the number of hidden tokens at each step. Importable without torch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokencritic.errors import InputError
from tokencritic.schedules import PAPER, Schedule


@dataclass(frozen=True)
class Step:
    """One iteration of the sampling loop: propose, score, re-mask.

    index: the number of the step, which also indexes its noise; 0 is the start.
    time: t/T in the paper, before the step.
    time_after: (t-1)/T in the paper, after the step.
    num_masked: the number of hidden tokens of each image after the step.
    steps: T, the number of steps of the run.
    """

    index: int = 0
    time: float = 1.0
    time_after: float = 0.0
    num_masked: tuple[int, ...] = ()
    steps: int = 1

    @property
    def done(self) -> int:
        """The number of steps before this one."""
        return max(0, self.index - 1)

    @property
    def is_last(self) -> bool:
        """True if no token is hidden after the step."""
        return not any(self.num_masked)


@dataclass(frozen=True)
class Plan:
    """The steps of a run.

    num_free: the number of tokens of each image that may be hidden.
    start: step 0, which hides tokens before the first step.
    steps: steps 1 to T.
    schedule: the schedule that the plan was made with.
    """

    num_free: tuple[int, ...]
    start: Step
    steps: tuple[Step, ...]
    schedule: Schedule = PAPER

    @classmethod
    def make(cls, num_free: Sequence[int], steps: int, first_ratio: float = 1.0, schedule: Schedule = PAPER) -> "Plan":
        """Return a plan of T = `steps` steps that hide ever fewer tokens (Algorithm 2, line 3).

        num_free: the number of tokens of each image that may be hidden.
        first_ratio: the share hidden at the start, in (0, 1]: 1 for sampling, 0.6 for the paper's refinement.
        """
        tables = {count: schedule.table(count, steps, first_ratio) for count in set(num_free)}
        hidden = [tuple(tables[count][done] for count in num_free) for done in range(steps + 1)]
        made = (
            Step(done, (steps - done + 1) / steps, (steps - done) / steps, hidden[done], steps)
            for done in range(1, steps + 1)
        )
        return cls(tuple(num_free), Step(0, 1.0, 1.0, hidden[0], steps), tuple(made), schedule)

    def with_effect(self, revokes: Callable[[Step], bool]) -> Iterator[tuple[Step, tuple[int, ...]]]:
        """Yield the steps that can change the result, each with the numbers of tokens hidden before it.

        A step that hides as many tokens as before has no effect if all tokens are hidden, or if no visible token may be
        re-masked. Skipping it does not change the noise of other steps, because noise is indexed by the step.

        revokes: returns True if the scorer may re-mask visible tokens at a step.
        """
        before = self.start.num_masked
        for step in self.steps:
            if step.num_masked != before or (before != self.num_free and revokes(step)):
                yield step, before
                before = step.num_masked


def in_window(window: tuple[float, float], step: Step) -> bool:
    """Return True if t/T is in (end, start] before the step."""
    start, end = window
    return end < step.time <= start


def check_window(window: Any) -> None:
    """Raise InputError unless a critic window is (start, end) with 0 <= end < start <= 1."""
    pair = (
        isinstance(window, tuple | list) and len(window) == 2 and all(isinstance(time, int | float) for time in window)
    )
    if not pair or not 0 <= window[1] < window[0] <= 1:
        raise InputError(f"critic_window is {window}; it must be a start and an end with 0 <= end < start <= 1")
