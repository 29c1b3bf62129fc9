"""Weights in the forms in which others publish them: the same tensors by the same names, and nothing in a file is run."""

import os
import pickle
from pathlib import Path

import pytest
import safetensors.torch
import torch

from tokencritic.errors import InputError
from tokencritic.foreign_weights import read_tensors

TENSORS = {
    "head.weight": torch.arange(6.0).view(2, 3),
    "head.bias": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "steps": torch.tensor(7),
}


def check(file: Path) -> None:
    found = read_tensors(file, "a model")
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].equal(tensor)


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
@pytest.mark.parametrize("wrapper", [None, "state_dict", "model_state_dict", "model"])
def test_wrappers_and_prefixes_of_training_are_taken_off(tmp_path: Path, wrapper: str | None, prefix: str) -> None:
    named = {f"{prefix}{name}": tensor for name, tensor in TENSORS.items()}
    others = {"iter": 3, "optimizer_state_dict": None, "optimizer": {"state": {0: {"m": torch.ones(2)}}}}
    for legacy in (False, True):
        content = named if wrapper is None else {wrapper: named, **others}
        torch.save(content, tmp_path / "weights.pth", _use_new_zipfile_serialization=not legacy)
        check(tmp_path / "weights.pth")
    safetensors.torch.save_file(named, tmp_path / "weights.safetensors")
    check(tmp_path / "weights.safetensors")


def test_prefixes_inside_a_name_stay(tmp_path: Path) -> None:
    safetensors.torch.save_file({"block.module.weight": torch.ones(1)}, tmp_path / "x.safetensors")
    assert [*read_tensors(tmp_path / "x.safetensors", "a model")] == ["block.module.weight"]


class Code:
    """What a pickle can do: `os.mkdir` runs when it is loaded by `pickle.load`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("form", ["zip", "legacy", "pickle"])
def test_code_in_a_file_is_never_run(tmp_path: Path, form: str) -> None:
    content = {"state_dict": {"weight": torch.ones(2), "trap": Code(tmp_path / "trapped")}}
    file = tmp_path / "trap.pth"
    if form == "pickle":
        file.write_bytes(pickle.dumps({"trap": Code(tmp_path / "trapped")}))
    else:
        torch.save(content, file, _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(InputError) as error:
        read_tensors(file, "a model")
    assert not (tmp_path / "trapped").exists()
    assert "\n" not in str(error.value)
    assert str(file) in str(error.value)
    assert "mkdir" in str(error.value)


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pth", "legacy.pth"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.99])
def test_a_file_cut_short_is_refused(tmp_path: Path, name: str, share: float) -> None:
    file = tmp_path / name
    if name.endswith(".safetensors"):
        safetensors.torch.save_file(TENSORS, file)
    else:
        torch.save({"state_dict": TENSORS}, file, _use_new_zipfile_serialization=name != "legacy.pth")
    os.truncate(file, int(share * file.stat().st_size))
    with pytest.raises(InputError, match=f"{name} (holds no weights of a generator|is not a whole .*): .+") as error:
        read_tensors(file, "a generator")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content", [[torch.ones(2)], torch.ones(2), {"state_dict": {"a": {"b": "text"}}}, {"epoch": 3}]
)
def test_what_is_no_state_dict_is_named(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "odd.pth")
    with pytest.raises(InputError, match=r"odd\.pth holds no weights of a model: "):
        read_tensors(tmp_path / "odd.pth", "a model")
