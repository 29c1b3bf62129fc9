"""`token-critic refine` on image files of every kind."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from tokencritic import TokenCriticPipeline
from tokencritic.cli.main import main


@pytest.fixture
def images(tmp_path):
    """A grey PNG of the model's size, a wide JPEG in colour, a transparent PNG, and a 16-bit one of the same name."""
    rng = np.random.default_rng(0)
    (tmp_path / "deep").mkdir()
    files = [tmp_path / "grey.png", tmp_path / "wide.jpg", tmp_path / "clear.png", tmp_path / "deep" / "grey.png"]
    Image.fromarray(rng.integers(0, 256, (8, 8), np.uint8)).save(files[0])
    Image.fromarray(rng.integers(0, 256, (50, 90, 3), np.uint8)).save(files[1])
    Image.fromarray(rng.integers(0, 256, (9, 9, 4), np.uint8)).save(files[2])
    Image.fromarray(rng.integers(0, 2**16, (20, 12), np.uint16)).save(files[3])
    return files


NAMES = ["000_grey", "001_wide", "002_clear", "003_grey"]


def pixels(file):
    with Image.open(file) as picture:
        return np.asarray(picture)


def test_each_image_comes_back_reconstructed_and_refined(pipe, model, images, tmp_path, capsys):
    out = tmp_path / "out"
    classes = ["cat", "2", "dog", "0"]
    arguments = ["--classes", *classes, "--out", out, "--seed", 4, "--ratio", 0.8, "--steps", 3, "--temperature", 0.9]
    assert main([str(part) for part in ["refine", model, *images, *arguments]]) == 0
    assert capsys.readouterr().out == f"wrote 4 refined images, before_after.png and critic.png to {out}\n"
    expected = [f"{name}_{kind}.png" for name in NAMES for kind in ("reconstructed", "refined")]
    assert sorted(path.name for path in out.iterdir()) == sorted([*expected, "before_after.png", "critic.png"])
    tokens = pipe.encode(Image.open(images[0]))
    assert np.array_equal(pixels(out / "000_grey_reconstructed.png"), np.asarray(pipe.images(tokens)[0]))
    call = {"ratio": 0.8, "num_inference_steps": 3, "seed": 4, "temperature": 0.9}
    assert np.array_equal(pixels(out / "000_grey_refined.png"), np.asarray(pipe.refine(tokens, "cat", **call)[0]))
    assert pixels(out / "003_grey_refined.png").shape == (8, 8)
    # 4 rows of original, reconstruction, refined; 8 pixels drawn 8 times as large, 2 between images.
    sheet = pixels(out / "before_after.png")
    assert sheet.shape == (4 * 66 - 2, 3 * 66 - 2, 3)
    for column, name in ((1, "reconstructed"), (2, "refined")):
        cell = sheet[66 : 66 + 64 : 8, 66 * column : 66 * column + 64 : 8, 0]
        assert np.array_equal(cell, pixels(out / f"001_wide_{name}.png"))
    assert np.array_equal(sheet[:64:8, :64:8, 0], pixels(images[0]))


def test_more_images_than_the_critics_sheet_shows(model, images, tmp_path):
    arguments = ["refine", model, *[images[0]] * 17, "--classes", "owl", "--out", tmp_path / "out", "--steps", 1]
    assert main([str(part) for part in arguments]) == 0
    assert (tmp_path / "out/critic.png").is_file()
    assert len(list((tmp_path / "out").glob("*_refined.png"))) == 17


def test_what_random_remasking_hid_is_not_shown_as_what_a_critic_distrusts(pipe, model, images, tmp_path, capsys):
    arguments = [
        "refine",
        model,
        images[0],
        "--classes",
        "owl",
        "--out",
        tmp_path / "out",
        "--sampler",
        "random-remask",
    ]
    assert main([str(part) for part in arguments]) == 0
    assert capsys.readouterr().out == f"wrote 1 refined images, before_after.png to {tmp_path / 'out'}\n"
    refined = pipe.refine(pipe.encode(Image.open(images[0])), "owl", sampler="random-remask")[0]
    assert np.array_equal(pixels(tmp_path / "out/000_grey_refined.png"), np.asarray(refined))


def test_one_class_for_all_or_as_the_classifier_has_it(pipe, model, images, tmp_path, capsys):
    one, many, asked = (tmp_path / name for name in ("one", "many", "asked"))
    for out, classes in ((one, ["owl"]), (many, ["owl"] * 4)):
        assert main([*map(str, ["refine", model, *images, "--out", out, "--classes", *classes])]) == 0
    assert all((one / path.name).read_bytes() == path.read_bytes() for path in many.iterdir())
    capsys.readouterr()
    assert main([*map(str, ["refine", model, images[0], "--out", asked])]) == 0
    said = int(pipe.classify(pipe.encode(Image.open(images[0]))))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{images[0]}: refined as {pipe.class_names[said]}, predicted by the classifier"
    assert len(lines) == 2


def bomb(path, side=20000):
    """A PNG of 400 million pixels in a few hundred bytes; its header is all that a decoder should look at."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content)


@pytest.mark.filterwarnings("ignore")  # as for a user, whom a warning does not stop
def test_bad_input_is_one_line_and_nothing_is_written(pipe, model, images, tmp_path, capsys):
    text, cut, large, larger = (tmp_path / name for name in ("text.png", "cut.jpg", "large.png", "larger.png"))
    text.write_text("not an image")
    cut.write_bytes(images[1].read_bytes()[:900])
    bomb(large, 10000)  # Pillow only warns of this one
    bomb(larger, 20000)
    TokenCriticPipeline(pipe.tokenizer, pipe.generator).save_pretrained(tmp_path / "plain")
    TokenCriticPipeline(pipe.tokenizer, pipe.generator, pipe.critic).save_pretrained(tmp_path / "unread")
    good = images[0]
    cases = {
        (model, good, text): "text.png is not a readable image: cannot identify image file",
        (model, cut): "cut.jpg is not a readable image: image file is truncated",
        (model, large): "large.png is too large; expected at most 89478485 pixels",
        (model, larger): "larger.png is too large; expected at most 89478485 pixels",
        (model, tmp_path / "nowhere.png"): "nowhere.png is not a readable image: No such file or directory",
        (model, tmp_path): "is not a readable image: Is a directory",
        (model, good, "--ratio", 0): "ratio is 0.0; it must lie in (0, 1]",
        (model, good, "--classes", "bird"): "--classes holds 'bird'",
        (model, good, "--classes", 0, 1): "--classes has 2 entries for 1 images",
        (model, good, "--steps", 0): "steps is 0",
        (model, good, "--sampler", "confidence"): "sampler is confidence",
        (model, good, "--seed", -4): "--seed is -4",
        (model, good, "--batch_size", 0): "batch_size is 0",
        (tmp_path / "plain", good, "--classes", 0): "the model has no critic",
        (tmp_path / "unread", good): "no classes are given and the model has no classifier",
        (model,): "images",
    }
    for arguments, message in cases.items():
        assert main([*map(str, ["refine", *arguments, "--out", tmp_path / "out"])]) == 2, arguments
        said, error = capsys.readouterr()
        assert said == ""
        assert error.count("\n") == 1, error
        assert message in error
        assert not (tmp_path / "out").exists(), arguments
