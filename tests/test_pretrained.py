"""The bundled models as a new user has them: by name, without network access or data sets."""

import json
import os
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tokencritic
from tokencritic import TokenCriticPipeline
from tokencritic.cli.main import main
from tokencritic.data.tokens import TokenArrays
from tokencritic.pretrained import names, place_of

NAMES = ["fashion-mnist"]
FOLDER = Path(tokencritic.__file__).parent / "pretrained"


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """An empty folder and cache, without network access."""

    def refuse(*_):
        raise AssertionError("something asks the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("TOKENCRITIC_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments):
    assert main([str(part) for part in arguments]) == 0


def test_names_are_known_and_mean_the_same_everywhere(alone):
    assert names() == NAMES
    (alone / "fashion-mnist").mkdir()
    assert place_of("fashion-mnist") == FOLDER / "fashion-mnist"
    assert place_of("./fashion-mnist") == "./fashion-mnist"
    assert place_of("no-such-model") == "no-such-model"
    assert place_of("..") == ".."


def test_all_embedded_files_stay_small():
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) < 25e6


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_whole(name):
    pipe = TokenCriticPipeline.from_pretrained(name)
    assert list(pipe.parts) == ["tokenizer", "generator", "critic", "inline_critic", "classifier"]
    arrays = TokenArrays.open(name, pipe.tokenizer.fingerprint())
    assert arrays.class_names == pipe.class_names
    assert {path.name for path in (FOLDER / name).iterdir()} >= {"README.md", "tokens.npz", "reference.npz"}


@pytest.mark.parametrize("name", NAMES)
def test_what_tuning_found_is_for_these_very_weights(name):
    pipe = TokenCriticPipeline.from_pretrained(name)
    own = {part: pipe.parts[part].fingerprint() for part in ("tokenizer", "generator", "critic", "inline_critic")}
    for file in (FOLDER / name).glob("tuning-*.json"):
        sampler, nfe = file.stem.removeprefix("tuning-").rsplit("-", 1)
        found = pipe.sampling.tuned(sampler, int(nfe))
        assert found.nfe == int(nfe)
        assert found.settings.sampler == sampler
        assert found.settings.nfe(pipe.tokenizer.num_tokens) <= int(nfe)
        assert found.models.items() <= own.items(), file.name
    assert pipe.defaults == pipe.sampling.tuned("inline", 8).settings


def test_every_command_works_offline(alone):
    few = ("--num", 130, "--steps", 4, "--metrics", "fid,accuracy", "--resamples", 0)
    call("sample", "fashion-mnist", "--num", 2, "--steps", 4, "--out", "samples")
    call("refine", "fashion-mnist", "samples/000000_class0.png", "--steps", 2, "--out", "refined")
    call("edit", "fashion-mnist", "samples/000000_class0.png", "--region", "0,0,14,14", "--steps", 4, "--num", 1)
    call("evaluate", "fashion-mnist", *few, "--out", "found.json")
    call("sweep", "fashion-mnist", "--num", 130, "--steps", 4, "--metrics", "fid", "--resamples", 0, "--out", "sweep")
    run = ("--generator", "fashion-mnist", "--run", "run", "--steps", 2, "--training.batch_size", 4)
    call("train", "critic", "fashion-mnist", *run)
    found = json.loads((alone / "found.json").read_text())["results"]["value"]
    assert found["metrics"]["accuracy"]["value"] > 0.3
    assert (alone / "run/critic/model.safetensors").is_file()


def test_the_wheel_brings_them(tmp_path):
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=root, check=True, capture_output=True, env=os.environ)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    files = {file.relative_to(FOLDER.parents[0]) for file in (FOLDER / "fashion-mnist").rglob("*") if file.is_file()}
    assert {f"tokencritic/{file.as_posix()}" for file in files} <= inside
