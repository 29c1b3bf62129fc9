"""Progress: a bar on a terminal, plain lines elsewhere, nothing with shown=False."""

import io
import time
from contextlib import redirect_stderr

import pytest

from tokencritic.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_lines_with_rate_and_time_left(clock: Clock) -> None:
    stream = io.StringIO()
    with redirect_stderr(stream), Progress(10_000, "tokenizing", "images") as progress:
        for _ in range(10):
            clock.now += 4
            progress.advance(400)
    lines = stream.getvalue().splitlines()
    assert lines == [
        "tokenizing: 1200 of 10000 images, 100 images/s, 0:01:28 left",
        "tokenizing: 2400 of 10000 images, 100 images/s, 0:01:16 left",
        "tokenizing: 3600 of 10000 images, 100 images/s, 0:01:04 left",
        "tokenizing: 4000 of 10000 images, 100 images/s, 0:01:00 left",
    ]


def test_work_done_before_is_not_in_the_rate(clock: Clock) -> None:
    stream = io.StringIO()
    with redirect_stderr(stream), Progress(100, "training", "steps", done=90) as progress:
        clock.now += 5
        progress.advance(10)
    assert stream.getvalue() == "training: 100 of 100 steps, 2 steps/s\n"


def test_long_times_have_hours(clock: Clock) -> None:
    stream = io.StringIO()
    with redirect_stderr(stream), Progress(3726, "x", "steps") as progress:
        clock.now += 1
        progress.advance()
    assert stream.getvalue().endswith("1 steps/s, 1:02:05 left\n")


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_silence(stream: io.StringIO) -> None:
    with redirect_stderr(stream), Progress(10, "x", "steps", shown=False) as progress:
        progress.advance(10)
    assert stream.getvalue() == ""


def test_nothing_done_prints_nothing() -> None:
    stream = io.StringIO()
    with redirect_stderr(stream), Progress(10, "x", "steps", done=10):
        pass
    assert stream.getvalue() == ""


def test_a_bar_on_a_terminal() -> None:
    stream = Terminal()
    with redirect_stderr(stream), Progress(10, "tokenizing", "images", done=4) as progress:
        progress.advance(6)
    assert "tokenizing: 100%" in stream.getvalue()
    assert "10/10" in stream.getvalue()


def test_a_note_stands_beside_the_count_and_seconds_have_no_rate(clock: Clock) -> None:
    lines, terminal = io.StringIO(), Terminal()
    for stream in (lines, terminal):
        with redirect_stderr(stream), Progress(60, "training", "seconds") as progress:
            clock.now += 12
            progress.advance(12, "step 30, loss 2.5")
    assert (
        lines.getvalue() == "training: 12 of 60 seconds, 0:00:48 left, step 30, loss 2.5\n"
    )  # and not again at the end
    assert "12/60 s, step 30, loss 2.5" in terminal.getvalue()
