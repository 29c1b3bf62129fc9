"""The files of the page, and an application that serves them while the model loads. Importable without torch."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

_FOLDER = Path(__file__).parent / "static"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}


class Opening:
    """An ASGI application that serves the page at once. All other requests wait until the model is loaded.

    rest: a future of the application for all other requests. It holds the exception if loading fails.
    """

    def __init__(self) -> None:
        files = (file for file in _FOLDER.iterdir() if file.suffix in _KINDS)
        self._files = {f"/page/{file.name}": (file.read_bytes(), _KINDS[file.suffix]) for file in files}
        self._files["/"] = self._files.pop("/page/index.html")
        self.rest: Future[ASGIApp] = Future()

    def start(self, make: Callable[[], ASGIApp], failed: Callable[[], None]) -> None:
        """Create the application for all other requests in a separate thread.

        make: creates the application.
        failed: called if `make` raises.
        """

        def making() -> None:
            try:
                self.rest.set_result(make())
            except BaseException as error:
                self.rest.set_exception(error)
                failed()

        threading.Thread(target=making, name="loading", daemon=True).start()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (found := self._files.get(scope["path"])) is not None:
            answer = Response(found[0], media_type=found[1], headers={"cache-control": "no-cache"})
            await answer(scope, receive, send)
            return
        try:
            rest = await asyncio.wrap_future(self.rest)
        except Exception as error:
            raise HTTPException(503, "the model could not be loaded; the server's log says why") from error
        await rest(scope, receive, send)
