"""From a folder of images without classes to a model that samples, with every part trained by the commands."""

import json

import numpy as np
import pytest
from PIL import Image

from tokencritic import TokenCriticPipeline
from tokencritic.cli.main import main
from tokencritic.models.generator import Generator

SMALL = ("--model.width", 16, "--model.heads", 2, "--model.mlp_width", 32, "--model.layers", 1)
TINY = ("--model.image_size=8", "--model.factor=4", "--model.margin=0", "--model.width=16", "--model.codebook_size=16")


def call(*arguments):
    return main([str(argument) for argument in arguments])


def train(model, data, run, *flags):
    short = ("--steps", 2, "--training.batch_size", 8, "--training.held_out", 0.25)
    assert call("train", model, "fashion-mnist", "--data", data, "--run", run, *short, *flags) == 0


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Runs of all parts, and the model that they make."""
    place = tmp_path_factory.mktemp("plain")
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), np.uint8)
    (place / "images").mkdir()
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(place / "images" / f"photo {number:02}.png")
    np.savez(place / "labelled.npz", images=pixels, labels=np.arange(40) % 3)
    train("tokenizer", place / "images", place / "t", *TINY)
    assert call("export", place / "t", place / "model") == 0
    assert call("tokenize", place / "model", place / "images", "--out", place / "tokens") == 0
    train("generator", place / "tokens", place / "g", *SMALL, "--tokenizer", place / "t")
    train("critic", place / "tokens", place / "c", "--generator", place / "g")
    train("inline-critic", place / "tokens", place / "i", "--generator", place / "g")
    train("classifier", place / "labelled.npz", place / "k", "--model.image_size", 8, "--model.width", 8)
    for run in ("g", "c", "i", "k"):
        assert call("export", place / run, place / "model") == 0
    return place


def test_every_part_is_without_classes(place, capsys):
    facts = json.loads((place / "model/pipeline.json").read_text())
    assert facts["class_names"] == []
    pipe = TokenCriticPipeline.from_pretrained(place / "model")
    assert pipe.parts.keys() == {"tokenizer", "generator", "critic", "inline_critic", "classifier"}
    assert [pipe.parts[name].num_classes for name in ("generator", "critic", "inline_critic")] == [0, 0, 0]
    assert (place / "g/pictures/samples.png").exists()
    assert call("tokenize", place / "model", place / "images", "--out", place / "tokens") == 0
    assert "40 images of 4 tokens, without classes" in capsys.readouterr().out


@pytest.mark.parametrize("sampler", ["confidence", "critic", "inline"])
def test_it_samples(place, tmp_path, sampler, capsys):
    flags = ("--sampler", sampler, "--steps", 4, "--num", 3, "--seed", 7)
    assert call("sample", place / "model", *flags, "--out", tmp_path) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000007.png", "000008.png", "000009.png", "grid.png"]
    pipe = TokenCriticPipeline.from_pretrained(place / "model")
    expected = pipe(num_images_per_label=3, seed=7, sampler=sampler, num_inference_steps=4)
    for number, image in enumerate(expected):
        assert np.array_equal(np.asarray(Image.open(tmp_path / f"00000{7 + number}.png")), np.asarray(image))
    assert call("sample", place / "model", *flags[:4], "--num", 1, "--out", tmp_path) == 0
    assert f"note: {tmp_path} holds 3 images of an earlier run too" in capsys.readouterr().out


def test_its_samples_are_measured_from_a_folder_too(place, tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENCRITIC_CACHE", str(tmp_path / "cache"))
    flags = ("--reference", place / "images", "--few_samples", "--resamples", 0)
    model = (place / "model", "--features", "classifier", "--num", 20, "--steps", 3)
    assert call("evaluate", *model, *flags, "--out", tmp_path / "model.json") == 0
    assert call("sample", place / "model", "--num", 20, "--steps", 3, "--out", tmp_path / "images") == 0
    images = (tmp_path / "images", "--features", "classifier", "--classifier", place / "model")
    assert call("evaluate", *images, *flags, "--out", tmp_path / "images.json") == 0
    one, other = (
        json.loads((tmp_path / f"{name}.json").read_text())["results"]["value"] for name in ("model", "images")
    )
    assert one["metrics"]["fid"]["value"] == pytest.approx(
        other["metrics"]["fid"]["value"], rel=0.05
    )  # 8 bits of a pixel
    assert "accuracy" not in one["metrics"]


def test_a_generator_may_leave_the_classes_of_its_tokens_out(place, tmp_path):
    assert call("tokenize", place / "t", place / "labelled.npz", "--out", tmp_path / "tokens") == 0
    train("generator", tmp_path / "tokens", tmp_path / "g", *SMALL, "--model.num_classes", 0)
    assert Generator.from_pretrained(tmp_path / "g/generator").num_classes == 0
    train("critic", tmp_path / "tokens", tmp_path / "c", "--generator", tmp_path / "g", "--start", "random", *SMALL)
    for run in (place / "t", tmp_path / "g", tmp_path / "c"):
        assert call("export", run, tmp_path / "model") == 0
    assert TokenCriticPipeline.from_pretrained(tmp_path / "model")(output_type="pt").shape == (1, 1, 8, 8)


def test_what_needs_classes_says_so(place, tmp_path, capsys):
    labelled = tmp_path / "tokens"
    assert call("tokenize", place / "t", place / "labelled.npz", "--out", labelled) == 0
    train("generator", labelled, tmp_path / "g", *SMALL)
    critic = ("train", "critic", "fashion-mnist", "--data", place / "tokens", "--generator", tmp_path / "g")
    classifier = ("train", "classifier", "fashion-mnist", "--data", place / "images")
    cases = {
        ("sample", place / "model", "--classes", 1): "--classes is ['1'], and the model has no classes; leave it out",
        ("sample", place / "model", "--guidance", 2): "guidance is 2.0; expected 1 for a generator without null_class",
        ("sample", place / "model", "--candidates", 2): "reject_by is classifier, which needs classes",
        ("evaluate", place / "model", "--metrics", "accuracy", "--reference", place / "images", "--features", "classifier",
         "--few_samples", "--num", 4): "metrics holds accuracy, which needs the images' labels",
        (*critic, "--run", tmp_path / "no"): "the generator's num_classes is 3; expected 0, as in the tokens",
        (*classifier, "--run", tmp_path / "no"): "holds images without classes; a classifier needs their classes",
        ("train", "generator", "fashion-mnist", "--data", place / "tokens", "--run", tmp_path / "no",
         "--model.null_class", "true"): "null_class is true but num_classes is 0",
    }  # fmt: skip
    for arguments, message in cases.items():
        capsys.readouterr()
        assert call(*arguments, *(("--out", tmp_path / "no") if arguments[0] == "sample" else ())) == 2, arguments
        assert message in capsys.readouterr().err
        assert not (tmp_path / "no").exists()
