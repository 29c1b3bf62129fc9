"""What commands print: terminal codes are escaped, the environment is checked, a full disk is named."""

import io
import resource

import numpy as np
import pytest
from PIL import Image

from tokencritic.cli.main import main
from tokencritic.cli.terminal import Escaped
from tokencritic.evaluation.report import table

CODE = "\x1b[31m"


def test_a_stream_shows_terminal_codes_and_strange_letters_escaped():
    stream = io.TextIOWrapper(io.BytesIO(), "latin-1")
    Escaped(stream, "\r").write(f"1\t±\n\r{CODE}\x07\udcff€\u202e")
    stream.flush()
    assert stream.buffer.getvalue().decode("latin-1") == "1\t±\n\r\\x1b[31m\\x07\\udcff\\u20ac\\u202e"


def test_a_table_keeps_its_lines_whatever_a_class_is_called():
    assert table(["class", "a"], [[f"cat\n{CODE}", 1.0]]).splitlines()[2:] == [r"| cat\n\x1b[31m | 1.000 |"]


def test_names_of_folders_and_files_are_escaped(model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["sample", str(model), "--num", "1", "--steps", "1", "--out", f"out{CODE}"]) == 0
    assert r"out\x1b[31m" in capsys.readouterr().out
    (tmp_path / "images").mkdir()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "images/a.png")
    (tmp_path / f"images/{CODE}\n.png").write_bytes(b"")
    assert main(["tokenize", str(model), "images", "--out", f"tokens{CODE}"]) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert r"skipped \x1b[31m\n.png: cannot identify image file" in out


ENVIRONMENTS = {
    "RANK=first": "RANK is 'first' in the environment",
    "RANK=1": "RANK is '1' in the environment",
    "WORLD_SIZE=0": "WORLD_SIZE is '0' in the environment",
    "RANK=0 WORLD_SIZE=2": "WORLD_SIZE is 2 in the environment without MASTER_ADDR",
}


@pytest.mark.parametrize("variables", ENVIRONMENTS)
def test_the_environment_of_torchrun_is_checked(model, tmp_path, monkeypatch, capsys, variables):
    for word in variables.split():
        monkeypatch.setenv(*word.split("="))
    assert main(["sample", str(model), "--out", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"token-critic sample: {ENVIRONMENTS[variables]}")
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.fixture
def small_disk():
    """Every file ends at 300 bytes, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A picture, and an .npz of images."""
    place = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    np.savez(place / "images.npz", images=rng.integers(0, 256, (40, 8, 8), np.uint8), labels=np.arange(40) % 3)
    Image.fromarray(rng.integers(0, 256, (8, 8), np.uint8)).save(place / "a.png")
    return place


TRAIN = "train generator fashion-mnist --data fashion-mnist --run {out} --steps 2 --device cpu --model.width 16"
COMMANDS = {
    "sample": ("sample {model} --num 1 --out {out}", "000000_class0.png"),
    "npz": ("sample {model} --num 1 --format npz --out {out}", "samples.npz"),
    "refine": ("refine {model} {files}/a.png --classes cat --out {out}", ".png"),
    "tokenize": ("tokenize {model} {files}/images.npz --out {out}", ".chunks/settings.json"),
    "train": (f"{TRAIN} --model.layers 1 --model.heads 2 --model.mlp_width 16", "run.json"),
    "demo": ("demo {model} --rows 1 --num 3 --out {out}", "samples.png"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_one_line_that_names_the_file(name, model, files, tmp_path, capsys, small_disk):
    command, file = COMMANDS[name]
    out = tmp_path / "out"
    assert main(command.format(model=model, files=files, out=out).split()) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith(f"token-critic {command.split()[0]}: {out}")
    assert file in lines[-1]
    assert "File too large" in lines[-1]
    assert [path for path in out.rglob("*") if path.suffix == ".tmp"] == []
