"""Token arrays packed into one file, as a model folder includes them."""

import json
import shutil

import numpy as np
import pytest

from tokencritic.data.tokens import TokenArrays
from tokencritic.errors import InputError

FACTS = {
    "tokenizer_fingerprint": "f" * 64,
    "codebook_size": 16,
    "grid": [2, 2],
    "class_names": ["cat", "dog"],
    "rows": 5,
}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "tokens"
    folder.mkdir()
    np.save(folder / "tokens.npy", np.arange(20, dtype=np.uint16).reshape(5, 4) % 16)
    np.save(folder / "labels.npy", np.array([0, 1, 0, 1, 1], np.int32))
    (folder / "tokens.json").write_text(json.dumps(FACTS | {"passes": 1}))
    return folder


@pytest.mark.parametrize("by_folder", [False, True])
def test_what_was_packed_comes_back(folder, tmp_path, by_folder):
    whole = TokenArrays.open(folder)
    whole.pack(tmp_path / "tokens.npz")
    again = TokenArrays.open(tmp_path if by_folder else tmp_path / "tokens.npz", "f" * 64)
    np.testing.assert_array_equal(again.tokens, whole.tokens)
    np.testing.assert_array_equal(again.labels, whole.labels)
    assert again.tokens.dtype == whole.tokens.dtype
    assert again.facts == whole.facts
    assert (again.grid, again.class_names) == (whole.grid, whole.class_names)


def test_packing_twice_makes_the_same_bytes(folder, tmp_path):
    TokenArrays.open(folder).pack(tmp_path / "a.npz")
    TokenArrays.open(tmp_path / "a.npz").pack(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_damage_and_another_tokenizer_are_told(folder, tmp_path):
    file = tmp_path / "tokens.npz"
    TokenArrays.open(folder).pack(file)
    with pytest.raises(InputError, match="made with tokenizer ffff"):
        TokenArrays.open(file, "e" * 64)
    shutil.copy(file, tmp_path / "cut.npz")
    (tmp_path / "cut.npz").write_bytes(file.read_bytes()[:-30])
    with pytest.raises(InputError, match=r"cut\.npz is not a whole \.npz"):
        TokenArrays.open(tmp_path / "cut.npz")
    np.savez(tmp_path / "other.npz", images=np.zeros(3))
    with pytest.raises(InputError, match=r"other\.npz holds no packed tokens"):
        TokenArrays.open(tmp_path / "other.npz")
