"""What the studio made, made again by the command line: the same pixels."""

import shlex

import numpy as np
import pytest
from PIL import Image
from studio.toy import done, noise_picture, png_bytes

from tokencritic.cli.main import main
from tokencritic.studio.views import draw, image_set
from tokencritic.studio.work import png

COMMANDS = [
    {"num": 3, "seed": 4, "classes": ["big dog", "cat"], "sampler": "confidence", "steps": 3, "selection_noise": 2.5},
    {"num": 5, "seed": 2**40, "temperature": [1.1, 0.30000000000000004]},
    {"num": 2, "candidates": 3, "reject_by": "critic", "steps": 2},
]


@pytest.mark.parametrize("values", COMMANDS)
def test_the_command_line_makes_the_same_pixels(pipe, service, values, tmp_path, capsys):
    pipe.save_pretrained(tmp_path / "a model")
    work = service.requests.generate(values)
    result = done(service.submit("me", work))
    words = shlex.split(work.command(pipe, str(tmp_path / "a model"), result.sets[0]))
    assert words.pop(0) == "token-critic"
    assert main([*words, "--out", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    files = sorted((tmp_path / "out").glob("*_class*.png"))
    assert len(files) == values["num"]
    for file, image in zip(files, result.sets[0].images, strict=True):
        with Image.open(file) as made:
            assert np.array_equal(np.asarray(made), np.asarray(image))


def test_the_command_line_refines_to_the_same_pixels(pipe, service, tmp_path, capsys):
    pipe.save_pretrained(tmp_path / "model")
    picture = service.read_upload(png_bytes(noise_picture(40, 30, 3)))
    (tmp_path / "picture.png").write_bytes(png(picture))
    work = service.requests.refine(picture, {"ratio": 0.7, "seed": 11, "steps": 5, "class": "big dog"})
    result = done(service.submit("me", work))
    words = shlex.split(work.command(pipe, str(tmp_path / "model"), result.sets[0]))
    words[words.index("picture.png")] = str(tmp_path / "picture.png")
    assert main([*words[1:], "--out", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    assert (tmp_path / "out" / "000_picture_refined.png").read_bytes() == png(result.sets[0].images[0])


@pytest.mark.parametrize("values", [{"region": [0, 1, 5, 7, 15]}, {"region": [3], "move": [-1, 2]}, {"move": [0, 1]}])
def test_the_command_line_edits_to_the_same_pixels(pipe, service, values, tmp_path, capsys):
    pipe.save_pretrained(tmp_path / "model")
    picture = service.read_upload(png_bytes(noise_picture(40, 30, 3)))
    (tmp_path / "picture.png").write_bytes(png(picture))
    work = service.requests.edit(picture, values | {"seed": 11, "steps": 5})
    result = done(service.submit("me", work))
    words = shlex.split(work.command(pipe, str(tmp_path / "model"), result.sets[0]))
    words[words.index("picture.png")] = str(tmp_path / "picture.png")
    assert main([*words[1:], "--out", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    assert (tmp_path / "out" / "000_picture_edited.png").read_bytes() == png(result.sets[0].images[0])


def test_a_downloaded_image_says_how_to_make_it_again(pipe, service, tmp_path, capsys):
    pipe.save_pretrained(tmp_path / "model")
    service.model = str(tmp_path / "model")
    run = service.submit("me", service.requests.generate({"num": 3, "seed": 7, "temperature": [1.5, 0.5]}))
    made = done(run).sets[0]
    file = tmp_path / "image.png"
    file.write_bytes(draw(service, run, 0, "image", 2))
    assert image_set(service, run, 0)["files"][1:] == ["model-big-dog_seed8.png", "model-owl_seed9.png"]
    assert main(["sample", "--like", str(file), "--out", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    assert (tmp_path / "out" / "000009_class2.png").read_bytes() == file.read_bytes()
    with Image.open(tmp_path / "out" / "000009_class2.png") as again:
        assert np.array_equal(np.asarray(again), np.asarray(made.images[2]))
