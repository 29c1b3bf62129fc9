"""What stands between the network and the page: who may come in, how much they may bring, and where they may go."""

import asyncio
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
LOGIN = "/studio/login"

# What the page asks its server for. Everything else of gradio's, above all its ways to files and to other hosts, is shut.
_OPEN = re.compile(
    r"/(config/?|theme\.css|favicon\.ico|manifest\.json|robots\.txt|(assets|static|svelte)/[\w./@+~-]+"
    r"|gradio_api/(queue/(join|data)/?|heartbeat/\w+|app_id/?|startup-events|cancel/?|reset/?|theme\.css)"
    r"|api/(model|generate|refine|edit)|studio/[\w./-]+)?"
)
_SMALL_BODY = 2**18
_MOST_LARGE = 8
_DRAIN_BYTES, _DRAIN_SECONDS = 2**25, 2.0
_CLOSE = {"connection": "close"}
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (
        b"content-security-policy",
        b"default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
        b"img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
        b"frame-ancestors 'none'; base-uri 'self'; form-action 'self'",
    ),
)


class Refused(Exception):
    """status: of the answer. The message is for people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Guard:
    """An ASGI application around another.

    token: what a client must bring, as `Authorization: Bearer TOKEN`, in the form that is shown without it, or once as
    `/?token=TOKEN`; None lets everyone in. loopback: whether only this machine can reach the server; then only its own
    names are answered to, so that no page of another site can pretend to be it. port: names the cookies, which servers on
    one machine share. most_bytes: of a body that may hold a picture; every other body is small.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, loopback: bool, port: int, most_bytes: int) -> None:
        self.app, self.token, self.loopback, self.most_bytes = app, token, loopback, most_bytes
        self.client_cookie, self.pass_cookie = f"studio_client_{port}", f"studio_pass_{port}"
        self._secret = secrets.token_bytes(32)
        self._large = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # the page needs no websockets
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope)
        client = request.cookies.get(self.client_cookie, "")
        new = re.fullmatch(r"[\w-]{22}", client) is None
        client = secrets.token_urlsafe(16) if new else client
        send = _with_headers(send, [_cookie(self.client_cookie, client)] if new else [])
        try:
            self._check_origin(request)
            # Without the token nobody sends much.
            takes_pictures = scope["path"].startswith(("/api/", "/studio/pictures")) and self._has_pass(request)
            most = self.most_bytes if takes_pictures else _SMALL_BODY
            with self._room(most, request):
                body = await _body(request, receive, most)
                if (answer := self._gate(request, body)) is not None:
                    await answer(scope, receive, send)
                    return
                _check_path(scope["path"], body)
                scope["state"] = {**scope.get("state", {}), "client": client}
                await self.app(scope, _replay(body, receive), send)
        except Refused as refusal:
            told = JSONResponse({"error": str(refusal)}, refusal.status, _CLOSE)
            await send({"type": "http.response.start", "status": refusal.status, "headers": told.raw_headers})
            await send({"type": "http.response.body", "body": told.body, "more_body": True})
            if refusal.status == 413:
                await _drain(receive)
            await send({"type": "http.response.body", "body": b""})

    def _check_origin(self, request: Request) -> None:
        host = request.headers.get("host", "")
        name = _address(f"//{host}").hostname or ""
        if self.loopback and name not in LOOPBACK_HOSTS:
            raise Refused(403, f"this server answers to localhost alone, not to {name[:100]!r}")
        origin = request.headers.get("origin")
        if request.method not in ("GET", "HEAD") and origin is not None and _address(origin).netloc != host:
            raise Refused(403, "requests from pages of other sites are not taken")

    @contextmanager
    def _room(self, most: int, request: Request) -> Iterator[None]:
        """So few large bodies at a time that together they do not fill the memory."""
        large = _length(request, most if "transfer-encoding" in request.headers else 0) > _SMALL_BODY
        if large and self._large >= _MOST_LARGE:
            raise Refused(503, f"busy: {self._large} large requests are being taken in; try again in a moment")
        self._large += large
        try:
            yield
        finally:
            self._large -= large

    def _gate(self, request: Request, body: bytes) -> Response | None:
        """The answer to who brings the token, or is asked for it in a form; None lets the request through."""
        path = request.scope["path"]
        if self.token is None:
            return None
        given = request.query_params.get("token") if path == "/" else None
        if path == LOGIN and request.method == "POST":
            given = QueryParams(body.decode("latin-1")).get("token")
        if given is not None and same(given, self.token):
            # Sent away to an address without the token, which would stay in the browser's history.
            answer = RedirectResponse("/", 303, _CLOSE)
            answer.raw_headers.append(_cookie(self.pass_cookie, self._pass()))
            return answer
        if self._has_pass(request):
            return None
        if path in ("/", LOGIN):
            return HTMLResponse(_FORM.format(again="" if given is None else "That was not the token."), 401, _CLOSE)
        raise Refused(401, "bring the token as `Authorization: Bearer TOKEN`")

    def _has_pass(self, request: Request) -> bool:
        if self.token is None:
            return True
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        by_header = scheme.lower() == "bearer" and same(bearer.strip(), self.token)
        return by_header or same(request.cookies.get(self.pass_cookie, ""), self._pass())

    def _pass(self) -> str:
        """What the cookie holds: made of the token, but not the token, and good until the server ends."""
        assert self.token is not None
        return hmac.new(self._secret, self.token.encode(), hashlib.sha256).hexdigest()


