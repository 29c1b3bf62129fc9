"""Readers of images: arrays, idx files, CIFAR-10, folders of pictures, samples, statistics, notes in PNG files."""

import gzip
import io
import json
import pickle
import struct
import warnings

import numpy as np
import pytest
from fuzz.mutation import Case, check, obey, run, spoil_bytes, spoil_json, spoil_npz, spoil_png
from PIL import Image
from studio.toy import noise_picture, png_bytes, toy_pipe

from tokencritic.cli.sample import _like, _parse
from tokencritic.data.npz import read_sealed, sealed
from tokencritic.data.source import open_flat_folder
from tokencritic.data.sources import open_source
from tokencritic.data.tokenizing import TokenizeJob
from tokencritic.data.transforms import Preprocess
from tokencritic.evaluation.cache import Chunks
from tokencritic.evaluation.image_sets import open_images
from tokencritic.evaluation.reference import read_statistics
from tokencritic.image_forms import read_picture
from tokencritic.interop.adm import SampleFile
from tokencritic.pictures.grids import png_note, read_note, save
from tokencritic.studio.visits import sample_pictures

IMAGES, LABELS = np.arange(2 * 8 * 8, dtype=np.uint8).reshape(2, 8, 8), np.array([0, 1], np.uint8)


IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")


def _idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def _write_idx(suffix):
    def write(folder):
        compress = gzip.compress if suffix else bytes
        (folder / f"train-images-idx3-ubyte{suffix}").write_bytes(compress(_idx(IMAGES)))
        (folder / f"train-labels-idx1-ubyte{suffix}").write_bytes(compress(_idx(LABELS)))

    return write


def _spoil_gzip(rng, content):
    if rng.random() < 0.4:
        return spoil_bytes(rng, content)
    return gzip.compress(spoil_bytes(rng, gzip.decompress(content)))


def _spoil_idx(rng, content):
    """Sizes in the header that the content does not have."""
    if rng.random() < 0.5:
        return spoil_bytes(rng, content)
    changed = bytearray(content)
    changed[4 * rng.randrange(1, 3) :][:4] = struct.pack(">I", rng.choice([0, 1, 2**16, 2**31, 2**32 - 1]))
    return bytes(changed)


def _read_source(folder, split="train"):
    source = open_source(folder, split, max_corrupt=0)
    assert source.describe()
    assert source.channels in (1, 3)
    for index in range(min(4, len(source))):
        assert source[index] is not None


def _cifar(count=2):
    return np.random.default_rng(0).integers(0, 256, (count, 3072), np.uint8)


def _write_cifar_python(folder):
    for number in range(1, 6):
        batch = {"data": _cifar(), "labels": [0, 9], "filenames": ["a", "b"], "batch_label": "x"}
        (folder / f"data_batch_{number}").write_bytes(pickle.dumps(batch, number - 1))


def _write_cifar_binary(folder):
    for number in range(1, 6):
        (folder / f"data_batch_{number}.bin").write_bytes(b"".join(b"\1" + row.tobytes() for row in _cifar()))


def _write_cifar_sheets(folder):
    for number in range(1, 6):
        Image.fromarray(_cifar().reshape(2, 1024, 3)).save(folder / f"data_batch_{number}.png")
    (folder / "train_lables.json").write_text(json.dumps([0, 9] * 5))


def _write_pictures(folder):
    for name in ("cat", "dog"):
        (folder / name).mkdir()
        noise_picture().save(folder / name / "a.png")
    noise_picture(channels=3).save(folder / "cat" / "b.jpg")
    noise_picture(channels=3).save(folder / "cat" / "c.gif")
    noise_picture(channels=3).save(folder / "dog" / "d.tif", compression="tiff_deflate")
    noise_picture(channels=3).save(folder / "dog" / "e.webp")
    noise_picture().save(folder / "dog" / "f.bmp")


PICTURES = ("cat/a.png", "cat/b.jpg", "cat/c.gif", "dog/d.tif", "dog/e.webp", "dog/f.bmp")


def _read_picture(folder):
    for name in PICTURES:
        read_picture(folder / name, name)


def _write_samples(folder):
    rng = np.random.default_rng(0)
    mean, sigma = rng.normal(size=4), np.eye(4)
    np.savez(
        folder / "a.npz", arr_0=rng.integers(0, 256, (3, 8, 8, 3), np.uint8), arr_1=np.arange(3), mu=mean, sigma=sigma
    )


def _read_samples(folder):
    file = SampleFile(folder / "a.npz")
    assert file.batch(0, len(file)).shape == file.shape
    images = open_images(folder / "a.npz")
    assert len(images.batch(0, 1)) == 1
    read_statistics(folder / "a.npz")


def _save_reference(folder):
    toy_pipe().save_pretrained(folder)
    np.savez(folder / "reference.npz", np.zeros((4, 10, 10, 1), np.uint8), np.array([0, 0, 1, 2]))


