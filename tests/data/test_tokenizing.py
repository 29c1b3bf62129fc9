"""Tokenizing: the result does not depend on chunks, interruptions or ranks, and incomplete files are never used."""

import errno
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tokencritic.contracts import ImageTokenizer
from tokencritic.data import tokenizing
from tokencritic.data.source import ArraySource
from tokencritic.data.sources import open_source
from tokencritic.data.tokenizing import TokenizeJob
from tokencritic.data.tokens import TokenArrays
from tokencritic.data.transforms import Preprocess, to_float
from tokencritic.distribution import ALONE, Ranks
from tokencritic.errors import InputError

FILES = ("tokens.npy", "labels.npy", "tokens.json")


class Patches(ImageTokenizer):
    """A tokenizer whose answer is known: the token of a 4x4 patch is the sum of its pixels modulo the codebook."""

    codebook_size = 1000
    grid = (2, 2)
    image_size = 8
    channels = 1
    device = torch.device("cpu")

    def __init__(self, break_after: int | None = None, fingerprint: str = "f" * 64) -> None:
        self.left, self.name = break_after, fingerprint

    @property
    def num_tokens(self) -> int:
        return self.grid[0] * self.grid[1]

    def fingerprint(self) -> str:
        return self.name

    def encode(self, images: Tensor) -> Tensor:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        sums = (images * 255).round().long().unfold(2, 4, 4).unfold(3, 4, 4).sum(dim=(1, 4, 5))
        return sums.flatten(1) % self.codebook_size


class Row(Patches):
    """The same tokens without a grid."""

    grid = None
    num_tokens = 4


def test_tokens_without_a_grid_are_one_row(tmp_path: Path) -> None:
    preprocess = Preprocess(8, 1)
    rows = TokenizeJob(array_source(), Row(), tmp_path / "rows", preprocess).run(progress=False)
    squares = TokenizeJob(array_source(), Patches(), tmp_path / "squares", preprocess).run(progress=False)
    assert (rows.grid, squares.grid) == ((1, 4), (2, 2))
    assert np.array_equal(rows.tokens, squares.tokens)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizing, "CHUNK_ROWS", 8)


def array_source(count: int = 37, seed: int = 0) -> ArraySource:
    rng = np.random.default_rng(seed)
    names = ("cat", "dög", "ox")
    return ArraySource(
        rng.integers(0, 256, (count, 8, 8), np.uint8), rng.integers(0, 3, count), names, "x", "train", "x"
    )


def run(out: Path, source=None, tokenizer=None, **changes) -> TokenArrays:
    preprocess = changes.pop("preprocess", Preprocess(8, 1, "random", flip=True))
    ranks = changes.pop("ranks", ALONE)
    how = {"crops_per_image": 2, "batch_size": 3} | changes
    return TokenizeJob(source or array_source(), tokenizer or Patches(), out, preprocess, **how).run(
        ranks, progress=False
    )


class Threads(Ranks):
    """Ranks that are threads of this process."""

    def from_first(self, work):
        if self.first:
            BOARD["answer"] = attempt(work)
        self.wait()
        answer = BOARD["answer"]
        self.wait()
        if isinstance(answer, InputError):
            raise answer
        return answer

    def wait(self) -> None:
        BOARD["barrier"].wait(60)


BOARD: dict[str, Any] = {}