def same(given: str, right: str) -> bool:
    """Compared in a time that does not tell how much of it is right."""
    return hmac.compare_digest(given.encode(), right.encode())


async def _drain(receive: Receive) -> None:
    """Take in and forget, within bounds: a client that is cut off in the middle of sending may not read its answer."""
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while size < _DRAIN_BYTES:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
                size += len(message.get("body", b""))


def _length(request: Request, missing: int) -> int:
    """The length that a body is said to have; more than any bound if it is no proper number. missing: if none is said."""
    text = request.headers.get("content-length", str(missing))
    return int(text) if text.isdecimal() and len(text) <= 18 else 10**18


async def _body(request: Request, receive: Receive, most: int) -> bytes:
    """The whole body, or a refusal before more of it than allowed is held."""
    if request.method in ("GET", "HEAD"):
        return b""
    if request.method != "POST":
        raise Refused(405, "only GET and POST are known here")
    too_much = Refused(413, f"the request is larger than {most} bytes, the most that is taken here")
    if _length(request, 0) > most:
        raise too_much
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(400, "the request ended before it was whole")
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
        if size > most:
            raise too_much
    return b"".join(parts)


def _check_path(path: str, body: bytes) -> None:
    """Refuse what is not open, and values that the page never sends.

    They are words, numbers and lists of them: never an object, which gradio could take for a file.
    """
    if not _OPEN.fullmatch(path) or ".." in path:
        raise Refused(404, "there is nothing here")
    if not path.startswith("/gradio_api/queue/join"):
        return
    try:
        data = json.loads(body).get("data", [])
    except (ValueError, AttributeError, RecursionError) as error:
        raise Refused(400, "the request is not JSON") from error
    values = data if isinstance(data, list) else [data]
    flat = [part for value in values for part in (value if isinstance(value, list) else [value])]
    if any(isinstance(value, dict | list) for value in flat):
        raise Refused(400, "a value of the page is a word, a number, or a list of such")


def _address(text: str) -> SplitResult:
    try:
        return urlsplit(text)
    except ValueError as error:
        raise Refused(400, "the request has no proper Host and Origin") from error


def _cookie(name: str, value: str) -> tuple[bytes, bytes]:
    return b"set-cookie", f"{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age=2592000".encode()


def _with_headers(send: Send, more: list[tuple[bytes, bytes]]) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *_HEADERS, *more]
        await send(message)

    return sending


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body once more; after it, what the server says of the connection."""
    told = False

    async def receiving() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving


_FORM = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Token-Critic studio</title><style>body{{font-family:system-ui,sans-serif;max-width:24rem;margin:4rem auto;
padding:0 1rem;color-scheme:light dark}}input,button{{font:inherit;padding:.5rem;width:100%;box-sizing:border-box;
margin-top:.5rem}}</style><h1>Token-Critic studio</h1><form method="post" action="/studio/login">
<label for="token">Token</label><input id="token" name="token" type="password" autocomplete="current-password" autofocus
required><button>Open</button></form><p role="alert">{again}</p></html>"""
