"""The page is there before the model is."""

import asyncio
import threading

import pytest
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

from tokencritic.studio.page import Opening


async def get(app, path):
    """(status, body) of a request."""
    said = []

    async def send(message):
        said.append(message)

    await app({"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}, None, send)
    return said[0]["status"], b"".join(message.get("body", b"") for message in said)


def test_the_page_answers_at_once_and_the_rest_when_it_is_made():
    loaded, opening = threading.Event(), Opening()

    def make():
        assert loaded.wait(60)
        return PlainTextResponse("the rest")

    async def visit():
        opening.start(make, failed=lambda: None)
        page = await get(opening, "/")
        script = await get(opening, "/page/main.js")
        rest = asyncio.create_task(get(opening, "/studio/about"))
        await asyncio.sleep(0)
        assert not rest.done()
        loaded.set()
        return page, script, await rest

    page, script, rest = asyncio.run(visit())
    assert page[0] == script[0] == 200
    assert b"Loading the model" in page[1]
    assert rest == (200, b"the rest")


def test_a_model_that_cannot_be_loaded_is_told_of_and_ends_the_server():
    ended, opening = threading.Event(), Opening()

    def make():
        raise ValueError("no such model")

    opening.start(make, failed=ended.set)
    assert ended.wait(60)
    with pytest.raises(HTTPException, match="the model could not be loaded"):
        asyncio.run(get(opening, "/studio/about"))
    with pytest.raises(ValueError, match="no such model"):
        opening.rest.result()
