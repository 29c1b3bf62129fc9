"""Sources: each data format returns exactly the images, labels and names that were written."""

import gzip
import json
import os
import pickle
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tokencritic.data.sources import open_source
from tokencritic.errors import InputError

_CIFAR_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def random_images(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def check_same(source, images: np.ndarray, labels: np.ndarray) -> None:
    assert len(source) == len(images)
    for index, (image, label) in enumerate(source):
        assert image.mode == ("L" if images.ndim == 3 else "RGB")
        np.testing.assert_array_equal(np.asarray(image), images[index])
        assert label == labels[index]
    np.testing.assert_array_equal(source.images.reshape(images.shape), images)
    np.testing.assert_array_equal(source.labels, labels)
    json.dumps(source.describe())


# idx


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(folder: Path, images: np.ndarray, labels: np.ndarray, prefix: str = "train", packed: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
        content = idx_bytes(array)
        file = folder / f"{prefix}-{name}{'.gz' if packed else ''}"
        file.write_bytes(gzip.compress(content) if packed else content)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("place", ["", "raw"])
def test_idx(tmp_path: Path, packed: bool, place: str) -> None:
    images, labels = random_images(5, 6, 4), np.array([3, 0, 1, 1, 2], np.uint8)
    write_idx(tmp_path / place, images, labels, packed=packed)
    write_idx(tmp_path / place, images[:3], np.array([4, 0, 0], np.uint8), "t10k", packed)
    check_same(open_source(tmp_path), images, labels)
    check_same(open_source(tmp_path, "test"), images[:3], np.array([4, 0, 0]))
    # A label that only one split has is a class of both.
    assert open_source(tmp_path).class_names == open_source(tmp_path, "test").class_names == ("0", "1", "2", "3", "4")


def test_fashion_names_by_folder(tmp_path: Path) -> None:
    images, labels = random_images(3, 4, 4), np.array([9, 0, 1], np.uint8)
    for place in ("Fashion-MNIST", "FashionMNIST/raw", "fashion/digits"):
        write_idx(tmp_path / place, images, labels)
    assert open_source(tmp_path / "Fashion-MNIST").class_names[9] == "Ankle boot"
    assert open_source(tmp_path / "FashionMNIST").class_names[9] == "Ankle boot"
    assert open_source(tmp_path / "fashion/digits").class_names[9] == "9"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: content[:-1], "requires"),
        (lambda content: content + b"x", "requires"),
        (lambda content: content[:9], "requires"),
        (lambda content: b"\0\0\x0d" + content[3:], "starts with 00000d"),
        (lambda content: b"", "starts with nothing"),
    ],
)
def test_broken_idx(tmp_path: Path, spoil, message: str) -> None:
    write_idx(tmp_path, random_images(3, 4, 4), np.zeros(3, np.uint8), packed=False)
    file = tmp_path / "train-images-idx3-ubyte"
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(InputError, match=rf"train-images-idx3-ubyte.*{message}"):
        open_source(tmp_path)


def test_truncated_gzip(tmp_path: Path) -> None:
    write_idx(tmp_path, random_images(3, 4, 4), np.zeros(3, np.uint8))
    file = tmp_path / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-12])
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte\.gz is not a whole gzip"):
        open_source(tmp_path)


def test_idx_counts_and_splits_must_fit(tmp_path: Path) -> None:
    write_idx(tmp_path, random_images(3, 4, 4), np.zeros(2, np.uint8))
    with pytest.raises(InputError, match=r"labels uint8 \(2,\); expected integers \(3,\)"):
        open_source(tmp_path)
    with pytest.raises(InputError, match="no t10k-images-idx3-ubyte"):
        open_source(tmp_path, "test")


# CIFAR-10


def cifar(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return random_images(count, 32, 32, 3, seed=seed), np.random.default_rng(seed).integers(0, 10, count)


def planes(images: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), 3072)


