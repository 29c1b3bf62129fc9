"""`token-critic studio`: what it refuses before it serves anything. The page itself is tested in `tests/studio`."""

import socket
import sys

import pytest
from studio.toy import toy_pipe

from tokencritic.cli.studio import main
from tokencritic.errors import InputError


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studio") / "model"
    toy_pipe().save_pretrained(folder)
    return str(folder)


@pytest.fixture(autouse=True)
def _no_token_around(monkeypatch):
    monkeypatch.delenv("TOKENCRITIC_STUDIO_TOKEN", raising=False)


CASES = {
    ("--host", "0.0.0.0"): "--host is 0.0.0.0, which others can reach; give a --token",
    ("--host", "0.0.0.0", "--token", "short"): "--token is too short or odd",
    ("--port", "70000"): "--port is 70000; expected 0 to 65535",
    ("--most_waiting", "0"): "--most_waiting is 0; it must be at least 1",
    ("--most_images", "-3"): "--most_images is -3; it must be at least 1",
    ("--wait_seconds", "-1"): "--wait_seconds is -1.0; it must be a number above 0",
    ("--device", "nowhere"): "--device is 'nowhere'; choose auto, cpu, cuda, cuda:N or mps",
    ("--host", "not a host"): "--host is not a host, which others can reach",
}


@pytest.mark.parametrize("arguments", CASES)
def test_what_cannot_be_is_said_in_one_line(model, arguments):
    with pytest.raises(InputError) as error:
        main([model, "--port", "0", *arguments])
    assert CASES[arguments] in str(error.value)
    assert "\n" not in str(error.value)


def test_a_token_may_come_from_the_environment(model, monkeypatch):
    monkeypatch.setenv("TOKENCRITIC_STUDIO_TOKEN", "short")
    with pytest.raises(InputError, match="--token is too short or odd"):
        main([model, "--host", "0.0.0.0"])


def test_a_port_that_is_taken_is_named(model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"127.0.0.1:{port} cannot be listened on: .*in use"):
            main([model, "--port", str(port)])


def test_without_its_server_it_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(InputError, match=r"needs starlette and uvicorn: pip install 'token-critic\[studio\]'"):
        main([model, "--port", "0"])


def test_a_model_that_is_not_there_ends_the_studio(tmp_path):
    with pytest.raises(InputError, match="nothing is neither a folder, nor a bundled model"):
        main([str(tmp_path / "nothing"), "--port", "0"])
