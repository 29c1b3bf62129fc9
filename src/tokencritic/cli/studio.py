"""`token-critic studio`: a page in the browser to generate, compare, refine and edit."""

import os
import webbrowser

from tokencritic.cli.arguments import check_device, make_parser, parse

_MODEL = "fashion-mnist"
_TOKEN = "TOKENCRITIC_STUDIO_TOKEN"


def main(arguments: list[str]) -> None:
    parser = make_parser(
        "studio", "Open a page to generate, compare, refine and edit images. It is served from here alone."
    )
    parser.add_argument("model", nargs="?", default=_MODEL, help=f"a model folder or Hub id; {_MODEL} if not given")
    parser.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on; others than this machine's need --token"
    )
    parser.add_argument("--port", type=int, default=7860, help="0 takes any that is free")
    parser.add_argument("--token", help=f"what visitors must bring; also read from {_TOKEN}, where no one sees it")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("--most_images", type=int, default=64, help="of one run")
    parser.add_argument(
        "--most_waiting", type=int, default=8, help="runs that wait for their turn; more are told to come later"
    )
    parser.add_argument("--wait_seconds", type=float, default=60.0, help="how long a run waits before it is given up")
    parser.add_argument("--device", default="cpu")
    given = parse(parser, arguments)

    from tokencritic.studio.requests import Limits
    from tokencritic.studio.server import address_of, check_binding, is_loopback, listen, serving, warn_of_others
    from tokencritic.studio.service import Service

    token = given.token or os.environ.get(_TOKEN) or None
    check_binding(given.host, given.port, token)
    limits = Limits(images=given.most_images, waiting=given.most_waiting, wait_seconds=given.wait_seconds)

    from tokencritic.pipeline import TokenCriticPipeline

    pipe = TokenCriticPipeline.from_pretrained(given.model).to(check_device(given.device))
    bound = listen(given.host, given.port)
    with serving(Service(pipe, given.model, limits), bound, given.host, token) as server:
        if not is_loopback(given.host):
            warn_of_others(given.host)
        address = address_of(given.host, bound.getsockname()[1])
        print(f"the studio is at {address}\nCtrl-C ends it", flush=True)
        if given.open:
            webbrowser.open(address)
        server.run(sockets=[bound])
