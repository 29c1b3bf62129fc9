"""Folders of class folders: labels, names, splits, odd image modes and files that cannot be decoded."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tokencritic.data.source import read_image
from tokencritic.data.sources import open_source
from tokencritic.errors import InputError


def save(file: Path, color: object = (10, 20, 30), mode: str = "RGB", **options: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (6, 4), color).save(file, **options)  # pyright: ignore[reportArgumentType]


def test_labels_follow_sorted_folders_and_files(tmp_path: Path) -> None:
    for number, name in enumerate(["dog/b.png", "dog/a.PNG", "cat/images/z.jpeg", "cat/deep/er/y.png"]):
        save(tmp_path / name, (number, 0, 0))
    (tmp_path / "dog/notes.txt").write_text("not an image")
    (tmp_path / "dog/.hidden.png").write_bytes(b"")
    (tmp_path / ".cache").mkdir()
    source = open_source(tmp_path)
    assert source.class_names == ("cat", "dog")
    assert [source.name(index) for index in range(len(source))] == [
        "cat/deep/er/y.png",
        "cat/images/z.jpeg",
        "dog/a.PNG",
        "dog/b.png",
    ]
    assert [example[1] for example in source] == [0, 0, 1, 1]  # pyright: ignore
    assert source[3][0].getpixel((0, 0)) == (0, 0, 0)  # pyright: ignore
    assert source[2][0].getpixel((0, 0)) == (1, 0, 0)  # pyright: ignore


def test_splits(tmp_path: Path) -> None:
    for name in ("train/a/1.png", "train/a/2.png", "train/b/1.png", "val/a/1.png", "val/b/1.png"):
        save(tmp_path / name)
    assert len(open_source(tmp_path)) == 3
    assert len(open_source(tmp_path, "test")) == 2
    assert len(open_source(tmp_path / "val")) == 2
    with pytest.raises(InputError, match="no val or validation or valid or test folder"):
        open_source(tmp_path / "train", "test")


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    save(tmp_path / "train/1.png")
    save(tmp_path / "ship/1.png")
    assert open_source(tmp_path).class_names == ("ship", "train")


def test_images_without_class_folders_have_no_classes(tmp_path: Path) -> None:
    for number, name in enumerate(["b.png", "a.PNG", "c.jpeg", ".hidden.png"]):
        save(tmp_path / name, (number, 0, 0))
    (tmp_path / "notes.txt").write_text("not an image")
    source = open_source(tmp_path, max_corrupt=1)
    assert (source.class_names, source.labels.tolist(), source.max_corrupt) == ((), [-1, -1, -1], 1)
    assert [source.name(index) for index in range(3)] == ["a.PNG", "b.png", "c.jpeg"]
    assert source[1][0].getpixel((0, 0)) == (0, 0, 0)  # pyright: ignore
    with pytest.raises(InputError, match="no val or validation or valid or test folder"):
        open_source(tmp_path, "test")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty has no class folders and no images; expected one folder per class"):
        open_source(tmp_path / "empty")


def test_empty_class_folder(tmp_path: Path) -> None:
    save(tmp_path / "a/1.png")
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match=r"b holds no image"):
        open_source(tmp_path)


@pytest.mark.parametrize(
    ("mode", "color", "suffix", "expected_mode", "expected"),
    [
        ("L", 77, "png", "L", 77),
        ("1", 1, "png", "L", 255),
        ("LA", (100, 0), "png", "L", 255),
        ("LA", (100, 255), "png", "L", 100),
        ("RGBA", (200, 100, 0, 0), "png", "RGB", (255, 255, 255)),
        ("RGBA", (200, 100, 0, 255), "png", "RGB", (200, 100, 0)),
        ("RGBA", (200, 100, 0, 51), "png", "RGB", (244, 224, 204)),
        ("I;16", 65535, "png", "L", 255),
        ("I;16", 32896, "png", "L", 128),
        ("I;16", 257, "tif", "L", 1),
        ("CMYK", (0, 255, 255, 0), "tif", "RGB", (255, 0, 0)),
        ("CMYK", (255, 255, 255, 255), "jpg", "RGB", (0, 0, 0)),
    ],
)
def test_modes(tmp_path: Path, mode: str, color: object, suffix: str, expected_mode: str, expected: object) -> None:
    save(tmp_path / f"x.{suffix}", color, mode)
    image = read_image(tmp_path / f"x.{suffix}")
    assert image.mode == expected_mode
    assert image.getpixel((2, 2)) == expected


def test_palette_with_and_without_transparency(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "plain.png")
    image.save(tmp_path / "index.png", transparency=1)
    image.save(tmp_path / "table.png", transparency=b"\xff\x00")
    assert np.asarray(read_image(tmp_path / "plain.png")).tolist() == [[[255, 0, 0], [0, 0, 255]]]
    for name in ("index.png", "table.png"):
        assert np.asarray(read_image(tmp_path / name)).tolist() == [[[255, 0, 0], [255, 255, 255]]]


def test_one_transparent_colour(tmp_path: Path) -> None:
    save(tmp_path / "x.png", (1, 2, 3), transparency=(1, 2, 3))
    assert read_image(tmp_path / "x.png").getpixel((0, 0)) == (255, 255, 255)


def test_exif_rotation(tmp_path: Path) -> None:
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[0, 0] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise
    Image.fromarray(pixels).save(tmp_path / "x.png", exif=exif)
    upright = np.asarray(read_image(tmp_path / "x.png"))
    np.testing.assert_array_equal(upright, np.rot90(pixels, -1))


@pytest.mark.parametrize(
    "tags",
    [  # on which Pillow raises struct.error, AttributeError and TypeError
        "0003010f00020000000600000032011200030000000100060000012800050000000100000038003500006d616b5672000000004800000001",
        "0003010f00020000000600000032011200030000000100060000010f000500000001000000380000000037616b6572000000004800000001",
        "0003011f00020000000600000032011200030000000100060000011a0021000000013b000038000000006d616b6572000000004800000001",
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_odd_exif_does_not_cost_the_picture(tmp_path: Path, tags: str) -> None:
    exif = b"Exif\0\0MM\0*\0\0\0\x08" + bytes.fromhex(tags)
    Image.new("RGB", (8, 6), "red").save(tmp_path / "x.jpg", exif=exif)
    assert sorted(read_image(tmp_path / "x.jpg").size) == [6, 8]


def make_corrupt(folder: Path, count: int, whole: int = 3) -> None:
    for number in range(whole):
        save(folder / f"a/w{number}.png")
    for number in range(count):
        save(folder / f"a/c{number}.jpg")
        file = folder / f"a/c{number}.jpg"
        file.write_bytes(file.read_bytes()[: -40 if number % 2 else 0])


def test_corrupt_files_are_skipped_and_listed(tmp_path: Path) -> None:
    make_corrupt(tmp_path, 2)
    source = open_source(tmp_path, max_corrupt=2)
    assert [example is None for example in source] == [True, True, False, False, False]  # pyright: ignore
    assert source[0] is None  # read twice, counted once
    assert sorted(source.corrupt) == ["a/c0.jpg", "a/c1.jpg"]
    assert all(source.corrupt.values())


def test_too_many_corrupt_files(tmp_path: Path) -> None:
    make_corrupt(tmp_path, 2)
    source = open_source(tmp_path, max_corrupt=1)
    with pytest.raises(InputError, match=r"2 corrupt files, more than max_corrupt 1: a/c0\.jpg \(.+\); a/c1\.jpg"):
        [source[index] for index in range(5)]


def test_a_file_that_went_away_is_not_called_corrupt(tmp_path: Path) -> None:
    make_corrupt(tmp_path, 0)
    source = open_source(tmp_path)
    (tmp_path / "a/w1.png").unlink()
    with pytest.raises(InputError, match=r"w1\.png cannot be read: No such file"):
        source[1]
    assert not source.corrupt
