"""The plan of a sampling run: how many tokens are hidden at each step, known before the loop. Importable without torch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokencritic.errors import InputError
from tokencritic.schedules import PAPER, Schedule


@dataclass(frozen=True)
class Step:
    """One round of propose, score, re-mask.

    index: names the step's noise. time, time_after: the paper's t/T when the step begins and (t-1)/T when it ends.
    num_masked: how many tokens of each image are hidden when the step ends. steps: how many the run has, T.
    """

    index: int = 0
    time: float = 1.0
    time_after: float = 0.0
    num_masked: tuple[int, ...] = ()
    steps: int = 1

    @property
    def done(self) -> int:
        """How many steps came before this one."""
        return max(0, self.index - 1)

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
    schedule: Schedule = PAPER

    @classmethod
    def make(cls, num_free: Sequence[int], steps: int, first_ratio: float = 1.0, schedule: Schedule = PAPER) -> "Plan":
        """T = `steps` steps that hide fewer and fewer of the `num_free` tokens of each image (Algorithm 2 line 3).

        first_ratio: the share hidden at the start, in (0, 1]; 1 to sample, 0.6 in the paper's refinement.
        """
        tables = {count: schedule.table(count, steps, first_ratio) for count in set(num_free)}
        hidden = [tuple(tables[count][done] for count in num_free) for done in range(steps + 1)]
        made = (
            Step(done, (steps - done + 1) / steps, (steps - done) / steps, hidden[done], steps)
            for done in range(1, steps + 1)
        )
        return cls(tuple(num_free), Step(0, 1.0, 1.0, hidden[0], steps), tuple(made), schedule)

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
