"""The studio on a real port: the API, and what the page is told."""

import base64
import concurrent.futures
import io
import json
import shlex
import socket
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from studio.live import api, call, finished, running
from studio.toy import bomb, noise_picture, png_bytes, toy_pipe

from tokencritic import TokenCriticPipeline
from tokencritic.sampling.settings import SamplingSettings


def as_base64(data):
    return base64.b64encode(data).decode()


def pixels(text):
    with Image.open(io.BytesIO(base64.b64decode(text))) as image:
        assert image.format == "PNG"
        return np.asarray(image)


@pytest.fixture(scope="module")
def pipe(model):
    return TokenCriticPipeline.from_pretrained(model)


def test_the_model_tells_what_it_is(studio, model):
    status, told = api(studio, "/api/model")
    assert status == 200
    assert told["model"] == model
    assert told["classes"] == ["cat", "big dog", "owl"]
    assert (told["image_size"], told["grid"]) == (10, [4, 4])
    assert told["defaults"]["steps"] == 4
    assert told["limits"]["waiting"] == 8


def samplers_of(address):
    """The settings that the page shows of each sampler."""
    return {one["name"]: one["settings"] for one in api(address, "/studio/about")[1]["samplers"]}


def test_the_page_shows_the_settings_that_model_and_sampler_have(studio, tmp_path):
    found = samplers_of(studio)
    assert "inline" not in found
    common = {"steps", "schedule", "temperature", "candidates", "reject_by"}
    assert found["critic"].keys() == common | {"selection_noise", "noise_kind", "critic_window", "early_noise"}
    assert found["confidence"].keys() == common | {"selection_noise"}
    pipe = toy_pipe(inline_critic=True)
    pipe.defaults = SamplingSettings(sampler="inline", steps=4)
    pipe.save_pretrained(tmp_path / "model")
    with running(str(tmp_path / "model")) as address:
        shown = {"selection_noise", "critic_window", "remask_quota", "remask_noise"}
        assert samplers_of(address)["inline"].keys() == common | shown
        assert api(address, "/studio/about")[1]["first"]["sampler"] == "inline"


def test_generating_over_http_gives_the_pipelines_images(studio, pipe, model):
    status, told = api(studio, "/api/generate", {"classes": ["owl", 0], "num": 3, "seed": 5, "temperature": [1, 0.5]})
    assert status == 200, told
    expected = pipe([2, 0, 2], seed=5, temperature=(1.0, 0.5))
    for text, image in zip(told["images"], expected, strict=True):
        assert np.array_equal(pixels(text), np.asarray(image))
    assert told["classes"] == ["owl", "cat", "owl"]
    assert told["seeds"] == [5, 6, 7]
    assert told["settings"]["temperature"] == [1.0, 0.5]
    assert np.asarray(told["scores"]).shape == (3, 16)
    assert shlex.split(told["command"])[:3] == ["token-critic", "sample", model]


def test_refining_and_editing_over_http(studio, pipe):
    picture = noise_picture()
    given = {"image": as_base64(png_bytes(picture)), "class": "cat", "seed": 2}
    status, told = api(studio, "/api/refine", given | {"ratio": 0.5})
    assert status == 200, told
    assert np.array_equal(pixels(told["images"][0]), np.asarray(pipe.refine(picture, 0, ratio=0.5, seed=2)[0]))
    assert np.array_equal(pixels(told["before"]), np.asarray(pipe.images(pipe.encode(picture))[0]))
    assert len(told["before_scores"]) == 16
    status, told = api(studio, "/api/edit", given | {"region": [0, 5], "move": [0, 1]})
    assert status == 200, told
    assert told["region"] == [0, 1, 2, 3, 4, 5, 6, 7]


BAD = [
    (
        "/api/generate",
        {"classes": ["bird"]},
        "classes holds 'bird'; the model's class names are cat, big dog, owl",
    ),
    ("/api/generate", {"num": 10000}, "num is 10000; expected a whole number from 1 to 64"),
    ("/api/generate", {"steps": -1}, "steps is -1; expected a whole number from 1 to 128"),
    ("/api/generate", {"seed": 2**64}, f"seed is {2**64}; expected a whole number from 0 to"),
    ("/api/generate", {"image": "x"}, "'image' is not known"),
    ("/api/generate", "not json", "the body is not JSON"),
    ("/api/generate", "[" * 100000, "the body is not JSON"),
    ("/api/generate", "9" * 5000, "the body is not JSON"),
    ("/api/generate", "[1]", "the body is a list; expected an object"),
    ("/api/refine", {"class": 0}, "image is missing"),
    ("/api/refine", {"image": "%%%"}, "image is missing or not base64"),
    ("/api/refine", {"image": "/etc/passwd"}, "image is missing or not base64"),
    ("/api/refine", {"image": as_base64(b"a text file")}, "the picture is not a readable image"),
    ("/api/refine", {"image": as_base64(bomb())}, "the picture is too large"),
    ("/api/refine", {"image": as_base64(png_bytes(noise_picture())), "ratio": 0}, "ratio is 0; expected a number"),
    ("/api/edit", {"image": as_base64(png_bytes(noise_picture()))}, "region is empty"),
]