def _read_reference(folder):
    pipe = toy_pipe()
    pipe.folder = folder
    sample_pictures(pipe)


def _write_note(folder):
    settings = {"sampler": "critic", "steps": 4, "temperature": [1.0, 0.5], "critic_window": [1, 0]}
    facts = {"command": "sample", "model": "MODEL", "settings": settings, "class": 1, "seed": 3}
    save(noise_picture(), folder / "a.png", facts)


def _spoil_note(rng, content):
    """Spoilt facts in a PNG that is whole, or a spoilt PNG."""
    if rng.random() < 0.5:
        return spoil_png(rng, content)
    with Image.open(io.BytesIO(content)) as image:
        facts = json.loads(
            spoil_json(rng, image.info["token-critic"].encode()).decode("utf-8", "replace") or "0", strict=False
        )
    return png_bytes(noise_picture(), pnginfo=png_note(facts))


def _safely(spoil):
    """Without the values that the spoilt file cannot hold."""

    def spoilt(rng, content):
        for _ in range(100):
            try:
                return spoil(rng, content)
            except (ValueError, RecursionError):
                continue
        return b""

    return spoilt


def _read_like(folder):
    read_note(folder / "a.png")
    _like(str(folder / "a.png"))
    _parse(["--like", str(folder / "a.png"), "--out", str(folder / "out")])


def _write_chunk(folder):
    place = Chunks.open(folder, "features", {"a": 1}, 3).folder
    (folder / "key").write_text(place.name)
    (folder / "chunk.npz").write_bytes(sealed({"features": np.zeros((3, 2))}))


def _read_chunk(folder):
    chunks = Chunks.open(folder, "features", {"a": 1}, 3)
    (chunks.folder / "000000.npz").write_bytes((folder / "chunk.npz").read_bytes())
    chunks.whole("features")


def _write_images(folder):
    np.savez(folder / "a.npz", images=IMAGES, labels=LABELS.astype(np.int64), class_names=np.array(["cat", "dog"]))


def _job(folder):
    return TokenizeJob(open_source(folder / "a.npz"), toy_pipe().tokenizer, folder / "out", Preprocess(10, 1))


def _write_unfinished(folder):
    _write_images(folder)
    job = _job(folder)
    job._prepare()
    job._make([0], _Silent())


class _Silent:
    def advance(self, count=1):
        pass


def _resume(folder):
    job = _job(folder)
    job._prepare()
    chunk = read_sealed(job._file(0))
    assert not chunk or chunk["tokens"].shape == (2, 16)


CASES = {
    "npz": Case(_write_images, {"a.npz": spoil_npz}, lambda folder: _read_source(folder / "a.npz")),
    "idx": Case(_write_idx(""), dict.fromkeys(IDX, _spoil_idx), _read_source),
    "idx.gz": Case(_write_idx(".gz"), {f"{name}.gz": _spoil_gzip for name in IDX}, _read_source),
    "CIFAR, Python": Case(_write_cifar_python, {f"data_batch_{n}": spoil_bytes for n in range(1, 6)}, _read_source),
    "CIFAR, binary": Case(_write_cifar_binary, {"data_batch_1.bin": spoil_bytes}, _read_source),
    "CIFAR, sheets": Case(_write_cifar_sheets, {"data_batch_1.png": spoil_png, "train_lables.json": spoil_json}, _read_source),
    "pictures": Case(_write_pictures, dict.fromkeys(PICTURES, spoil_png), _read_source),
    "one picture": Case(_write_pictures, dict.fromkeys(PICTURES, spoil_png), _read_picture),
    "samples": Case(_write_samples, {"a.npz": spoil_npz}, _read_samples),
    "reference of a model": Case(_save_reference, {"reference.npz": spoil_npz}, _read_reference),
    "note": Case(_write_note, {"a.png": _safely(_spoil_note)}, _read_like),
    "chunk": Case(_write_chunk, {"chunk.npz": spoil_bytes}, _read_chunk),
    "unfinished tokens": Case(
        _write_unfinished, {"out/.chunks/settings.json": spoil_json, "out/.chunks/000000.npz": spoil_bytes}, _resume),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_spoilt_file_is_refused_in_one_line(tmp_path, name):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        check(name, CASES[name], tmp_path)


def test_file_names_of_any_kind(tmp_path):
    """Numbers in the names of samples may be of any size."""
    names = [
        "000001_class2.png",
        f"{'9' * 100}_class{'9' * 100}.png",
        "٣_class٣.png",
        "1_class-1.png",
        "\x1b[31m\n.png",
    ]

    def example(rng):
        for file in tmp_path.iterdir():
            file.unlink()
        for name in rng.sample(names, rng.randrange(1, 4)):
            noise_picture().save(tmp_path / name)
        obey(lambda: open_flat_folder(tmp_path).describe())

    run("names", example)
