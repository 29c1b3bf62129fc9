"""What stands between the network and the page: who may come in, how much they may bring, and where they may go."""

import asyncio
import hmac
import json
import re
import secrets
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
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
        self._pass = secrets.token_urlsafe(32)  # what the cookie holds: not the token, and good until the server ends
        self._large = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        request, more_headers = Request(scope, receive), list(_HEADERS)
        client = request.cookies.get(self.client_cookie, "")
        if re.fullmatch(r"[\w-]{22}", client) is None:
            client = secrets.token_urlsafe(16)
            more_headers.append(_cookie(self.client_cookie, client))

        async def answering(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *more_headers]
            await send(message)

        try:
            self._check_origin(request)
            large = self._check_size(request)
            self._large += large
            try:
                body = await request.body()
                if (answer := self._gate(request, body)) is not None:
                    await answer(scope, receive, answering)
                    return
                _check_path(scope["path"], body)
                request.state.client = client
                await self.app(scope, _replay(body, receive), answering)
            finally:
                self._large -= large
        except ClientDisconnect:
            return
        except HTTPException as refusal:
            told = JSONResponse({"error": refusal.detail}, refusal.status_code, _CLOSE)
            await answering({"type": "http.response.start", "status": told.status_code, "headers": told.raw_headers})
            await answering({"type": "http.response.body", "body": told.body, "more_body": True})
            await _drain(request)
            await answering({"type": "http.response.body", "body": b""})

    def _check_origin(self, request: Request) -> None:
        host = request.headers.get("host", "")
        name = _address(f"//{host}").hostname or ""
        if self.loopback and name not in LOOPBACK_HOSTS:
            raise HTTPException(403, f"this server answers to localhost alone, not to {name[:100]!r}")
        origin = request.headers.get("origin")
        if request.method not in ("GET", "HEAD") and origin is not None and _address(origin).netloc != host:
            raise HTTPException(403, "requests from pages of other sites are not taken")

    def _check_size(self, request: Request) -> bool:
        """Whether the body is large; refuses one that is too large, or one more than fit into the memory together."""
        if request.method not in ("GET", "HEAD", "POST"):
            raise HTTPException(405, "only GET and POST are known here")
        if "transfer-encoding" in request.headers:
            raise HTTPException(411, "a request must say its Content-Length")
        length = int(request.headers.get("content-length", 0))  # the server has refused what is no number
        takes_pictures = request.scope["path"].startswith(("/api/", "/studio/pictures"))
        # Without the token nobody sends much.
        most = self.most_bytes if takes_pictures and self._has_pass(request) else _SMALL_BODY
        if length > most:
            raise HTTPException(413, f"the request is larger than {most} bytes, the most that is taken here")
        if length > _SMALL_BODY and self._large >= _MOST_LARGE:
            raise HTTPException(503, f"busy: {self._large} large requests are being taken in; try again in a moment")
        return length > _SMALL_BODY

    def _gate(self, request: Request, body: bytes) -> Response | None:
        """The answer to who brings the token, or is asked for it in a form; None lets the request through."""
        path = request.scope["path"]
        if self.token is None:
            return None
        given = request.query_params.get("token") if path == "/" else None
        if path == LOGIN and request.method == "POST":
            given = QueryParams(body.decode("latin-1")).get("token")
        if given is not None and _same(given, self.token):
            # Sent away to an address without the token, which would stay in the browser's history.
            answer = RedirectResponse("/", 303, _CLOSE)
            answer.raw_headers.append(_cookie(self.pass_cookie, self._pass))
            return answer
        if self._has_pass(request):
            return None
        if path in ("/", LOGIN):
            return HTMLResponse(_FORM.format(again="" if given is None else "That was not the token."), 401, _CLOSE)
        raise HTTPException(401, "bring the token as `Authorization: Bearer TOKEN`")

    def _has_pass(self, request: Request) -> bool:
        if self.token is None:
            return True
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        by_header = scheme.lower() == "bearer" and _same(bearer.strip(), self.token)
        return by_header or _same(request.cookies.get(self.pass_cookie, ""), self._pass)


def _same(given: str, right: str) -> bool:
    """Compared in a time that does not tell how much of it is right."""
    return hmac.compare_digest(given.encode(), right.encode())


async def _drain(request: Request) -> None:
    """Take in and forget, within bounds: a client that is cut off in the middle of sending may not read its answer."""
    size = 0
    with suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > _DRAIN_BYTES:
                    return


def _check_path(path: str, body: bytes) -> None:
    """Refuse what is not open, and values that the page never sends.

    They are words, numbers and lists of them: never an object, which gradio could take for a file.
    """
    if not _OPEN.fullmatch(path) or ".." in path:
        raise HTTPException(404, "there is nothing here")
    if not path.startswith("/gradio_api/queue/join"):
        return
    try:
        data = json.loads(body).get("data", [])
    except (ValueError, AttributeError, RecursionError) as error:
        raise HTTPException(400, "the request is not JSON") from error
    values = data if isinstance(data, list) else [data]
    flat = [part for value in values for part in (value if isinstance(value, list) else [value])]
    if any(isinstance(value, dict | list) for value in flat):
        raise HTTPException(400, "a value of the page is a word, a number, or a list of such")


def _address(text: str) -> SplitResult:
    try:
        return urlsplit(text)
    except ValueError as error:
        raise HTTPException(400, "the request has no proper Host and Origin") from error


def _cookie(name: str, value: str) -> tuple[bytes, bytes]:
    return b"set-cookie", f"{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age=2592000".encode()


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body once more; after it, what the server says of the connection."""
    once = iter([{"type": "http.request", "body": body}])

    async def receiving() -> Message:
        return next(once, None) or await receive()

    return receiving


_FORM = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Token-Critic studio</title><style>body{{font-family:system-ui,sans-serif;max-width:24rem;margin:4rem auto;
padding:0 1rem;color-scheme:light dark}}input,button{{font:inherit;padding:.5rem;width:100%;box-sizing:border-box;
margin-top:.5rem}}</style><h1>Token-Critic studio</h1><form method="post" action="/studio/login">
<label for="token">Token</label><input id="token" name="token" type="password" autocomplete="current-password" autofocus
required><button>Open</button></form><p role="alert">{again}</p></html>"""
