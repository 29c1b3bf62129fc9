"""`token-critic sample` with rejection and in ADM's form."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from tokencritic import TokenCriticPipeline
from tokencritic.cli.arguments import SETTINGS
from tokencritic.cli.main import main
from tokencritic.files import write_json
from tokencritic.pictures import image_grid
from tokencritic.pictures.grids import save
from tokencritic.sampling.model_settings import tuning_file
from tokencritic.sampling.settings import SamplingSettings


def sampled(*arguments):
    assert main(["sample", *map(str, arguments), "--steps", "4"]) == 0


def test_the_sample_file_holds_the_pictures_pixels(pipe, model, tmp_path, capsys):
    sampled(model, "--num", 7, "--seed", 3, "--format", "npz", "--out", tmp_path / "file", "--batch_size", 3)
    said, progress = capsys.readouterr()
    assert said.startswith(f"wrote 7 images to {tmp_path / 'file' / 'samples.npz'} in ")
    assert "sampling: 7 of 7 images" in progress
    assert [path.name for path in (tmp_path / "file").iterdir()] == ["samples.npz"]
    with np.load(tmp_path / "file" / "samples.npz", allow_pickle=False) as arrays:
        images, labels = arrays["arr_0"], arrays["arr_1"]
    assert images.shape == (7, 8, 8, 3)
    assert labels.tolist() == [0, 1, 2, 0, 1, 2, 0]
    expected = pipe([0, 1, 2, 0, 1, 2, 0], seed=3, num_inference_steps=4)
    for image, picture in zip(images, expected, strict=True):
        assert np.array_equal(image, np.asarray(picture.convert("RGB")))


def test_the_flags_are_those_of_the_settings():
    assert [field.name for field in dataclasses.fields(SamplingSettings)] == list(SETTINGS)


def test_the_grid_names_the_classes_or_numbers_them_where_they_have_no_names(pipe, tmp_path):
    unnamed = TokenCriticPipeline(**pipe.parts)
    for each, names in ((pipe, ["cat", "dog", "owl", "cat"]), (unnamed, ["class 0", "class 1", "class 2", "class 0"])):
        each.save_pretrained(tmp_path / "model")
        sampled(tmp_path / "model", "--num", 4, "--out", tmp_path / "out")
        with Image.open(tmp_path / "out" / "grid.png") as grid:
            expected = image_grid(pipe([0, 1, 2, 0], num_inference_steps=4), names=names)
            assert np.array_equal(np.asarray(grid), np.asarray(expected))


def test_images_of_an_earlier_run_are_told_of(model, tmp_path, capsys):
    sampled(model, "--num", 5, "--out", tmp_path)
    sampled(model, "--num", 5, "--out", tmp_path)
    assert "earlier run" not in capsys.readouterr().out
    sampled(model, "--num", 3, "--seed", 3, "--classes", "owl", "--out", tmp_path)
    assert f"note: {tmp_path} holds 5 images of an earlier run too" in capsys.readouterr().out


def test_batches_change_neither_pictures_nor_files(model, tmp_path, capsys):
    for name, size in (("one", 1), ("all", 64)):
        rejecting = ("--candidates", 3, "--reject_by", "critic", "--batch_size", size)
        sampled(model, "--num", 5, "--format", "npz", "--out", tmp_path / name, *rejecting)
        sampled(model, "--num", 5, "--out", tmp_path / name, *rejecting)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "all").iterdir())
    assert len(names) == 5 + 2
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "all" / name).read_bytes() for name in names)
    assert capsys.readouterr().err.count("5 of 5 images") == 2  # progress of the many batches, none of the single one


def test_one_line_says_that_nobody_tuned_the_critic(pipe, tmp_path, capsys):
    model, out = tmp_path / "model", ("--num", 1, "--out", tmp_path / "out")
    pipe.save_pretrained(model)
    note = f"note: the settings of this model are not tuned; `token-critic tune {model} --sampler critic` finds better ones\n"
    sampled(model, *out)
    assert capsys.readouterr().err == note
    chosen = (("--temperature", 0.9), ("--sampler", "confidence"), ("--paper",))
    for flags in chosen:  # the caller chose, or no critic is asked
        sampled(model, *out, *flags)
        assert capsys.readouterr().err == ""
    write_json(tuning_file(model, "critic", 9), {"best": dataclasses.asdict(SamplingSettings("critic")), "models": {}})
    sampled(model, *out)
    sampled("fashion-mnist", *out)  # tuned, as all bundled models are
    assert capsys.readouterr().err == ""


def test_rejection_by_flag_is_rejection_in_the_pipeline(pipe, model, tmp_path):
    sampled(model, "--num", 3, "--classes", "owl", "--candidates", 4, "--out", tmp_path)
    expected = pipe(["owl"] * 3, num_inference_steps=4, candidates=4)
    plain = pipe(["owl"] * 3, num_inference_steps=4)
    pictures = [Image.open(tmp_path / f"{seed:06}_class2.png") for seed in range(3)]
    assert all(np.array_equal(one, other) for one, other in zip(pictures, expected, strict=True))
    assert any(not np.array_equal(one, other) for one, other in zip(pictures, plain, strict=True))


def test_the_papers_algorithm_has_a_flag_that_other_flags_change(pipe, tmp_path):
    defaults = SamplingSettings("confidence", 3, temperature=(0.5, 0.2), schedule="titok", selection_noise=7.0)
    other = TokenCriticPipeline(**pipe.parts, class_names=pipe.class_names, defaults=defaults)
    other.save_pretrained(tmp_path / "model")
    sampled(tmp_path / "model", "--num", 2, "--classes", "owl", "--paper", "--out", tmp_path)
    expected = other(["owl"] * 2, **vars(SamplingSettings("critic", 4)))
    pictures = [Image.open(tmp_path / f"{seed:06}_class2.png") for seed in range(2)]
    assert all(np.array_equal(one, other) for one, other in zip(pictures, expected, strict=True))


def test_the_defaults_of_a_model_may_reject(pipe, tmp_path):
    choosy = TokenCriticPipeline(**pipe.parts, defaults=pipe.settings(steps=4, candidates=3, reject_by="critic"))
    choosy.save_pretrained(tmp_path / "model")
    again = TokenCriticPipeline.from_pretrained(tmp_path / "model")
    assert again.defaults == choosy.defaults
    assert again(0, output_type="pt").equal(pipe(0, output_type="pt", **vars(choosy.defaults)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--candidates", 0), "candidates is 0; it must be an integer, at least 1"),
        (("--candidates", "many"), "--candidates: Expected a int"),
        (("--reject_by", "taste"), "--reject_by"),
        (("--format", "gif"), "--format"),
        (("--batch_size", 0), "--batch_size is 0"),
        (("--seed", -1), "--seed is -1"),
        (("--seed", 2**63 - 2, "--num", 5), "must be an integer from 0 to 2^63 - 5"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(model, tmp_path, capsys, arguments, message):
    assert main(["sample", str(model), "--out", str(tmp_path / "out"), *map(str, arguments)]) == 2
    said, error = capsys.readouterr()
    assert said == ""
    assert error.count("\n") == 1
    assert message in error
    assert not (tmp_path / "out").exists()


def test_a_model_without_a_judge_says_so_before_anything_is_written(pipe, tmp_path, capsys):
    TokenCriticPipeline(pipe.tokenizer, pipe.generator).save_pretrained(tmp_path / "model")
    for by in ("classifier", "critic"):
        arguments = ["--candidates", "2", "--reject_by", by, "--out", str(tmp_path / "out")]
        assert main(["sample", str(tmp_path / "model"), *arguments]) == 2
        assert f"reject_by is {by}, but the model has none" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("ending", ["gif", "png"])
def test_a_trace_shows_the_steps_of_the_very_images_and_does_not_change_them(model, tmp_path, ending):
    sampled(model, "--num", 5, "--out", tmp_path / "plain")
    file = tmp_path / f"steps.{ending}"
    sampled(model, "--num", 5, "--out", tmp_path / "traced", "--trace", file, "--compare", "--batch_size", 2)
    for plain in (tmp_path / "plain").iterdir():
        assert plain.read_bytes() == (tmp_path / "traced" / plain.name).read_bytes()
    with Image.open(file) as picture:
        frames = getattr(picture, "n_frames", 1)
    assert frames == (1 if ending == "png" else 6)  # MaskGIT's steps: as many passes as the critic's three take


def test_a_trace_that_cannot_be_written_is_refused_before_sampling(model, tmp_path, capsys):
    for arguments, message in (
        (["--compare"], "--compare is given without --trace"),
        (["--trace", tmp_path / "a.bmp"], "ends in '.bmp'; expected .gif"),
        (["--trace", tmp_path / "a.gif", "--candidates", 2], "without rejection"),
        (
            ["--trace", tmp_path / "a.gif", "--compare", "--sampler", "random-order"],
            "--compare is for a sampler that re-masks",
        ),
    ):
        assert main(["sample", str(model), "--out", str(tmp_path / "out"), *map(str, arguments)]) == 2
        assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_image_is_made_again_from_its_file(model, tmp_path, capsys):
    flags = ("--seed", 5, "--classes", "owl", "dog", "--temperature", 1.2, 0.4, "--candidates", 2)
    sampled(model, "--num", 3, "--out", tmp_path / "first", *flags)
    file = tmp_path / "first" / "000006_class1.png"
    assert main(["sample", "--like", str(file), "--out", str(tmp_path / "again")]) == 0, capsys.readouterr().err
    assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()
    other = ["sample", str(model), "--like", str(file), "--seed", "9", "--out", str(tmp_path / "other")]
    assert main(other) == 0, capsys.readouterr().err
    assert (tmp_path / "other" / "000009_class1.png").is_file()


def test_a_file_that_says_nothing_makes_no_image(model, tmp_path, capsys):
    sampled(model, "--num", 1, "--out", tmp_path)
    note = {"command": "refine", "model": str(model), "class": 0, "seed": 0, "settings": {}}
    save(Image.new("L", (8, 8)), tmp_path / "refined.png", note)
    save(Image.new("L", (8, 8)), tmp_path / "odd.png", note | {"command": "sample", "settings": {"out": "/"}})
    (tmp_path / "text.png").write_text("a text")
    for name, message in (
        ("grid.png", "says nothing of how it was made"),
        ("refined.png", "was made by 'refine'; expected an image that was sampled"),
        ("odd.png", "holds no model and settings that are known here"),
        ("text.png", "is not a PNG"),
        ("missing.png", "cannot be read"),
    ):
        assert main(["sample", "--like", str(tmp_path / name)]) == 2
        assert message in capsys.readouterr().err
    assert main(["sample"]) == 2
    assert "required: model, or --like FILE" in capsys.readouterr().err
