"""Whose turn it is: a bounded queue, cancelling, waiting too long, and what is kept for whom."""

import asyncio
import json
import threading

import pytest
from starlette.requests import Request
from studio.toy import done, noise_picture

from tokencritic.errors import InputError
from tokencritic.studio.api import Api
from tokencritic.studio.limits import Limits
from tokencritic.studio.service import EVERYONE, Busy, Expired, Service
from tokencritic.studio.work import Result, Stopped


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
    for run in runs:
        service.cancel("stranger", run.id)
    service.cancel("you", runs[2].id)
    assert not any(run.cancelled.is_set() for run in runs)
    service.cancel("me", runs[2].id)
    assert (runs[2].state, runs[2].finished.is_set()) == ("cancelled", True)
    service.cancel("me", runs[0].id)
    for gate in (mine, yours):
        gate.open.set()
    assert all(run.finished.wait(60) for run in runs)
    assert [run.state for run in runs] == ["cancelled", "done", "cancelled"]
    assert not later.begun.is_set()


def test_a_cancelled_run_keeps_its_images_as_they_are(pipe, service):
    work = service.requests.generate({"num": 3, "steps": 8, "seed": 2})

    def watch(done, total, tokens):
        if done >= 3:
            raise Stopped("enough")

    result = work.carry_out(pipe, watch)
    assert result.stopped == "enough"
    made = result.sets[0]
    assert len(made.images) == 3
    assert [step.index for step in made.trace.steps] == [2, 3]  # of so few tokens, the first step hides all once more
    assert made.tokens.equal(made.trace.steps[-1].proposal)
    compared = service.requests.compare({"num": 2, "samplers": ["confidence", "critic"]}).carry_out(pipe, watch)
    assert len(compared.sets) == 1


def test_the_first_images_give_way_to_who_asks_for_some(pipe, service):
    first, asked = Gate(), Gate()
    welcome = service.submit(EVERYONE, first)
    assert first.begun.wait(60)
    run = service.submit("me", asked)
    assert service.find("me", welcome.id) is service.find("you", welcome.id)
    for gate in (first, asked):
        gate.open.set()
    assert welcome.finished.wait(60)
    assert run.finished.wait(60)
    assert (welcome.state, run.state) == ("cancelled", "done")


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


def generate(service, client):
    run = service.submit(client, service.requests.generate({"num": 1}))
    done(run)
    return run


def test_runs_are_kept_for_each_visitor_alone(pipe):
    service = Service(pipe, "MODEL", Limits(kept_runs=2))
    try:
        mine = generate(service, "me")
        for _ in range(5):
            others = generate(service, "you")
        assert service.find("me", mine.id) is mine
        assert service.jobs("me") == [mine]
        assert len(service.jobs("you")) == 2
        with pytest.raises(Expired, match="this run has expired: the studio keeps your last 2 runs"):
            service.find("me", others.id)
        for _ in range(2):
            generate(service, "me")
        with pytest.raises(Expired):
            service.find("me", mine.id)
        told = generate(service, "api")
        service.forget(told)
        assert service.jobs("api") == []
    finally:
        service.close()


def test_the_memory_of_all_runs_is_bounded(pipe, service):
    one = generate(service, "me").num_bytes
    service = Service(pipe, "MODEL", Limits(kept_bytes=3 * one))
    try:
        runs = [generate(service, f"visitor {number}") for number in range(6)]
        kept = [run for run in runs if service.jobs(run.client)]
        assert kept == runs[-3:]
    finally:
        service.close()


def test_pictures_are_kept_for_their_visitor_alone_and_not_for_ever(pipe):
    service = Service(pipe, "MODEL", Limits(kept_pictures=2, all_pictures=3))
    try:
        mine = service.keep_picture("me", noise_picture(seed=9))
        pictures = [service.keep_picture("a", noise_picture(seed=seed)) for seed in range(3)]
        assert service.picture("a", pictures[2]) == noise_picture(seed=2)
        assert service.picture("me", mine) == noise_picture(seed=9)
        for client, picture in (("b", pictures[2]), ("a", pictures[0])):
            with pytest.raises(Expired, match="this picture has expired"):
                service.picture(client, picture)
        service.keep_picture("c", noise_picture())
        with pytest.raises(Expired):
            service.picture("me", mine)
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


def test_the_api_keeps_nothing_of_a_run_that_it_has_answered(service):
    sent = iter([{"type": "http.request", "body": b'{"num": 1}'}])

    async def receive():
        return next(sent, None) or await asyncio.sleep(3600)  # the client stays

    async def call():
        return await Api(service).run(service.requests.generate, Request({"type": "http"}, receive))

    assert len(json.loads(asyncio.run(call()).body)["images"]) == 1
    assert service._jobs == {}
