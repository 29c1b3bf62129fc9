"""The guard of the page and the API: checks of the token and the origin, and limits of request bodies."""

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
LOGIN, STYLE = "/studio/login", "/page/style.css"

_SMALL_BODY = 2**18
_MOST_LARGE = 8  # large bodies in memory
_BODY_SECONDS, _BYTES_PER_SECOND = 5.0, 2**16  # n bytes may take _BODY_SECONDS + n / _BYTES_PER_SECOND
_DRAIN_BYTES, _DRAIN_SECONDS = 2**25, 2.0
_MOST_GUESSES, _GUESS_SECONDS, _MOST_GUESSERS = 10, 60.0, 1024
_CLOSE = {"connection": "close"}
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    # With "no-referrer", a browser sends the login form with `Origin: null`, which the guard rejects.
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        b"frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    ),
)
_FORM = (Path(__file__).parent / "static" / "login.html").read_text(encoding="utf-8")


class Guard:
    """An ASGI application that protects another one.

    token: the token that clients must send; None admits every client. Clients send it as `Authorization: Bearer TOKEN`,
    in the login form, or once as `/?token=TOKEN`.
    loopback: True if only this machine can reach the server. Only local host names are then accepted, so that a page of
    another site cannot use its own name for this server.
    port: a part of the cookies' names, because all servers on one machine share cookies.
    most_bytes: the size limit of a body that may contain a picture. Other bodies have a smaller limit.
    clock: returns the current time in seconds; tests replace it.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        loopback: bool,
        port: int,
        most_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app, self.token, self.loopback, self.most_bytes = app, token, loopback, most_bytes
        self.client_cookie, self.pass_cookie = f"studio_client_{port}", f"studio_pass_{port}"
        self._pass = secrets.token_urlsafe(32)  # the cookie's value: not the token, and valid until the server ends
        self._guesses = _Guesses(clock)
        self._held = 0  # bytes of bodies in memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, more_headers = Request(scope, receive), list(_HEADERS)
        client = request.cookies.get(self.client_cookie, "")
        if re.fullmatch(r"[\w-]{22}", client) is None:
            client = secrets.token_urlsafe(16)
            more_headers.append(_cookie(self.client_cookie, client))

        async def answering(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *more_headers]
            await send(message)

        parts: list[bytes] = []
        held = 0
        try:
            self._check_origin(request)
            passed = self._has_pass(request)
            length = self._check_size(request, passed)
            try:
                async with asyncio.timeout(_BODY_SECONDS + length / _BYTES_PER_SECOND):
                    async for part in request.stream():
                        parts.append(part)
                        held += len(part)
                        self._hold(len(part), length)
            except TimeoutError as error:
                raise HTTPException(408, f"{held} of {length} bytes arrived in time; send them faster") from error
            body = b"".join(parts)
            parts.clear()
            if (answer := self._gate(request, body, passed)) is not None:
                await answer(scope, receive, answering)
                return
            request.state.client = client
            await self.app(scope, _replay(body, receive), answering)
        except ClientDisconnect:
            return
        except HTTPException as refusal:
            told = JSONResponse({"error": refusal.detail}, refusal.status_code, _CLOSE)
            await answering({"type": "http.response.start", "status": told.status_code, "headers": told.raw_headers})
            await answering({"type": "http.response.body", "body": told.body, "more_body": True})
            await _drain(request)
            await answering({"type": "http.response.body", "body": b""})
        finally:
            self._held -= held

    def _check_origin(self, request: Request) -> None:
        host = request.headers.get("host", "")
        name = _address(f"//{host}").hostname or ""
        if self.loopback and name not in LOOPBACK_HOSTS:
            raise HTTPException(403, f"this server answers to localhost alone, not to {name[:100]!r}")
        origin = request.headers.get("origin")
        if request.method not in ("GET", "HEAD") and origin is not None and _address(origin).netloc != host:
            raise HTTPException(403, "requests from pages of other sites are not taken")

    def _check_size(self, request: Request, passed: bool) -> int:
        """Return the length of the body. Raises HTTPException for a wrong method, or an unknown or too large length."""
        if request.method not in ("GET", "HEAD", "POST"):
            raise HTTPException(405, "only GET and POST are known here")
        if "transfer-encoding" in request.headers:
            raise HTTPException(411, "a request must say its Content-Length")
        length = int(request.headers.get("content-length", 0))  # the server rejects any other text
        takes_pictures = request.scope["path"].startswith(("/api/", "/studio/pictures"))
        # Clients without the token may send small bodies only.
        most = self.most_bytes if takes_pictures and passed else _SMALL_BODY
        if length > most:
            raise HTTPException(413, f"the request is larger than {most} bytes, the most that is taken here")
        return length

    def _hold(self, count: int, length: int) -> None:
        """Count received bytes. Raises HTTPException if a large body arrives while bodies use too much memory.

        Announced bytes count only when they arrive.

        length: the announced length of the body.
        """
        self._held += count
        if length > _SMALL_BODY and self._held > _MOST_LARGE * self.most_bytes:
            raise HTTPException(503, "busy: many large requests are being taken in; try again in a moment")

    def _gate(self, request: Request, body: bytes, passed: bool) -> Response | None:
        """Return None if the request may pass, or a response: a redirect after a login, or the login form.

        Raises HTTPException if the token is missing and there is no form at this path.
        """
        path = request.scope["path"]
        if self.token is None or path == STYLE:
            return None
        given = request.query_params.get("token") if path == "/" else None
        if path == LOGIN and request.method == "POST":
            given = QueryParams(body.decode("latin-1")).get("token")
        if given is None and passed:
            return None
        status, said = 401, ""
        if given is not None:
            try:
                if self._is_token(request, given):
                    # The redirect keeps the token out of the browser's history.
                    answer = RedirectResponse("/", 303, _CLOSE)
                    answer.raw_headers.append(_cookie(self.pass_cookie, self._pass))
                    return answer
                said = "That was not the token."
            except HTTPException as refusal:
                status, said = refusal.status_code, f"{refusal.detail}."
        if path in ("/", LOGIN):
            return HTMLResponse(_FORM.replace("SAID", said), status, _CLOSE)
        raise HTTPException(401, "bring the token as `Authorization: Bearer TOKEN`")

    def _has_pass(self, request: Request) -> bool:
        cookie = request.cookies.get(self.pass_cookie, "")
        if self.token is None or hmac.compare_digest(cookie.encode(), self._pass.encode()):
            return True
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self._is_token(request, bearer.strip())

    def _is_token(self, request: Request, given: str) -> bool:
        """Return True for the token. Raises HTTPException 429 after too many wrong tokens, even for the right one."""
        address = request.client.host if request.client else ""
        self._guesses.check(address)
        # The time of the comparison does not depend on the number of correct characters.
        right = hmac.compare_digest(given.encode(), (self.token or "").encode())
        if not right:
            self._guesses.add(address)
        return right


class _Guesses:
    """The times of wrong tokens, by address. A wrong token counts for `_GUESS_SECONDS`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: dict[str, list[float]] = {}

    def check(self, address: str) -> None:
        """Raise HTTPException 429 after too many wrong tokens from an address."""
        since = self._clock() - _GUESS_SECONDS
        if sum(at > since for at in self._times.get(address, [])) >= _MOST_GUESSES:
            raise HTTPException(429, f"Too many wrong tokens; try again in {_GUESS_SECONDS:g} s")

    def add(self, address: str) -> None:
        self._times[address] = [*self._times.pop(address, []), self._clock()][-_MOST_GUESSES:]
        while len(self._times) > _MOST_GUESSERS:
            del self._times[next(iter(self._times))]


async def _drain(request: Request) -> None:
    """Read and discard the rest of a body, up to a limit of bytes and time.

    A client that is interrupted while it sends may not read the response.
    """
    size = 0
    with suppress(TimeoutError, ClientDisconnect, RuntimeError):  # RuntimeError: the body was already read
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > _DRAIN_BYTES:
                    return


def _address(text: str) -> SplitResult:
    try:
        return urlsplit(text)
    except ValueError as error:
        raise HTTPException(400, "the request has no proper Host and Origin") from error


def _cookie(name: str, value: str) -> tuple[bytes, bytes]:
    return b"set-cookie", f"{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age=2592000".encode()


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body first, and then the later messages of the connection."""
    once = iter([{"type": "http.request", "body": body}])

    async def receiving() -> Message:
        return next(once, None) or await receive()

    return receiving
