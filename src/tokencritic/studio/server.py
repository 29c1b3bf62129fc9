"""The server of the page and the API, behind the guard. Imports torch only when it loads the model."""

import ipaddress
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tokencritic.errors import InputError
from tokencritic.studio.limits import Limits

if TYPE_CHECKING:
    from tokencritic.pipeline import TokenCriticPipeline

_SHORTEST_TOKEN = 8


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a server that is bound to the host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_binding(host: str, port: int, token: str | None) -> None:
    """Raise InputError for an invalid port or token, or if other machines can reach the host and there is no token."""
    if not 0 <= port <= 65535:
        raise InputError(f"--port is {port}; expected 0 to 65535, 0 for any that is free")
    if token is None and not is_loopback(host):
        raise InputError(f"--host is {host}, which others can reach; give a --token that they must bring")
    if token is not None and (len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise InputError(f"--token is too short or odd; expected at least {_SHORTEST_TOKEN} letters, digits or signs")


def serve(
    load: "Callable[[], TokenCriticPipeline]", model: str, limits: Limits, bound: socket.socket, token: str | None
) -> None:
    """Serve the page at once, and the model after `load` returns, until Ctrl-C. Raises what `load` raises.

    model: the name or folder of the model, for command lines.
    bound: the socket from `listen`.
    token: as in `Guard`.
    """
    try:
        import uvicorn
        from starlette.routing import Router
    except ImportError as error:
        raise InputError("the studio needs starlette and uvicorn: pip install 'token-critic[studio]'") from error

    from tokencritic.studio.guard import Guard
    from tokencritic.studio.page import Opening

    host, port = bound.getsockname()[:2]
    with ExitStack() as closing:

        def make() -> Router:
            from tokencritic.studio.api import Api
            from tokencritic.studio.service import Service
            from tokencritic.studio.visits import Visits

            service = Service(load(), model, limits)
            closing.callback(service.close)
            print("the model is loaded; preparing the page", flush=True)
            routes = [*Api(service).routes(), *Visits(service).routes()]
            print("the page is ready", flush=True)
            return Router(routes)

        opening = Opening()
        # Base64 is a third larger than the file of the picture.
        most_bytes = limits.upload_bytes * 4 // 3 + 2**16
        guard = Guard(opening, token=token, loopback=is_loopback(host), port=port, most_bytes=most_bytes)
        server = uvicorn.Server(
            uvicorn.Config(
                guard,
                log_level="warning",
                ws="none",
                lifespan="off",
                server_header=False,
                limit_concurrency=512,
                timeout_graceful_shutdown=2,
                timeout_keep_alive=20,
            )
        )
        opening.start(make, failed=lambda: setattr(server, "should_exit", True))
        server.run(sockets=[bound])
        if opening.rest.done():
            opening.rest.result()


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, or raise InputError.

    Call it before the page is built. The port is then known, and early connections wait.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise InputError(f"{host}:{port} cannot be listened on: {error.strerror or error}") from error