def write_sheets(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(np.split(images, 5), start=1):
        Image.fromarray(part.reshape(len(part), 1024, 3)).save(folder / f"data_batch_{number}.png")
    (folder / "train_lables.json").write_text(json.dumps(labels.tolist()))


def write_pickles(folder: Path, images: np.ndarray, labels: np.ndarray, protocol: int) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(1, 6):
        part = slice(2 * number - 2, 2 * number)
        batch = {b"batch_label": b"x", b"labels": labels[part].tolist(), b"data": planes(images[part])}
        (folder / f"data_batch_{number}").write_bytes(pickle.dumps(batch, protocol))


def write_binaries(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(1, 6):
        part = slice(2 * number - 2, 2 * number)
        records = np.concatenate([labels[part, None].astype(np.uint8), planes(images[part])], axis=1)
        (folder / f"data_batch_{number}.bin").write_bytes(records.tobytes())


@pytest.mark.parametrize("place", ["", "package"])
def test_cifar_sheets(tmp_path: Path, place: str) -> None:
    images, labels = cifar(10)
    write_sheets(tmp_path / place, images, labels)
    check_same(open_source(tmp_path), images, labels)
    assert open_source(tmp_path).class_names == _CIFAR_NAMES


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("place", ["", "cifar-10-batches-py"])
def test_cifar_pickles(tmp_path: Path, protocol: int, place: str) -> None:
    images, labels = cifar(10)
    write_pickles(tmp_path / place, images, labels, protocol)
    check_same(open_source(tmp_path), images, labels)


def python2_batch(data: np.ndarray, labels: list[int]) -> bytes:
    """A batch with the opcodes of Python 2 and NumPy 1: byte strings, old module names, integer flags."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + struct.pack("<i", len(value)) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + number(0) + number(1) + b"tR"
    dtype += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) * 2 + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + number(0) + b"t" + text(b"b") + b"tR"
    array += b"(" + number(1) + b"(" + b"".join(map(number, data.shape)) + b"t" + dtype
    array += b"\x89" + text(data.tobytes()) + b"tb"
    return (
        b"\x80\x02}(" + text(b"data") + array + text(b"labels") + b"](" + b"".join(map(number, labels)) + b"e" + b"u."
    )


def test_cifar_pickles_of_python_2(tmp_path: Path) -> None:
    images, labels = cifar(10)
    (tmp_path / "test_batch").write_bytes(python2_batch(planes(images), labels.tolist()))
    check_same(open_source(tmp_path, "test"), images, labels)


class _Evil:
    def __reduce__(self) -> tuple:
        return os.mkdir, ("ran-the-pickle",)


def test_cifar_pickles_run_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": _Evil(), b"labels": []}))
    with pytest.raises(InputError, match=r"test_batch is not a CIFAR-10 batch.*mkdir"):
        open_source(tmp_path, "test")
    assert not (tmp_path / "ran-the-pickle").exists()


def test_cifar_pickle_cut_short(tmp_path: Path) -> None:
    images, labels = cifar(2)
    (tmp_path / "test_batch").write_bytes(python2_batch(planes(images), labels.tolist())[:-100])
    with pytest.raises(InputError, match="test_batch is not a CIFAR-10 batch"):
        open_source(tmp_path, "test")


@pytest.mark.parametrize("place", ["", "cifar-10-batches-bin"])
def test_cifar_binaries(tmp_path: Path, place: str) -> None:
    images, labels = cifar(10)
    write_binaries(tmp_path / place, images, labels)
    check_same(open_source(tmp_path), images, labels)
    file = tmp_path / place / "data_batch_4.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"data_batch_4\.bin holds 6145 bytes"):
        open_source(tmp_path)


def test_cifar_names_what_is_missing(tmp_path: Path) -> None:
    images, labels = cifar(10)
    write_sheets(tmp_path, images, labels)
    with pytest.raises(InputError, match=r"test_batch\.png cannot be read"):
        open_source(tmp_path, "test")
    (tmp_path / "train_lables.json").unlink()
    with pytest.raises(InputError, match=r"train_lables\.json cannot be read"):
        open_source(tmp_path)
    sheet = tmp_path / "data_batch_3.png"
    sheet.write_bytes(sheet.read_bytes()[:3000])
    with pytest.raises(InputError, match=r"data_batch_3\.png is not a whole PNG"):
        open_source(tmp_path)


# npz


@pytest.mark.parametrize("names", [("images", "labels"), ("arr_0", "arr_1")])
@pytest.mark.parametrize("channels", [(), (3,)])
def test_npz(tmp_path: Path, names: tuple[str, str], channels: tuple[int, ...]) -> None:
    images, labels = random_images(4, 5, 6, *channels), np.array([1, 0, 2, 2])
    file = tmp_path / "set.npz"
    np.savez(file, **dict(zip(names, (images, labels), strict=True)))
    check_same(open_source(file), images, labels)
    assert open_source(file).class_names == ("0", "1", "2")
    np.savez(file, **dict(zip(names, (images, labels), strict=True)), class_names=np.array(["cat", "dog", "ox", "elk"]))
    assert open_source(file).class_names == ("cat", "dog", "ox", "elk")


def test_an_npz_without_labels_has_no_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", images=np.zeros((2, 4, 4), np.uint8))
    source = open_source(tmp_path / "set.npz")
    assert (source.class_names, source.labels.tolist(), len(source)) == ((), [-1, -1], 2)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.zeros(2, int)}, "has arrays labels; expected images or arr_0"),
        ({"images": np.zeros((2, 4, 4), np.float32), "labels": np.zeros(2, int)}, "images float32"),
        ({"images": np.zeros((2, 3, 4, 4), np.uint8), "labels": np.zeros(2, int)}, r"images uint8 \(2, 3, 4, 4\)"),
        ({"images": np.zeros((2, 4, 4), np.uint8), "labels": np.zeros(3, int)}, r"labels int64 \(3,\)"),
        ({"images": np.zeros((2, 4, 4), np.uint8), "labels": np.zeros(2)}, "labels float64"),
        ({"images": np.zeros((2, 4, 4), np.uint8), "labels": np.array([0, -1])}, "labels holds -1"),
        ({"images": np.zeros((2, 4, 4), np.uint8), "labels": np.array([0, None])}, "without pickles"),
        (
            {"images": np.zeros((2, 4, 4), np.uint8), "labels": np.array([0, 2]), "class_names": np.array(["a", "b"])},
            "labels holds 2; expected integers from 0 to 1",
        ),
    ],
)
def test_wrong_npz(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "set.npz", **arrays)
    with pytest.raises(InputError, match=rf"set\.npz.*{message}"):
        open_source(tmp_path / "set.npz")


def test_damaged_npz(tmp_path: Path) -> None:
    file = tmp_path / "set.npz"
    np.savez(file, images=random_images(9, 8, 8), labels=np.zeros(9, int))
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(InputError, match=r"set\.npz is not a whole \.npz"):
        open_source(file)


def test_an_npz_that_is_something_else(tmp_path: Path) -> None:
    file = tmp_path / "set.npz"
    with file.open("wb") as opened:
        np.save(opened, np.zeros(3))
    with pytest.raises(InputError, match=r"set\.npz is a single array"):
        open_source(file)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("images", "text")
        archive.writestr("labels", "text")
    with pytest.raises(InputError, match=r"set\.npz is not a whole \.npz without pickles: images is not an array"):
        open_source(file)
    with zipfile.ZipFile(file, "w") as archive, archive.open("images.npy", "w") as member:
        header = {"descr": "|u1", "fortran_order": False, "shape": (2**40, 28, 28)}
        np.lib.format.write_array_header_1_0(member, header)
    with pytest.raises(InputError, match=r"set\.npz is not a whole \.npz"):
        open_source(file)


# What the path may be


def test_paths_that_hold_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere does not exist"):
        open_source(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no class folders"):
        open_source(tmp_path)
    (tmp_path / "x.zip").write_bytes(b"")
    with pytest.raises(InputError, match=r"x\.zip is not an \.npz"):
        open_source(tmp_path / "x.zip")
    with pytest.raises(InputError, match="split is 'dev'"):
        open_source(tmp_path, "dev")  # pyright: ignore[reportArgumentType]


def test_facts_name_the_content_and_no_path(tmp_path: Path) -> None:
    images, labels = cifar(10)
    write_sheets(tmp_path / "a", images, labels)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    first, second = (open_source(tmp_path / name).describe() for name in "ab")
    assert first == second
    assert str(tmp_path) not in json.dumps(first)
    write_sheets(tmp_path / "b", images, np.roll(labels, 1))
    assert open_source(tmp_path / "b").describe() != first


# The real data sets, if downloaded


@pytest.mark.parametrize(
    ("name", "counts", "shape", "first_labels", "class_name"),
    [
        ("fashion-mnist", (60000, 10000), (28, 28), [9, 0, 0, 3], "Ankle boot"),
        ("mnist", (60000, 10000), (28, 28), [5, 0, 4, 1], "9"),
        ("cifar10", (50000, 10000), (32, 32, 3), [6, 9, 9, 4], "truck"),
    ],
)
def test_real_sets(
    name: str, counts: tuple[int, int], shape: tuple[int, ...], first_labels: list[int], class_name: str
):
    place = Path(os.environ.get("TOKENCRITIC_DATA", "out/data")) / name
    if not place.is_dir():
        pytest.skip(
            f"{place} is not there; fetch it with scripts/get_data and let TOKENCRITIC_DATA name the folder above"
        )
    for split, count in zip(("train", "test"), counts, strict=True):
        source = open_source(place, split)  # pyright: ignore[reportArgumentType]
        assert len(source) == count
        assert source.class_names[9] == class_name
        image, _ = source[count - 1]  # pyright: ignore[reportGeneralTypeIssues]
        assert np.asarray(image).shape == shape
        if split == "train":
            assert [source[index][1] for index in range(4)] == first_labels  # pyright: ignore[reportOptionalSubscript]
