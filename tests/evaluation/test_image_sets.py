"""Image sets from folders and files, and their errors."""

import os

import numpy as np
import pytest
from PIL import Image

from tokencritic.data.sources import open_source
from tokencritic.errors import InputError
from tokencritic.evaluation.image_sets import SourceImages, open_images

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (7, 6, 5, 3), np.uint8)


@pytest.fixture
def folder(tmp_path):
    for number, pixels in enumerate(PIXELS):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    return tmp_path


def test_a_flat_folder_of_images(folder):
    images = open_images(folder)
    assert (len(images), images.image_size, images.labels) == (7, (6, 5), None)
    assert np.array_equal(images.batch(2, 5), PIXELS[2:5])
    state = images.facts["state"]
    os.utime(folder / "3.png", ns=(1, 1))
    assert open_images(folder).facts["state"] != state  # rewritten, perhaps with another image


def test_a_folder_that_the_sample_command_wrote(tmp_path):
    for number in range(3):
        Image.fromarray(PIXELS[number]).save(tmp_path / f"{number:06}_class{number % 2}.png")
    Image.new("RGB", (50, 50)).save(tmp_path / "grid.png")
    images = open_images(tmp_path)
    assert np.array_equal(images.batch(0, 3), PIXELS[:3])
    assert images.labels.tolist() == [0, 1, 0]


@pytest.mark.parametrize("odd", [False, True])
def test_a_folder_that_the_sample_command_wrote_without_classes(tmp_path, odd):
    for number in range(3):
        Image.fromarray(PIXELS[number]).save(tmp_path / f"{number:06}.png")
    Image.fromarray(PIXELS[3]).save(tmp_path / "grid.png")
    if odd:  # then they are anybody's images
        Image.fromarray(PIXELS[4]).save(tmp_path / "holiday.png")
    images = open_images(tmp_path)
    assert np.array_equal(images.batch(0, len(images)), PIXELS[:5] if odd else PIXELS[:3])
    assert images.labels is None


def test_class_folders(tmp_path):
    for number in range(4):
        (tmp_path / f"class{number % 2}").mkdir(exist_ok=True)
        Image.fromarray(PIXELS[number]).save(tmp_path / f"class{number % 2}" / f"{number}.png")
    images = open_images(tmp_path)
    assert images.labels.tolist() == [0, 0, 1, 1]
    assert np.array_equal(images.batch(0, 4), PIXELS[[0, 2, 1, 3]])


def test_a_sample_file_is_read_in_any_order(tmp_path):
    for name, save in (("plain", np.savez), ("packed", np.savez_compressed)):
        save(tmp_path / f"{name}.npz", arr_0=PIXELS, arr_1=np.arange(7))
        images = open_images(tmp_path / f"{name}.npz")
        assert (len(images), images.image_size, images.labels.tolist()) == (7, (6, 5), list(range(7)))
        for start, stop in ((5, 7), (0, 3), (2, 4)):
            assert np.array_equal(images.batch(start, stop), PIXELS[start:stop])


def test_a_file_without_samples_is_a_data_set(tmp_path):
    np.savez(tmp_path / "data.npz", images=PIXELS, labels=np.arange(7))
    images = open_images(tmp_path / "data.npz", num=3)
    assert images.labels.tolist() == [0, 2, 4]
    assert np.array_equal(images.batch(0, 3), PIXELS[[0, 2, 4]])


def test_a_share_of_a_data_set_is_evenly_spaced(tmp_path):
    np.savez(tmp_path / "data.npz", images=PIXELS[:, :5], labels=np.arange(7))
    images = SourceImages(open_source(tmp_path / "data.npz"), 5, 3, num=3)
    assert images.labels.tolist() == [0, 2, 4]
    assert np.array_equal(images.batch(0, 3), PIXELS[[0, 2, 4], :5])


def test_bad_images_are_named(folder, tmp_path):
    (folder / "8.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"corrupt files, .*8\.png"):
        open_images(folder).batch(6, 8)
    Image.new("RGB", (5, 5)).save(folder / "8.png")
    with pytest.raises(InputError, match=r"8.png is 5 x 5, others are 5 x 6"):
        open_images(folder).batch(6, 8)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no image"):
        open_images(tmp_path / "empty")
    for name, arrays in {"pickled": {"arr_0": np.array([{}], dtype=object)}, "none": {"x": PIXELS}}.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
        with pytest.raises(InputError, match=f"{name}.npz"):
            open_images(tmp_path / f"{name}.npz")
    np.savez(tmp_path / "labels.npz", arr_0=PIXELS, arr_1=np.arange(6))
    with pytest.raises(InputError, match=r"labels.npz holds labels int64 \(6,\)"):
        open_images(tmp_path / "labels.npz")
