"""Flax checkpoints read without JAX: what a whole file gives, and what broken or foreign ones are answered."""

from pathlib import Path

import msgpack
import numpy as np
import pytest
import torch

from tokencritic.errors import InputError
from tokencritic.foreign_weights import read_flax


def pack_array(array: np.ndarray, name: str | None = None, code: int = 1) -> msgpack.ExtType:
    return msgpack.ExtType(code, msgpack.packb((array.shape, name or array.dtype.name, array.tobytes())))


def write(path: Path, tree: object) -> Path:
    path.write_bytes(msgpack.packb(tree))
    return path


def test_arrays_come_back_by_dotted_name_with_shape_dtype_and_values(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    kernel = rng.normal(size=(3, 2, 4)).astype(np.float32)
    steps = np.arange(5, dtype=np.int32)
    tree = {"params": {"a": {"Conv_0": {"kernel": pack_array(kernel)}}, "steps": pack_array(steps)}, "other": 3}
    arrays = read_flax(write(tmp_path / "f", tree))
    assert set(arrays) == {"a.Conv_0.kernel", "steps"}
    assert torch.equal(arrays["a.Conv_0.kernel"], torch.from_numpy(kernel))
    assert arrays["steps"].dtype is torch.int32
    assert arrays["steps"].tolist() == [0, 1, 2, 3, 4]


def test_bfloat16_scalars_and_empty_arrays_are_read(tmp_path: Path) -> None:
    values = torch.tensor([1.0, -2.5], dtype=torch.bfloat16)
    half = pack_array(values.view(torch.int16).numpy(), name="bfloat16")
    tree = {
        "params": {"h": half, "s": pack_array(np.float32(7.0), code=3), "e": pack_array(np.zeros((0, 3), np.float32))}
    }
    arrays = read_flax(write(tmp_path / "f", tree))
    assert torch.equal(arrays["h"], values)
    assert arrays["s"].shape == ()
    assert arrays["s"].item() == 7.0
    assert arrays["e"].shape == (0, 3)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.999])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    file = write(tmp_path / "f", {"params": {"a": pack_array(np.ones(1000, np.float32))}})
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match=r"f is not a whole flax checkpoint"):
        read_flax(file)


def test_bytes_after_the_end_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "f", {"params": {"a": pack_array(np.ones(3, np.float32))}})
    file.write_bytes(file.read_bytes() + b"\x00")
    with pytest.raises(InputError, match="not a whole flax checkpoint"):
        read_flax(file)


@pytest.mark.parametrize(
    ("tree", "complaint"),
    [
        ([1, 2], "holds list at the top level"),
        ({"model": {}}, "holds the keys model at the top level"),
        ({"params": 3}, "expected 'params'"),
        ({"params": {"a": {"b": "text"}}}, "a.b is a str; expected an array"),
        ({"params": {"a": msgpack.ExtType(5, b"x")}}, "extension type 5"),
        ({"params": {"a": msgpack.ExtType(1, msgpack.packb([1]))}}, "not enough values to unpack"),
        (
            {"params": {"a": pack_array(np.ones(2, np.float32), name="float64")}},
            "invalid for input of size 1",
        ),
        ({"params": {"a": pack_array(np.ones(2, np.float32), name="object")}}, "dtype 'object'"),
        ({"params": {"a": msgpack.ExtType(1, msgpack.packb([[-2], "float32", b""]))}}, "invalid shape dimension -2"),
        (
            {"params": {"a": {"__msgpack_chunked_array__": True}}},
            "a.__msgpack_chunked_array__ is a bool; expected an array",
        ),
    ],
)
def test_foreign_content_is_named(tmp_path: Path, tree: object, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        read_flax(write(tmp_path / "f", tree))


def test_other_kinds_of_file_and_no_file_are_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(3)}, tmp_path / "torch.pt")
    (tmp_path / "text").write_text("not a checkpoint\n")
    for name in ("torch.pt", "text"):
        with pytest.raises(InputError, match=name):
            read_flax(tmp_path / name)
    with pytest.raises(InputError, match="absent cannot be read"):
        read_flax(tmp_path / "absent")
    with pytest.raises(InputError, match="cannot be read"):
        read_flax(tmp_path)
