"""What stands between the network and the page: who may come in, how much they may bring, and where they may go."""

import asyncio
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

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

    def __init__(self, app: App, *, token: str | None, loopback: bool, port: int, most_bytes: int) -> None:
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
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        cookies = _cookies(headers.get("cookie", ""))
        client = cookies.get(self.client_cookie, "")
        new = re.fullmatch(r"[\w-]{22}", client) is None
        client = secrets.token_urlsafe(16) if new else client
        send = _with_headers(send, [_cookie(self.client_cookie, client)] if new else [])
        try:
            self._check_origin(scope, headers)
            most = self._most_bytes(scope, headers, cookies)
            with self._room(most, headers):
                body = await _body(scope, headers, receive, most)
                if await self._let_in(scope, headers, cookies, body, send):
                    return
                _check_path(scope["path"], body)
                scope["state"] = {**scope.get("state", {}), "client": client}
                await self.app(scope, _replay(body, receive), send)
        except Refused as refusal:
            await answer(
                send, refusal.status, {"error": str(refusal)}, drain=receive if refusal.status == 413 else None
            )

    def _check_origin(self, scope: Scope, headers: dict[str, str]) -> None:
        host = headers.get("host", "")
        name = _address(f"//{host}").hostname or ""
        if self.loopback and name not in LOOPBACK_HOSTS:
            raise Refused(403, f"this server answers to localhost alone, not to {name[:100]!r}")
        origin = headers.get("origin")
        if scope["method"] not in ("GET", "HEAD") and origin is not None and _address(origin).netloc != host:
            raise Refused(403, "requests from pages of other sites are not taken")

    def _most_bytes(self, scope: Scope, headers: dict[str, str], cookies: dict[str, str]) -> int:
        """Of the body; without the token nobody sends much."""
        takes_pictures = scope["path"].startswith(("/api/", "/studio/pictures")) and self._has_pass(headers, cookies)
        return self.most_bytes if takes_pictures else _SMALL_BODY

    @contextmanager
    def _room(self, most: int, headers: dict[str, str]) -> Iterator[None]:
        """So few large bodies at a time that together they do not fill the memory."""
        length = headers.get("content-length", str(most if "transfer-encoding" in headers else 0))
        large = not length.isdecimal() or int(length[:18]) > _SMALL_BODY
        if large and self._large >= _MOST_LARGE:
            raise Refused(503, f"busy: {self._large} large requests are being taken in; try again in a moment")
        self._large += large
        try:
            yield
        finally:
            self._large -= large

    async def _let_in(
        self, scope: Scope, headers: dict[str, str], cookies: dict[str, str], body: bytes, send: Send
    ) -> bool:
        """True if the request has been answered: with a pass, or with the form that asks for the token."""
        if self.token is None:
            return False
        if scope["path"] == LOGIN and scope["method"] == "POST":
            given = _field(body.decode("latin-1"), "token")
        else:
            given = _field(scope.get("query_string", b"").decode("latin-1"), "token") if scope["path"] == "/" else None
        if given is not None and same(given, self.token):
            # Sent away to an address without the token, which would stay in the browser's history.
            headers_out = [(b"location", b"/"), _cookie(self.pass_cookie, self._pass())]
            await answer(send, 303, "", headers_out)
            return True
        if self._has_pass(headers, cookies):
            return False
        if scope["path"] in ("/", LOGIN):
            await answer(send, 401, _FORM.format(again="That was not the token." if given is not None else ""))
            return True
        raise Refused(401, "bring the token as `Authorization: Bearer TOKEN`")

    def _has_pass(self, headers: dict[str, str], cookies: dict[str, str]) -> bool:
        if self.token is None:
            return True
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        by_header = scheme.lower() == "bearer" and same(bearer.strip(), self.token)
        return by_header or same(cookies.get(self.pass_cookie, ""), self._pass())

    def _pass(self) -> str:
        """What the cookie holds: made of the token, but not the token, and good until the server ends."""
        assert self.token is not None
        return hmac.new(self._secret, self.token.encode(), hashlib.sha256).hexdigest()


def same(given: str, right: str) -> bool:
    """Compared in a time that does not tell how much of it is right."""
    return hmac.compare_digest(given.encode(), right.encode())


async def answer(
    send: Send,
    status: int,
    content: str | dict[str, Any],
    headers: Iterable[tuple[bytes, bytes]] = (),
    *,
    drain: Receive | None = None,
) -> None:
    """A whole answer: JSON of a dict, HTML of a string. drain: take in what the client still sends before closing."""
    is_page = isinstance(content, str)
    body = content.encode() if is_page else json.dumps(content).encode()
    kind = b"text/html; charset=utf-8" if is_page else b"application/json"
    sized = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": [*sized, *headers]})
    await send({"type": "http.response.body", "body": body, "more_body": drain is not None})
    if drain is not None:
        await _drain(drain)
        await send({"type": "http.response.body", "body": b""})


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


async def _body(scope: Scope, headers: dict[str, str], receive: Receive, most: int) -> bytes:
    """The whole body, or a refusal before more of it than allowed is held."""
    if scope["method"] in ("GET", "HEAD"):
        return b""
    if scope["method"] != "POST":
        raise Refused(405, "only GET and POST are known here")
    too_much = Refused(413, f"the request is larger than {most} bytes, the most that is taken here")
    length = headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > 18 or int(length) > most:
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
    if not _OPEN.fullmatch(path) or ".." in path:
        raise Refused(404, "there is nothing here")
    if path.startswith("/gradio_api/queue/join"):
        _check_values(body)


def _check_values(body: bytes) -> None:
    """Values of the page are words, numbers and lists of them: never an object, which gradio could take for a file."""
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


def _cookies(header: str) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(header).items()}
    except CookieError:
        return {}


def _cookie(name: str, value: str) -> tuple[bytes, bytes]:
    return b"set-cookie", f"{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age=2592000".encode()


def _field(query: str, name: str) -> str | None:
    try:
        return next(iter(parse_qs(query, max_num_fields=10).get(name, [])), None)
    except ValueError:
        return None


def _with_headers(send: Send, more: list[tuple[bytes, bytes]]) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *_HEADERS, *more]
        await send(message)

    return sending


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body once more; after it, what the server says of the connection."""
    told = False

    async def receiving() -> MutableMapping[str, Any]:
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
