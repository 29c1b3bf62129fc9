"""Progress of long work: a bar on a terminal, and plain lines at intervals elsewhere."""

import sys
import time
from datetime import timedelta
from typing import Self

from tqdm import tqdm

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """A context manager that shows progress. Call `advance` as units of work are done.

    total: the number of units.
    what: the title.
    unit: the name of a unit, in the plural. "seconds" has no rate.
    done: the number of units that an earlier run has done. They do not count in the rate.
    shown: False shows nothing, for all ranks but the first.
    """

    def __init__(self, total: int, what: str, unit: str, *, done: int = 0, shown: bool = True) -> None:
        self.total, self.what, self.unit, self.done = total, what, unit, done
        self._first = self._printed = done
        self._shown, self._note, self._bar = shown, "", None
        self._start = self._last = time.monotonic()
        if shown and sys.stderr.isatty():
            form = "{l_bar}{bar}| {n:.0f}/{total:.0f} s{postfix}" if unit == "seconds" else None
            self._bar = tqdm(total=total, initial=done, desc=what, unit=f" {unit}", bar_format=form)

    def __enter__(self) -> Self:
        return self

    def advance(self, count: int = 1, note: str = "") -> None:
        """Add `count` units to those done. note: a text shown next to the progress."""
        self.done += count
        self._note = note or self._note
        if self._bar is not None:
            self._bar.set_postfix_str(self._note, refresh=False)
            self._bar.update(count)
        elif self._shown and time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._print_line()

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._shown and self.done > self._printed:  # the last line, also after an error
            self._print_line()

    def _print_line(self) -> None:
        self._printed, self._last = self.done, time.monotonic()
        seconds = self._last - self._start
        rate = (self.done - self._first) / seconds if seconds > 0 else 0.0
        line = f"{self.what}: {self.done} of {self.total} {self.unit}"
        if rate > 0:
            line += f", {rate:.4g} {self.unit}/s" if self.unit != "seconds" else ""
            left = timedelta(seconds=round((self.total - self.done) / rate))
            line += f", {left} left" if self.done < self.total else ""
        line += f", {self._note}" if self._note else ""
        print(line, file=sys.stderr, flush=True)