def attempt(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except InputError as error:
        return error


def run_ranks(size: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """Return the result of each rank, or its InputError."""
    BOARD["barrier"] = threading.Barrier(size)
    with ThreadPoolExecutor(size) as pool:
        ranks = [Threads(rank, size, torch.device("cpu")) for rank in range(size)]
        return list(pool.map(lambda own: attempt(lambda: work(own)), ranks))


def content(folder: Path) -> dict[str, bytes]:
    assert sorted(file.name for file in folder.iterdir()) == sorted(FILES)  # nothing is left behind
    return {name: (folder / name).read_bytes() for name in FILES}


def test_a_folder_is_written_by_one_run_at_a_time(tmp_path: Path) -> None:
    """The second one is refused while the first one works, and leaves nothing."""
    out, refused = tmp_path / "out", []

    class Meanwhile(Patches):
        def encode(self, images: Tensor) -> Tensor:
            if not refused:
                refused.append(attempt(lambda: run(out)))
            return super().encode(images)

    run(out, tokenizer=Meanwhile())
    assert "out is in use by another run" in str(refused[0])
    whole = content(out)
    run(out)  # finished: nothing is left to do
    assert content(out) == whole


def test_what_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="seed is"):
        run(tmp_path / "out", seed=2**70)
    run(tmp_path / "out")
    with pytest.raises(InputError, match="different seed"):
        run(tmp_path / "out", seed=1)
    assert content(tmp_path / "out")


def test_tokens_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    source = array_source()
    data = run(tmp_path, source, preprocess=Preprocess(8, 1), crops_per_image=1)
    images = torch.from_numpy(source.images.transpose(0, 3, 1, 2).copy()) / 255
    np.testing.assert_array_equal(data.tokens, Patches().encode(images))
    np.testing.assert_array_equal(data.labels, source.labels)
    assert (data.codebook_size, data.grid, data.class_names) == (1000, (2, 2), ("cat", "dög", "ox"))
    assert (data.tokens.dtype, data.labels.dtype) == (np.uint16, np.int32)
    assert data.facts["preprocess"]["crop"] == "center"
    assert data.facts["source"] == source.describe()
    assert (data.num_images, data.facts["rows"]) == (37, 37)


def test_each_crop_is_another_one_and_the_order_stays(tmp_path: Path) -> None:
    source = array_source()
    data = run(tmp_path, source, crops_per_image=2, seed=4)
    preprocess = Preprocess(8, 1, "random", flip=True)
    for number in (0, 1):
        images = to_float(preprocess.batch(source.images, range(37), seed=4, crop_number=number))
        np.testing.assert_array_equal(data.tokens[37 * number : 37 * (number + 1)], Patches().encode(images))
    np.testing.assert_array_equal(data.labels, np.tile(source.labels, 2))


@pytest.mark.parametrize("changes", [{"batch_size": 100}, {"batch_size": 1}])
def test_same_bytes_whatever_the_batch_size(tmp_path: Path, changes: dict) -> None:
    run(tmp_path / "a")
    run(tmp_path / "b", **changes)
    assert content(tmp_path / "a") == content(tmp_path / "b")


@pytest.mark.parametrize("world_size", [2, 3, 20])
def test_same_bytes_whatever_the_ranks(tmp_path: Path, world_size: int) -> None:
    run(tmp_path / "a")
    results = run_ranks(world_size, lambda ranks: run(tmp_path / "b", ranks=ranks))
    assert [len(result) for result in results] == [74] * world_size
    assert content(tmp_path / "a") == content(tmp_path / "b")


@pytest.mark.parametrize(("stop", "kept"), [(0, 0), (1, 0), (4, 1), (7, 2), (20, 7), (27, 9)])
def test_interrupted_and_resumed(tmp_path: Path, stop: int, kept: int) -> None:
    """The five chunks of each of two crops take 3, 3, 3, 3 and 2 batches. Complete chunks are not made again."""
    run(tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "b", tokenizer=Patches(break_after=stop))
    with pytest.raises(InputError, match=r"has no tokens\.json"):
        TokenArrays.open(tmp_path / "b")
    assert len(list((tmp_path / "b/.chunks").glob("*.npz"))) == kept
    batches = [3, 3, 3, 3, 2] * 2
    run(tmp_path / "b", tokenizer=Patches(break_after=sum(batches[kept:])))
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_a_finished_folder_is_not_touched(tmp_path: Path) -> None:
    run(tmp_path)
    times = [(tmp_path / name).stat().st_mtime_ns for name in FILES]
    again = run(tmp_path, tokenizer=Patches(break_after=0))
    assert len(again) == 74
    assert times == [(tmp_path / name).stat().st_mtime_ns for name in FILES]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, r"different seed \(0, expected 1\)"),
        ({"crops_per_image": 3}, r"different passes \(2, expected 3\)"),
        ({"tokenizer": Patches(fingerprint="g")}, "different tokenizer_fingerprint"),
        ({"preprocess": Preprocess(8, 1)}, "different preprocess"),
        ({"source": array_source(seed=1)}, "different source"),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_other_settings_are_refused(tmp_path: Path, changes: dict, message: str, finished: bool) -> None:
    if finished:
        run(tmp_path)
    else:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, tokenizer=Patches(break_after=5))
    with pytest.raises(InputError, match=message):
        run(tmp_path, **changes)


