"""A studio as a user starts it: the command in a process of its own, on any free port; and requests to it."""

import contextlib
import http.client
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def running(model, *arguments, **variables):
    """The address of a studio, which ends afterwards. variables: of its environment."""
    with started(model, *arguments, **variables) as (address, _):
        yield address


@contextlib.contextmanager
def started(model, *arguments, **variables):
    """The address of a studio, and the id of its process."""
    if importlib.util.find_spec("uvicorn") is None:
        pytest.skip("uvicorn is not installed: pip install 'token-critic[studio]'")
    code = "from tokencritic.cli.main import run; run()"
    command = [sys.executable, "-c", code, "studio", model, "--port", "0", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"} | variables
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, process.communicate(timeout=60)[1]
        yield found[0], process.pid
        assert process.poll() is None, "the studio has ended by itself"
    finally:
        process.terminate()
        process.communicate(timeout=60)


def call(address, path, body=None, method=None, **headers):
    """(status, headers, body); a dict is sent as JSON."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=120)
    data = json.dumps(body) if isinstance(body, dict) else body
    connection.request(method or ("GET" if body is None else "POST"), path, data, headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content


def api(address, path, body=None, **headers):
    status, _, content = call(address, path, body, **headers)
    return status, json.loads(content)


def finished(address, run, **headers):
    """What the page is told of a run once it is finished."""
    told = {"version": "", "state": "waiting"}
    while told["state"] in ("waiting", "running"):
        told = api(address, f"/studio/runs/{run}?seen={quote(told['version'])}", **headers)[1]
    return told
