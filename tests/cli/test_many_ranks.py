"""Commands under torchrun: two real processes write what one writes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokencritic.cli.main import main

SPREAD = """
from tokencritic.distribution import joined
from tokencritic.errors import InputError

def work(number):
    if number == 3:
        raise InputError("number is 3")
    return number, ranks.rank

with joined() as ranks:
    found = ranks.spread(3, work)
    try:
        ranks.spread(4, work)
    except InputError as error:
        print(f"{found} {error}\\n", end="", flush=True)
"""
COMMAND = Path(sys.executable).with_name("token-critic")
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python", "--"]


@pytest.mark.parametrize("form", ["png", "npz"])
def test_two_ranks_sample_the_files_of_one(model, tmp_path, form, capsys):
    flags = ["--num", "7", "--seed", "3", "--steps", "4", "--batch_size", "2", "--format", form, "--device", "cpu"]
    assert main(["sample", str(model), *flags, "--out", str(tmp_path / "one")]) == 0
    said = capsys.readouterr().out.split(" in ")[0]
    command = [*LAUNCH, str(COMMAND), "sample", str(model), *flags, "--out", str(tmp_path / "two")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(" in ")[0] == said.replace("one", "two")  # one rank speaks
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert len(one) == (8 if form == "png" else 1)
    assert one == two


def test_work_is_spread_over_the_ranks_and_an_error_reaches_all():
    command = [*LAUNCH, sys.executable, "-c", SPREAD]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == 2 * ["[(0, 0), (1, 1), (2, 0)] number is 3"]
