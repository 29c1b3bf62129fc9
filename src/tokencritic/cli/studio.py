"""`token-critic studio`: a page in the browser to generate, compare, refine and edit."""

import math
import os
import re
import sys
import webbrowser
from typing import TYPE_CHECKING

from tokencritic.cli.arguments import MODEL_HELP, add_device, check_positive, load_model, make_parser, parse, say_device
from tokencritic.cli.factories import is_factory
from tokencritic.errors import InputError
from tokencritic.pretrained import check_model

if TYPE_CHECKING:
    from tokencritic.pipeline import TokenCriticPipeline

_DEVICES = r"auto|cpu|mps|cuda(:\d+)?"
_TOKEN = "TOKENCRITIC_STUDIO_TOKEN"


def main(arguments: list[str]) -> None:
    parser = make_parser(
        "studio",
        "Serve a web page that generates, compares, refines and edits images. It loads nothing from the network.",
    )
    # Without --critic, which the commands that the page shows would not have.
    parser.add_argument("model", nargs="?", default="fashion-mnist", help=MODEL_HELP)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; any but a loopback address needs --token"
    )
    parser.add_argument("--port", type=int, default=7860, help="port to listen on; 0 for any free port")
    text = f"token that visitors must give; the environment variable {_TOKEN} keeps it out of the process list"
    parser.add_argument("--token", help=text)
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("--most_images", type=int, default=64, help="maximum number of images per run")
    parser.add_argument(
        "--most_waiting", type=int, default=8, help="maximum number of waiting runs; further ones are refused"
    )
    parser.add_argument(
        "--wait_seconds", type=float, default=60.0, help="seconds a run may wait before it is cancelled"
    )
    add_device(parser)
    given = parse(parser, arguments)
    check_positive(given, "most_images", "most_waiting")
    if not 0 < given.wait_seconds < math.inf:
        raise InputError(f"--wait_seconds is {given.wait_seconds}; it must be a number above 0")
    if not re.fullmatch(_DEVICES, given.device):
        raise InputError(f"--device is {given.device!r}; choose auto, cpu, cuda, cuda:N or mps")
    if not is_factory(given.model):
        check_model(given.model)  # the rest of the model is read while the page is already open

    from tokencritic.studio.limits import Limits
    from tokencritic.studio.server import check_binding, is_loopback, listen, serve

    token = given.token or os.environ.get(_TOKEN) or None
    check_binding(given.host, given.port, token)
    limits = Limits(images=given.most_images, waiting=given.most_waiting, wait_seconds=given.wait_seconds)
    with listen(given.host, given.port) as bound:
        if not is_loopback(given.host):
            text = "The token is sent unencrypted; use a proxy with TLS."
            print(f"warning: other machines can reach {given.host}. {text}", file=sys.stderr)
        shown = f"[{given.host}]" if ":" in given.host else given.host
        address = f"http://{'127.0.0.1' if given.host == '0.0.0.0' else shown}:{bound.getsockname()[1]}/"
        print(f"the studio is at {address}\nCtrl-C stops it; loading the model", flush=True)
        if given.open:
            webbrowser.open(address)

        def load() -> "TokenCriticPipeline":
            pipe = load_model(given)
            say_device(given)
            return pipe

        serve(load, given.model, limits, bound, token)
