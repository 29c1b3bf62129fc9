"""From a button to a run, and from a run to what is shown of it, again and again until it is finished."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from tokencritic.errors import InputError
from tokencritic.studio import markup
from tokencritic.studio.runs import Run
from tokencritic.studio.service import Busy, Service
from tokencritic.studio.work import Work

_SECONDS = 0.15


def client_of(request: Any) -> str:
    """Whose page a request comes from. request: gradio's; the guard has written the client into it."""
    return request.request.state.client


async def start(
    service: Service, client: str, make: Callable[[], Work], show: Callable[[Run], str]
) -> AsyncIterator[str]:
    """Make work, hand it in, and yield HTML until it is done. make: raises `InputError` for values that are wrong."""
    try:
        run = service.submit(client, make())
    except (InputError, Busy) as error:
        yield markup.note(str(error), "alert")
        return
    async for html in follow(service, run, show):
        yield html


async def follow(service: Service, run: Run, show: Callable[[Run], str]) -> AsyncIterator[str]:
    """HTML of a run, each time it changes; the last one is `show`'s. Leaving early does not end the run."""
    last = None
    while not run.finished.is_set():
        now = markup.progress(run, service.ahead(run))
        if now != last:
            yield now
        last = now
        await asyncio.sleep(_SECONDS)
    yield await asyncio.to_thread(outcome, run, show)


def outcome(run: Run, show: Callable[[Run], str]) -> str:
    """HTML of a finished run."""
    if run.state == "done":
        return show(run)
    return markup.note(run.message[:1].upper() + run.message[1:], "status" if run.state == "cancelled" else "alert")


async def resume(service: Service, client: str, kind: str, show: Callable[[Run], str]) -> AsyncIterator[str]:
    """For a page that was reloaded: the client's last run of a kind, followed if it is not finished."""
    run = service.latest(client, kind)
    if run is not None and (run.state == "done" or not run.finished.is_set()):
        async for html in follow(service, run, show):
            yield html
