"""`token-critic edit`: inside the region images change, outside they do not."""

import numpy as np
import pytest
import torch
from PIL import Image

from tokencritic import Generator, TokenCriticPipeline, TransformerConfig
from tokencritic.cli.main import main
from tokencritic.models.classifier import Classifier, ClassifierConfig
from tokencritic.pictures.look import HIDDEN
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer

SIZES = TransformerConfig(num_tokens=16, codebook_size=16, num_classes=3, width=16, layers=1, heads=2, mlp_width=32)


@pytest.fixture(scope="module")
def pipe():
    """10 x 10 pixels and a margin of one, 4 x 4 tokens of 3 x 3 pixels."""
    torch.manual_seed(0)
    generator = Generator(SIZES)
    parts = (
        CompactTokenizer(CompactConfig(image_size=10, factor=3, margin=1, width=16, codebook_size=16)),
        generator,
        generator.start_critic(),
        Classifier(ClassifierConfig(image_size=10, num_classes=3, width=8)),
    )
    defaults = SamplingSettings(steps=3, temperature=(1.2, 0.8))
    return TokenCriticPipeline(*(part.eval() for part in parts), class_names=("cat", "dog", "owl"), defaults=defaults)


@pytest.fixture(scope="module")
def model(pipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    pipe.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    file = tmp_path_factory.mktemp("images") / "photo.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (10, 10), np.uint8)).save(file)
    return file


def run(*arguments):
    return main([str(argument) for argument in ("edit", *arguments)])


def pixels(file):
    with Image.open(file) as picture:
        return np.asarray(picture)


def region(*places):
    return torch.tensor([place in places for place in range(16)])


def test_the_tokens_that_boxes_touch_are_resampled(pipe, model, image, tmp_path, capsys):
    # Pixels 2 to 4 across are column 1, pixel 5 begins column 2; pixels 0 and 1 down are row 0, pixel 9 is in row 3.
    boxes = ("--region", "2,0,6,2", "--region", "9,9,10,10")
    assert run(model, image, *boxes, "--classes", "owl", "--num", 3, "--seed", 7, "--steps", 5, "--out", tmp_path) == 0
    assert (
        capsys.readouterr().out
        == f"wrote 3 edited images and before_after.png to {tmp_path}: 3 of 16 tokens resampled\n"
    )
    names = [f"00{index}_photo_edited.png" for index in range(3)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*names, "before_after.png"]
    tokens = pipe.encode(Image.open(image)).expand(3, -1)
    expected = pipe.edit(tokens, region(1, 2, 15), "owl", seed=7, num_inference_steps=5)
    for name, picture in zip(names, expected, strict=True):
        assert np.array_equal(pixels(tmp_path / name), np.asarray(picture))
    assert not np.array_equal(*(pixels(tmp_path / name) for name in names[:2]))


def test_the_sheet_shows_what_was_given_what_was_kept_and_the_results(pipe, model, image, tmp_path):
    assert run(model, image, "--region", "3,3,4,4", "--classes", 1, 0, "--num", 2, "--out", tmp_path) == 0
    # Four in a row; 10 pixels drawn 7 times as large, 8 around each, 20 below for the name.
    sheet = pixels(tmp_path / "before_after.png")
    assert sheet.shape == (70 + 20 + 16, 4 * 78 + 8, 3)
    given, kept, first, second = (sheet[8 : 8 + 70 : 7, 8 + 78 * place : 78 + 78 * place : 7] for place in range(4))
    assert np.array_equal(given[..., 0], pixels(image))
    for index, shown in enumerate((first, second)):
        assert np.array_equal(shown[..., 0], pixels(tmp_path / f"00{index}_photo_edited.png"))
    hidden = np.zeros((10, 10), bool)
    hidden[2:5, 2:5] = True  # token 5, whole
    assert (kept[hidden] == HIDDEN).all()
    plain = np.asarray(pipe.images(pipe.encode(Image.open(image)))[0])
    assert np.array_equal(kept[..., 0][~hidden], plain[~hidden])


@pytest.mark.parametrize("shift", [["--shift", "-4,0"], ["--shift=-4,0"]])
def test_an_image_is_moved_and_what_becomes_empty_is_sampled(pipe, model, image, shift, tmp_path, capsys):
    assert run(model, image, *shift, "--region", "0,0,1,1", "--classes", "dog", "--out", tmp_path) == 0
    # Pixels 6 to 9 are empty: columns 2 (pixels 5 to 7) and 3; and the box's token.
    assert "9 of 16 tokens resampled" in capsys.readouterr().out
    moved = pixels(image)[:, np.minimum(np.arange(10) + 4, 9)]
    tokens = pipe.encode(Image.fromarray(moved)).expand(4, -1)
    places = [row * 4 + column for row in range(4) for column in (2, 3)]
    expected = pipe.edit(tokens, region(0, *places), "dog")
    for index, picture in enumerate(expected):
        assert np.array_equal(pixels(tmp_path / f"00{index}_photo_edited.png"), np.asarray(picture))


def test_the_classifier_is_asked_about_the_image_as_it_was_given(pipe, model, image, tmp_path, capsys):
    said = int(pipe.classify(pipe.encode(Image.open(image))))
    asked, told = tmp_path / "asked", tmp_path / "told"
    assert run(model, image, "--shift", "6,3", "--out", asked) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == f"{image}: edited as {pipe.class_names[said]}, predicted by the classifier"
    assert run(model, image, "--shift", "6,3", "--classes", said, "--out", told) == 0
    assert all((told / path.name).read_bytes() == path.read_bytes() for path in asked.iterdir())


def test_colours_and_a_photograph_of_another_shape(tmp_path):
    torch.manual_seed(0)
    tokenizer = CompactTokenizer(CompactConfig(image_size=8, channels=3, width=16, codebook_size=16)).eval()
    sizes = {"num_tokens": 4, "codebook_size": 16, "num_classes": 2, "width": 16, "layers": 1, "heads": 2}
    pipe = TokenCriticPipeline(tokenizer, Generator(TransformerConfig(**sizes, mlp_width=32)).eval())
    pipe.save_pretrained(tmp_path / "model")
    file, out = tmp_path / "wide.png", tmp_path / "out"
    photo = np.random.default_rng(0).integers(0, 256, (8, 14, 3), np.uint8)
    Image.fromarray(photo).save(file)
    assert run(tmp_path / "model", file, "--region", "0,0,8,4", "--classes", 1, "--num", 1, "--out", out) == 0
    sheet = pixels(out / "before_after.png")
    given, kept = (sheet[8:72:8, 8 + 72 * place : 72 + 72 * place : 8] for place in range(2))
    assert np.array_equal(given, photo[:, 3:11])  # the middle square
    assert (kept[:4] == HIDDEN).all()
    tokens = pipe.encode(Image.open(file))
    assert np.array_equal(kept[4:], np.asarray(pipe.images(tokens)[0])[4:])
    (expected,) = pipe.edit(tokens, torch.tensor([True, True, False, False]), 1)
    assert np.array_equal(pixels(out / "000_wide_edited.png"), np.asarray(expected))


def test_sampling_settings_are_those_of_the_command_line(pipe, model, image, tmp_path):
    settings = ("--sampler", "confidence", "--temperature", 0.5, "--selection_noise", 1, "--steps", 4)
    assert run(model, image, "--region", "0,0,10,10", "--classes", 0, "--num", 1, *settings, "--out", tmp_path) == 0
    call = {"sampler": "confidence", "temperature": 0.5, "selection_noise": 1.0, "num_inference_steps": 4}
    (expected,) = pipe.edit(pipe.encode(Image.open(image)), torch.ones(16, dtype=torch.bool), 0, **call)
    assert np.array_equal(pixels(tmp_path / "000_photo_edited.png"), np.asarray(expected))


def test_bad_input_is_one_line_and_nothing_is_written(pipe, model, image, tmp_path, capsys):
    text = tmp_path / "text.png"
    text.write_text("not an image")
    TokenCriticPipeline(pipe.tokenizer, pipe.generator, pipe.critic).save_pretrained(tmp_path / "unread")
    box = ("--region", "0,0,5,5")
    cases = {
        (model, image): "there is nothing to sample; give a --region, or move the image with --shift",
        (model, image, "--region", "1,2,3"): "--region is '1,2,3'; expected LEFT,TOP,RIGHT,BOTTOM",
        (model, image, "--region", "a,b,c,d"): "--region is 'a,b,c,d'",
        (model, image, "--region", "0,0,2.5,5"): "--region is '0,0,2.5,5'",
        (model, image, *box, "--region", "0,0,11,5"): "region is 0,0,11,5; expected",
        (model, image, "--region", "5,0,5,5"): "region is 5,0,5,5; expected",
        (model, image, "--shift", "3"): "--shift is '3'; expected DX,DY",
        (model, image, "--shift", "0,-10"): "shift is 0,-10; it must be smaller",
        (model, image, "--shift", "0,0"): "there is nothing to sample",
        (model, image, *box, "--num", 0): "--num is 0; it must be at least 1",
        (model, image, *box, "--batch_size", 0): "--batch_size is 0",
        (model, image, *box, "--seed", -1): "--seed is -1",
        (model, image, *box, "--steps", 0): "steps is 0",
        (model, image, *box, "--classes", "bird"): "--classes holds 'bird'",
        (model, image, *box, "--classes", 0, 1): "--classes has 2 entries for 4 images",
        (model, image, *box, "--guidance", 2): "guidance",
        (model, text, *box): "text.png is not a readable image",
        (model, tmp_path / "nowhere.png", *box): "nowhere.png is not a readable image: No such file",
        (tmp_path / "unread", image, *box): "no classes are given and the model has no classifier",
        (tmp_path / "nowhere", image, *box): "nowhere",
        (model, *box): "image",
    }
    for arguments, message in cases.items():
        assert run(*arguments, "--out", tmp_path / "out") == 2, arguments
        said, error = capsys.readouterr()
        assert said == ""
        assert error.count("\n") == 1, error
        assert message in error
        assert not (tmp_path / "out").exists(), arguments
