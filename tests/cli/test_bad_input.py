"""Every command refuses bad input in one line that names it, with exit code 2, and leaves nothing behind.

The table is in `bad_input.py`, and the files that it names are made by `hostile_files.py`.
"""

import os
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.bad_input import CASES
from cli.hostile_files import make_files

from tokencritic.cli import arguments, main
from tokencritic.models import saved

COMMAND = Path(sys.executable).with_name("token-critic")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python", "--"]
SECONDS, GIGABYTE = 2, 2**20 if sys.platform == "linux" else 2**30  # ru_maxrss is in KiB on Linux, in bytes on macOS


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("hostile")
    make_files(place)
    for command in main.COMMANDS:
        main.load_command(command)
    return place


@pytest.fixture
def here(place, monkeypatch):
    """The folder of hostile files is the current one, and there is no network. The device is not named yet."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("TOKENCRITIC_CACHE", str(place.parent / "cache"))
    monkeypatch.setattr(arguments, "_SAID", set())
    monkeypatch.setattr(saved, "get_hf_file_metadata", _no_answer)
    return place


def _no_answer(*_, **__):
    raise ConnectionError("no route")


def files_in(place):
    """The files and folders at any depth, with the time of the last change of each file."""
    found, folders = {}, [place]
    while folders:
        for entry in os.scandir(folders.pop()):
            if entry.is_dir(follow_symlinks=False):
                found[entry.path] = None  # its time changes with a lock that comes and goes
                folders.append(entry.path)
            else:
                found[entry.path] = entry.stat(follow_symlinks=False).st_mtime_ns
    return found


def peak_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / GIGABYTE


ROWS = [
    pytest.param(command, line, message, id=f"{command} {line:.60}")
    for command, cases in CASES.items()
    for line, message in cases.items()
]


@pytest.mark.parametrize(("command", "line", "message"), ROWS)
def test_bad_input_is_one_line_and_leaves_nothing(here, monkeypatch, capsys, command, line, message):
    words = shlex.split(line)
    while words and words[0].partition("=")[0].isupper():  # variables of the environment come first, as in a shell
        name, _, value = words.pop(0).partition("=")
        monkeypatch.setenv(name, value)
    before, memory, start = files_in(here), peak_memory(), time.process_time()
    code = main.main([command, *words])
    seconds, memory = time.process_time() - start, peak_memory() - memory
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.startswith(f"token-critic {command}: ")
    assert err.endswith("\n")
    assert err[:-1].isprintable()
    assert message in err
    assert len(err) < 1000
    assert files_in(here) == before
    assert seconds < SECONDS
    assert memory < 1


def test_the_table_covers_every_command():
    assert CASES.keys() == main.COMMANDS.keys()
    assert sum(map(len, CASES.values())) >= 150


def test_a_process_ends_with_the_same_line(place):
    before = files_in(place)
    command = [COMMAND, "sample", "nan", "--out", "out"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "generator/model.safetensors: bias holds NaN or infinity" in done.stderr
    assert files_in(place) == before


def test_one_rank_tells_of_an_error_that_all_have(place):
    command = [*TORCHRUN, str(COMMAND), "sample", "empty", "--out", "out"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode != 0
    assert done.stderr.count("token-critic sample: empty has no pipeline.json") == 1, done.stderr


def test_an_error_of_one_rank_alone_is_not_lost(here, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "29500")
    waited = []
    monkeypatch.setattr(main.time, "sleep", waited.append)
    assert main.main(["sample", "model", "--steps", "0"]) == 2
    assert "steps is 0" in capsys.readouterr().err
    assert len(waited) == 1


@pytest.mark.parametrize("model", ["single", "plain"])
def test_models_of_one_class_or_none_need_no_classes(here, tmp_path, model):
    assert main.main(["refine", model, "photo.png", "--out", str(tmp_path / "refined")]) == 0
    assert main.main(["edit", model, "photo.png", "--region", "0,0,4,4", "--out", str(tmp_path / "edited")]) == 0
    assert main.main(["sample", model, "--num", "2", "--out", str(tmp_path / "samples")]) == 0
