"""Requests to the studio: each is answered, none with a fault of the server, and the connection ends."""

import asyncio
import base64
import json

import pytest
from fuzz.mutation import VALUES, obey, run, spoil_bytes, spoil_json, spoil_png, spoil_text, spoil_value
from studio.toy import noise_picture, png_bytes, toy_pipe

from tokencritic.studio.api import Api
from tokencritic.studio.guard import Guard
from tokencritic.studio.limits import Limits
from tokencritic.studio.requests import Requests
from tokencritic.studio.service import Service
from tokencritic.studio.visits import Visits

LIMITS = Limits(images=4, steps=6, candidates=2, nfe=100, upload_pixels=2**16, wait_seconds=5.0)
PICTURE = png_bytes(noise_picture())
SETTINGS = {"sampler": "critic", "steps": 2, "temperature": [1.0, 0.5], "critic_window": [1, 0], "halton_roll": False}
BODIES = {
    "/api/generate": {"classes": ["cat", 1], "num": 2, "seed": 3} | SETTINGS,
    "/api/refine": {"class": "owl", "ratio": 0.5, "image": base64.b64encode(PICTURE).decode(), "steps": 2},
    "/api/edit": {
        "class": 0,
        "region": [0, 5],
        "move": [1, 0],
        "image": base64.b64encode(PICTURE).decode(),
        "steps": 2,
    },
}
VALUES_OF_KINDS = {
    "generate": BODIES["/api/generate"],
    "compare": {"classes": [], "num": 2, "seed": 0, "cost": 4, "samplers": ["critic", "confidence"]},
    "look": {"picture": "x", "class": 1},
    "refine": {"picture": "x", "class": "cat", "ratio": 0.3},
    "edit": {"picture": "x", "class": "cat", "region": [1], "move": [0, 0]},
}
PAGES = ("/", "/page/style.css", "/api/model", "/studio/login?token=x")
OWN = ("about", "runs", "runs/x", "runs/x/0/image_0.png", "pictures", "pictures/x.png", "samples/0.png")
PATHS = (*PAGES, *(f"/studio/{path}" for path in OWN))


@pytest.fixture(scope="module")
def service():
    service = Service(toy_pipe(), "MODEL", LIMITS)
    yield service
    service.close()


@pytest.fixture(scope="module")
def app(service):
    from starlette.routing import Router

    routes = [*Api(service).routes(), *Visits(service).routes()]
    return Guard(Router(routes), token=None, loopback=True, port=1, most_bytes=2**20)


async def _asked(app, method, path, headers, body):
    place, _, query = path.partition("?")
    scope = {"type": "http", "method": method, "path": place, "raw_path": place.encode("utf-8", "replace"), "root_path": "",
             "query_string": query.encode("utf-8", "replace"), "scheme": "http", "client": ("127.0.0.1", 1),
             "server": ("127.0.0.1", 1), "headers": headers}  # fmt: skip
    sent, waiting = [], [{"type": "http.request", "body": body}]

    async def receive():
        if waiting:
            return waiting.pop()
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    await asyncio.wait_for(app(scope, receive, send), 20)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def _ask(app, method, path, body, **headers):
    named = {"host": "127.0.0.1:1", "content-length": str(len(body))} | headers
    pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in named.items()]
    return asyncio.run(_asked(app, method, path, pairs, body))


def test_whole_requests_are_carried_out(app):
    for path, body in BODIES.items():
        status, content = _ask(app, "POST", path, json.dumps(body).encode())
        assert (status, content[:1]) == (200, b"{"), content


def test_the_api_answers_a_spoilt_body_with_words(app):
    """A status of 200, 400, or 503 for a busy server, and one line that says why."""

    def example(rng):
        path = rng.choice(list(BODIES))
        body = json.dumps(BODIES[path]).encode()
        if rng.random() < 0.2 and "image" in BODIES[path]:
            image = base64.b64encode(spoil_png(rng, PICTURE)).decode()
            body = json.dumps(BODIES[path] | {"image": image}).encode()
        elif rng.random() < 0.9:
            body = spoil_json(rng, body)
        status, content = _ask(app, "POST", path, body)
        assert status in (200, 400, 503), (status, content)
        told = json.loads(content)
        assert status == 200 or "\n" not in told["error"]
        assert status == 200 or "server's log" not in told["error"], told

    run("api", example)


def test_values_of_a_page_become_work_or_words(service):
    requests = Requests(service.pipe, LIMITS)

    def example(rng):
        kind = rng.choice(list(VALUES_OF_KINDS))
        values = spoil_value(rng, VALUES_OF_KINDS[kind])
        if not isinstance(values, dict):
            return
        values.pop("picture", None)
        make = getattr(requests, kind)
        given = (values,) if kind in ("generate", "compare") else (noise_picture(), values)
        obey(lambda: make(*given))

    run("values", example)


def test_requests_of_any_kind_are_answered(app):
    """Other paths, methods, headers and bodies: never a fault of the server."""

    def example(rng):
        path = rng.choice([*PATHS, *BODIES])
        path = spoil_text(rng, path) if rng.random() < 0.5 else path
        method = rng.choice(["GET", "POST", "POST", "HEAD", "PUT", "X"])
        kind = rng.choice(list(VALUES_OF_KINDS))
        whole = json.dumps({"kind": rng.choice([kind, *VALUES]) if rng.random() < 0.3 else kind,
                            "values": VALUES_OF_KINDS[kind]}, default=str)  # fmt: skip
        body = rng.choice([b"", spoil_json(rng, whole.encode()), spoil_bytes(rng, PICTURE)])
        names = ("cookie", "host", "origin", "authorization", "content-type", "content-length", "transfer-encoding")
        headers = {
            rng.choice(names): str(rng.choice([*VALUES, "127.0.0.1:1", "http://[", "studio_client_1=" + "a" * 22]))
        }
        if not headers.get("content-length", "0").isdecimal() or int(headers.get("content-length", "0")) > 2**30:
            headers = {}  # the server refuses what is no number
        if int(headers.get("content-length", "0")) > len(body):
            headers = {}  # the test would wait for the rest
        status, _ = _ask(app, method, path, body, **headers)
        assert 200 <= status < 500 or status == 503, status

    run("requests", example)
