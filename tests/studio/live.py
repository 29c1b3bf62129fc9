"""A studio as a user starts it: the command in a process of its own, on any free port."""

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

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