def test_a_damaged_chunk_is_done_again(tmp_path: Path) -> None:
    run(tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "b", tokenizer=Patches(break_after=13))
    files = sorted((tmp_path / "b/.chunks").glob("*.npz"))
    files[0].write_bytes(files[0].read_bytes()[:-30])
    files[1].write_bytes(b"")
    spoilt = bytearray(files[2].read_bytes())
    spoilt[len(spoilt) // 3] ^= 255
    files[2].write_bytes(spoilt)
    run(tmp_path / "b")
    assert content(tmp_path / "a") == content(tmp_path / "b")


@pytest.mark.parametrize("fail_at", [0, 3, 10, 11, 12, 13])
def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_at: int) -> None:
    """Writes are 0 (settings), 1 to 10 (chunks) and 11 to 13 (final files). After any failure the next run resumes."""
    run(tmp_path / "a")
    count = 0

    def fail(_descriptor: int) -> None:
        nonlocal count
        count += 1
        if count == fail_at + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(tokenizing.os, "fsync", fail)
        with pytest.raises(
            InputError, match=r"cannot be written: No space left on device; .* rerun the command to resume"
        ):
            run(tmp_path / "b")
    assert not list((tmp_path / "b").rglob("*.tmp"))
    with pytest.raises(InputError, match=r"has no tokens\.json"):
        TokenArrays.open(tmp_path / "b")
    run(tmp_path / "b")
    assert content(tmp_path / "a") == content(tmp_path / "b")


def image_folder(folder: Path, corrupt: set[int]) -> None:
    images = array_source(12).images[..., 0]
    for number, image in enumerate(images):
        file = folder / ("a" if number < 7 else "b") / f"{number:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
        if number in corrupt:
            file.write_bytes(file.read_bytes()[:30])


@pytest.mark.parametrize("crop", ["center", "random"])
def test_corrupt_images_leave_no_row(tmp_path: Path, crop) -> None:
    corrupt = {0, 1, 2, 9}  # the whole first batch, and one
    image_folder(tmp_path / "whole", set())
    image_folder(tmp_path / "some", corrupt)
    preprocess = Preprocess(8, 1, crop)
    whole = run(tmp_path / "a", open_source(tmp_path / "whole"), preprocess=preprocess)
    some = run(tmp_path / "b", open_source(tmp_path / "some"), preprocess=preprocess)
    keep = [number for number in range(24) if number % 12 not in corrupt]
    np.testing.assert_array_equal(some.tokens, whole.tokens[keep])
    np.testing.assert_array_equal(some.labels, whole.labels[keep])
    assert sorted(some.facts["corrupt"]) == ["a/00.png", "a/01.png", "a/02.png", "b/09.png"]


def test_the_limit_of_corrupt_images_holds_over_all_ranks_and_runs(tmp_path: Path) -> None:
    image_folder(tmp_path / "images", {0, 9})

    def work(ranks: Ranks) -> TokenArrays:
        source = open_source(tmp_path / "images", max_corrupt=1)  # each rank reads one corrupt file
        return run(tmp_path / "out", source, crops_per_image=1, ranks=ranks)

    for result in run_ranks(2, work):
        assert "2 corrupt files, more than max_corrupt 1: a/00.png" in str(result)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".chunks"]
    result = run(tmp_path / "out", open_source(tmp_path / "images", max_corrupt=2), crops_per_image=1)
    assert len(result) == 10


