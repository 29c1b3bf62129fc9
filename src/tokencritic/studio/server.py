"""The studio on a port: the page and the API behind the guard."""

import ipaddress
import os
import socket
from typing import TYPE_CHECKING, Any

from tokencritic.errors import InputError
from tokencritic.studio.service import Service

if TYPE_CHECKING:
    import uvicorn

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


def build_server(service: Service, host: str, port: int, token: str | None) -> "uvicorn.Server":
    """The page and the API behind the guard, ready to `run`."""
    # Before gradio is imported: it reads them then. Nothing is to be told, looked up or fetched anywhere.
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    try:
        import gradio as gr
        import uvicorn
        from fastapi import FastAPI
    except ImportError as error:
        raise InputError("the studio needs gradio: pip install 'token-critic[studio]'") from error

    from tokencritic.studio.api import Api
    from tokencritic.studio.guard import Guard
    from tokencritic.studio.page import CSS, HEAD, THEME, Page

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.router.routes.extend(Api(service).routes())
    look: dict[str, Any] = {"theme": THEME, "css": CSS, "head": HEAD, "footer_links": []}
    private: dict[str, Any] = {"run_history": False, "show_error": False, "ssr_mode": False, "allowed_paths": []}
    private |= {"max_file_size": 1, "enable_monitoring": False, "pwa": False, "mcp_server": False}
    mounted = gr.mount_gradio_app(app, Page(service).blocks, "/", host, port, **look, **private)
    # A picture as base64 in a JSON takes a third more than its file.
    most_bytes = service.limits.upload_bytes * 4 // 3 + 2**16
    guard = Guard(mounted, token=token, loopback=is_loopback(host), port=port, most_bytes=most_bytes)
    bounds: dict[str, Any] = {"limit_concurrency": 512, "timeout_graceful_shutdown": 2, "timeout_keep_alive": 20}
    return uvicorn.Server(uvicorn.Config(guard, log_level="warning", ws="none", server_header=False, **bounds))


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, so that the port is known, and nobody is turned away, before the page is built."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise InputError(f"{host}:{port} cannot be listened on: {error.strerror or error}") from error