BAD_VISITS = [
    ("/studio/pictures?name=x.png", "a text", "the picture is not a readable image"),
    ("/studio/runs", "not json", "the body is not JSON"),
    ("/studio/runs", {"kind": "generate"}, "values is missing"),
    ("/studio/runs", {"kind": "explode", "values": {}}, "kind is 'explode'; expected generate, compare, look"),
    ("/studio/runs", {"kind": ["generate"], "values": {}}, "kind is "),
    ("/studio/runs", {"kind": "generate", "values": {"num": 10**6}}, "num is 1000000; expected a whole number"),
    ("/studio/runs", {"kind": "edit", "values": {"picture": "nobody's"}}, "this picture has expired"),
    ("/studio/runs", {"kind": "refine", "values": {"picture": {"path": "/etc/passwd"}}}, "this picture has expired"),
    ("/studio/pictures/nobody/invert", {}, "this picture has expired"),
]


def test_what_is_wrong_is_said_and_the_studio_goes_on(studio):
    for path, body, message in BAD:
        status, told = api(studio, path, body)
        assert status == 400, (path, told)
        assert message in told["error"]
    for path, body, message in BAD_VISITS:  # a mistake of the user is no error in the page's console
        status, told = api(studio, path, body)
        assert status == 200, (path, told)
        assert message in told["error"]
    assert api(studio, "/studio/runs/unknown")[1]["expired"] is True
    assert api(studio, "/api/model")[0] == 200


def test_strange_pictures_are_handled(studio):
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "green")]
    kinds = [
        png_bytes(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        png_bytes(Image.new("RGBA", (9, 30), (1, 2, 3, 100))),
        png_bytes(Image.new("CMYK", (30, 9)), "JPEG"),
    ]
    for data in kinds:
        status, told = api(studio, "/api/refine", {"image": as_base64(data), "steps": 2})
        assert status == 200, told
        assert pixels(told["images"][0]).shape[:2] == (10, 10)


def test_runs_and_pictures_are_shown_to_their_visitor_alone(studio):
    mine, yours = (call(studio, "/")[1]["set-cookie"].split(";")[0] for _ in range(2))
    status, told = api(studio, "/studio/pictures?name=../../x", png_bytes(noise_picture()), Cookie=mine)
    assert (status, len(told["id"])) == (200, 22)
    assert call(studio, f"/studio/pictures/{told['id']}.png", Cookie=mine)[0] == 200
    assert call(studio, f"/studio/pictures/{told['id']}.png", Cookie=yours)[0] == 410
    run = api(studio, "/studio/runs", {"kind": "generate", "values": {"num": 2}}, Cookie=mine)[1]["id"]
    told = finished(studio, run, Cookie=mine)
    assert (told["state"], len(told["sets"][0]["names"])) == ("done", 2)
    for name in ("image_1.png", "steps_1.png", "images.png", "gif.gif"):
        assert call(studio, f"/studio/runs/{run}/0/{name}", Cookie=mine)[0] == 200
        assert call(studio, f"/studio/runs/{run}/0/{name}", Cookie=yours)[0] == 410
    for name in ("image_9.png", "steps_9.png", "nothing.png"):
        assert call(studio, f"/studio/runs/{run}/0/{name}", Cookie=mine)[0] == 404
    assert api(studio, f"/studio/runs/{run}", Cookie=yours)[1]["expired"] is True
    assert [one["id"] for one in api(studio, "/studio/runs", Cookie=mine)[1]["runs"] if one["own"]] == [run]
    assert not any(one["own"] for one in api(studio, "/studio/runs", Cookie=yours)[1]["runs"])


def test_calls_of_the_api_push_out_no_visitors_run(studio):
    mine = call(studio, "/")[1]["set-cookie"].split(";")[0]
    run = api(studio, "/studio/runs", {"kind": "generate", "values": {"num": 1}}, Cookie=mine)[1]["id"]
    finished(studio, run, Cookie=mine)
    for seed in range(30):
        assert api(studio, "/api/generate", {"num": 1, "seed": seed})[0] == 200
    assert call(studio, f"/studio/runs/{run}/0/image_0.png", Cookie=mine)[0] == 200


def test_the_page_opens_with_images_of_everyone(studio):
    first = api(studio, "/studio/runs")[1]["runs"][0]
    assert (first["kind"], first["own"]) == ("generate", False)
    assert call(studio, f"/studio/runs/{first['id']}/0/image_0.png")[0] == 200


def test_fifty_at_once_are_answered_or_told_busy(studio):
    body = {"num": 64, "steps": 32}
    with concurrent.futures.ThreadPoolExecutor(50) as many:
        answers = list(many.map(lambda seed: api(studio, "/api/generate", body | {"seed": seed}), range(50)))
    statuses = [status for status, _ in answers]
    assert set(statuses) <= {200, 503}
    assert 1 <= statuses.count(200) < 50
    assert all("busy" in told["error"] for status, told in answers if status == 503)
    assert api(studio, "/api/generate", {"num": 1})[0] == 200


def test_a_client_that_goes_away_takes_its_run_along(studio):
    place = urlsplit(studio)
    body = json.dumps({"num": 64, "steps": 128}).encode()  # long
    head = f"POST /api/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection((place.hostname, place.port), timeout=60) as connection:
        connection.sendall(head + body)
    assert api(studio, "/api/generate", {"num": 1})[0] == 200
