"""Whose turn it is: a bounded queue, cancelling, waiting too long, and what is kept for whom."""

import threading

import pytest
from studio.toy import done, noise_picture

from tokencritic.errors import InputError
from tokencritic.studio.requests import Limits
from tokencritic.studio.service import Busy, Service
from tokencritic.studio.work import Result


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Gate:
    """Work that goes on when it is told to, and tells when it has begun."""

    def __init__(self, kind="generate"):
        self.kind, self.begun, self.open = kind, threading.Event(), threading.Event()

    def carry_out(self, pipe, watch):
        self.begun.set()
        assert self.open.wait(60)
        watch(1, 2, None)
        return Result()


class Fault:
    kind = "generate"

    def carry_out(self, pipe, watch):
        raise ZeroDivisionError("a fault of ours")


def test_the_queue_is_bounded_and_says_busy_at_once(pipe):
    service = Service(pipe, "MODEL", Limits(waiting=2, per_client=2))
    try:
        first = Gate()
        running = service.submit("a", first)
        assert first.begun.wait(60)
        waiting = [service.submit(name, Gate()) for name in ("b", "c")]
        assert [service.ahead(run) for run in (running, *waiting)] == [0, 1, 2]
        with pytest.raises(Busy, match="busy: 2 runs are waiting already; try again in a moment"):
            service.submit("d", Gate())
        for run in (first, *(run.work for run in waiting)):
            run.open.set()
        assert all(run.finished.wait(60) for run in (running, *waiting))
        assert [run.state for run in (running, *waiting)] == ["done"] * 3
        done(service.submit("d", service.requests.generate({"num": 1})))
    finally:
        service.close()


def test_one_page_cannot_take_all_places(pipe):
    service = Service(pipe, "MODEL", Limits(per_client=2))
    try:
        gates = [Gate(), Gate()]
        runs = [service.submit("a", gate) for gate in gates]
        with pytest.raises(Busy, match="2 of your runs are not finished"):
            service.submit("a", Gate())
        other = Gate()
        runs.append(service.submit("b", other))
        for gate in (*gates, other):
            gate.open.set()
        assert all(run.finished.wait(60) for run in runs)
    finally:
        service.close()


def test_cancelling_ends_ones_own_runs_and_nobody_elses(pipe, service):
    mine, yours, later = Gate(), Gate(), Gate("refine")
    runs = [service.submit("me", mine), service.submit("you", yours), service.submit("me", later)]
    assert mine.begun.wait(60)
    assert service.cancel("you", "refine") == 0
    assert [service.cancel("stranger", kind) for kind in ("generate", "refine")] == [0, 0]
    assert service.cancel("me", "refine") == 1
    assert (runs[2].state, runs[2].finished.is_set()) == ("cancelled", True)
    assert service.cancel("me", "generate") == 1
    for gate in (mine, yours):
        gate.open.set()
    assert all(run.finished.wait(60) for run in runs)
    assert [run.state for run in runs] == ["cancelled", "done", "cancelled"]
    assert not later.begun.is_set()


def test_who_waits_or_works_too_long_is_told_so(pipe):
    clock = Clock()
    service = Service(pipe, "MODEL", Limits(wait_seconds=30, run_seconds=100), clock)
    try:
        long = Gate()
        running = service.submit("a", long)
        assert long.begun.wait(60)
        waiting = service.submit("b", Gate())
        clock.now = 30.0
        assert service.ahead(waiting) == 1
        clock.now = 30.5
        service.ahead(waiting)
        assert waiting.state == "late"
        assert waiting.message == "gave up after waiting 30 s for other runs; try again in a moment"
        clock.now = 101.0
        long.open.set()
        assert running.finished.wait(60)
        assert (running.state, running.message) == (
            "failed",
            "stopped after 100 s, the most a run may take; ask for less",
        )
    finally:
        service.close()


def test_a_fault_ends_one_run_and_not_the_studio(service, capsys):
    run = service.submit("me", Fault())
    assert run.finished.wait(60)
    assert (run.state, run.message) == ("failed", "the run failed (ZeroDivisionError); the server's log says more")
    done(service.submit("me", service.requests.generate({"num": 1})))
    assert "a fault of ours" in capsys.readouterr().err


def test_results_and_pictures_are_kept_for_their_client_alone_and_not_for_ever(pipe):
    service = Service(pipe, "MODEL", Limits(kept_runs=2, kept_pictures=2))
    try:
        runs = [service.submit(name, service.requests.generate({"num": 1})) for name in ("a", "b")]
        for run in runs:
            done(run)
        assert service.latest("a", "generate") is runs[0]
        assert service.latest("a", "refine") is None
        assert service.find("a", runs[0].id) is runs[0]
        with pytest.raises(InputError, match="not here any more"):
            service.find("b", runs[0].id)
        for _ in range(2):
            done(service.submit("c", service.requests.generate({"num": 1})))
        done(service.submit("c", service.requests.generate({"num": 1})))
        with pytest.raises(InputError, match="not here any more"):
            service.find("a", runs[0].id)
        pictures = [service.keep_picture("a", noise_picture(seed=seed)) for seed in range(3)]
        assert service.picture("a", pictures[2]) == noise_picture(seed=2)
        for client, picture in (("b", pictures[2]), ("a", pictures[0])):
            with pytest.raises(InputError, match="there is no picture yet"):
                service.picture(client, picture)
    finally:
        service.close()


def test_closing_ends_what_waits_and_takes_nothing_more(pipe):
    service = Service(pipe, "MODEL")
    gate = Gate()
    running, waiting = service.submit("a", gate), service.submit("b", Gate())
    assert gate.begun.wait(60)
    gate.open.set()
    service.close()
    assert waiting.state == "cancelled"
    assert running.finished.is_set()
    with pytest.raises(Busy, match="closing"):
        service.submit("a", Gate())


def test_limits_must_leave_room():
    with pytest.raises(InputError, match="waiting is 0; it must be above 0"):
        Limits(waiting=0)