class WrongShape(Patches):
    grid = (2, 3)


class WrongValues(Patches):
    codebook_size = 5

    def encode(self, images: Tensor) -> Tensor:
        return torch.full((len(images), 4), 5)


class HugeCodebook(Patches):
    codebook_size = 65537


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": WrongShape()}, r"tokenizer gives tokens \(3, 4\); expected \(3, 6\)"),
        ({"tokenizer": WrongValues()}, "the tokenizer's output holds 5; expected integers from 0 to 4"),
        ({"tokenizer": HugeCodebook()}, "codebook_size is 65537"),
        ({"crops_per_image": 0}, "crops_per_image is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"workers": -1}, "workers is -1"),
    ],
)
def test_wrong_arguments(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(tmp_path, **changes)


def test_the_largest_code_survives(tmp_path: Path) -> None:
    class Largest(HugeCodebook):
        codebook_size = 65536

        def encode(self, images: Tensor) -> Tensor:
            return torch.full((len(images), 4), 65535)

    data = run(tmp_path, tokenizer=Largest())
    assert (data.tokens == 65535).all()


def test_a_token_folder_opens_only_whole_and_with_its_tokenizer(tmp_path: Path) -> None:
    run(tmp_path)
    assert len(TokenArrays.open(tmp_path)) == 74
    assert len(TokenArrays.open(tmp_path, "f" * 64)) == 74
    with pytest.raises(InputError, match=r"made with tokenizer f{16}; expected abc; tokenize"):
        TokenArrays.open(tmp_path, "abc")
    with pytest.raises(InputError, match=r"nowhere has no tokens\.json"):
        TokenArrays.open(tmp_path / "nowhere")


def test_images_without_classes(tmp_path: Path) -> None:
    labelled = array_source()
    plain = ArraySource(labelled.images, None, (), "x", "train", "x")
    data = run(tmp_path / "plain", source=plain)
    assert data.class_names == ()
    assert data.labels.tolist() == [-1] * 74
    assert np.array_equal(data.tokens, run(tmp_path / "labelled").tokens)
    data.pack(tmp_path / "tokens.npz")
    assert TokenArrays.open(tmp_path / "tokens.npz").class_names == ()
    np.save(tmp_path / "plain/labels.npy", np.zeros(74, "<i4"))
    with pytest.raises(InputError, match=r"labels\.npy holds 1; expected integers from 0 to 0"):
        TokenArrays.open(tmp_path / "plain")


def change_facts(**changes: object):
    def change(folder: Path) -> None:
        facts = json.loads((folder / "tokens.json").read_text())
        (folder / "tokens.json").write_text(json.dumps(facts | changes))

    return change


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "tokens.npy").unlink(), r"tokens\.npy cannot be read"),
        (lambda folder: os.truncate(folder / "tokens.npy", 600), r"tokens\.npy is not a whole"),
        (lambda folder: os.truncate(folder / "labels.npy", 0), r"labels\.npy is not a whole"),
        (lambda folder: os.truncate(folder / "tokens.json", 50), r"tokens\.json is not JSON"),
        (change_facts(rows=73), r"tokens\.npy holds uint16 \(74, 4\).*expected uint16 \(73, 4\)"),
        (change_facts(grid=[2, 3]), r"expected uint16 \(74, 6\)"),
        (change_facts(grid=[4]), "has grid"),
        (change_facts(codebook_size=10), r"tokens\.npy holds \d+; expected integers from 0 to 9"),
        (change_facts(class_names=["cat"]), r"labels\.npy holds 2; expected integers from 0 to 0"),
        (change_facts(rows=None), "has no rows of type int"),
    ],
)
def test_spoilt_token_folder(tmp_path: Path, spoil, message: str) -> None:
    run(tmp_path)
    spoil(tmp_path)
    with pytest.raises(InputError, match=message):
        TokenArrays.open(tmp_path)
