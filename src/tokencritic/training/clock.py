"""How far a run is, and when something is due."""

import math
import time

from tokencritic.distribution import Ranks
from tokencritic.errors import InputError
from tokencritic.training.settings import TrainingSettings


class Clock:
    """Counts the steps and the time of a run, by the clock of the first rank.

    num_rows: how many examples an epoch has. step: how many steps are done. total: the length of the run, in steps or, for a
    budget of time, in seconds.
    """

    def __init__(self, settings: TrainingSettings, num_rows: int, ranks: Ranks) -> None:
        self.settings, self.ranks = settings, ranks
        self.timed = settings.minutes is not None
        self.total = _length(settings, num_rows)
        self.start(0, 0.0)

    def start(self, step: int, seconds: float) -> None:
        """Start, or resume a run after so many steps and seconds."""
        self.step = self.first_step = step
        self._resumed = self._saved = self._validated = time.monotonic()
        self._start = self._resumed - seconds

    @property
    def seconds(self) -> float:
        """The time of the run so far, that before a resume included."""
        return time.monotonic() - self._start

    @property
    def share(self) -> float:
        """The share of the run that is done; for a budget of time, 0 on all ranks but the first."""
        if not self.timed:
            return self.step / self.total
        return self.seconds / (60 * self.settings.minutes) if self.settings.minutes and self.ranks.first else 0.0

    @property
    def done(self) -> int:
        """How much of `total` is done."""
        return min(int(self.seconds), self.total) if self.timed else self.step

    def note(self, loss: float | None) -> str:
        """What a progress bar shows; for a budget of time, the rate of steps too."""
        if loss is None or not self.timed:
            return "" if loss is None else f"loss {loss:.4g}"
        rate = (self.step - self.first_step) / max(time.monotonic() - self._resumed, 1e-9)
        return f"step {self.step}, {rate:.3g} steps/s, loss {loss:.4g}"

    def due(self) -> tuple[bool, bool]:
        """Whether to validate and whether to save now, on all ranks alike. At the end nothing is due: all of it comes then."""
        now, settings = time.monotonic(), self.settings
        validate = now - self._validated > settings.validate_seconds
        save = now - self._saved > settings.checkpoint_seconds
        save |= bool(settings.keep_every and self.step % settings.keep_every == 0)
        going = self.ranks.first and self.share < 1
        validate, save = self.ranks.largest([float(going and validate), float(going and save)])
        return bool(validate), bool(validate or save)

    def validated(self) -> None:
        self._validated = time.monotonic()

    def saved(self) -> None:
        self._saved = time.monotonic()


def _length(settings: TrainingSettings, num_rows: int) -> int:
    if settings.steps is not None:
        return settings.steps
    if settings.epochs is not None:
        return math.ceil(settings.epochs * num_rows / settings.batch_size)
    if settings.minutes is not None:
        return math.ceil(60 * settings.minutes)
    raise InputError("none of steps, epochs and minutes is given; give one of them")
