"""The studio on a port: the page and the API behind the guard. Torch is imported where the model is loaded, not before."""

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
    """Whether an address to bind to can be reached from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_binding(host: str, port: int, token: str | None) -> None:
    """An address that others can reach needs a token."""
    if not 0 <= port <= 65535:
        raise InputError(f"--port is {port}; expected 0 to 65535, 0 for any that is free")
    if token is None and not is_loopback(host):
        raise InputError(f"--host is {host}, which others can reach; give a --token that they must bring")
    if token is not None and (len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise InputError(f"--token is too short or odd; expected at least {_SHORTEST_TOKEN} letters, digits or signs")


def serve(
    load: "Callable[[], TokenCriticPipeline]", model: str, limits: Limits, bound: socket.socket, token: str | None
) -> None:
    """Serve the page at once and the model as soon as `load` has it, until Ctrl-C. Raises what `load` raises.

    model: what the pipeline is loaded from, for command lines. bound: from `listen`.
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
        # A picture as base64 in a JSON takes a third more than its file.
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
    """A socket that listens, so that the port is known, and nobody is turned away, before the page is built."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise InputError(f"{host}:{port} cannot be listened on: {error.strerror or error}") from error
