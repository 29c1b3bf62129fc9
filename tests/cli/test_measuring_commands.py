"""evaluate, sweep, tune and compare as they are typed, on a small model with random weights."""

import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tokencritic import Generator, TokenCriticPipeline, TransformerConfig
from tokencritic.cli import measuring
from tokencritic.cli.main import main
from tokencritic.evaluation import evaluate
from tokencritic.models.classifier import Classifier, ClassifierConfig
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer

VERBS = ("evaluate", "sweep", "tune", "compare")
COMMAND = Path(sys.executable).with_name("token-critic")
SIZES = TransformerConfig(num_tokens=4, codebook_size=16, num_classes=3, width=16, layers=1, heads=2, mlp_width=32)


@pytest.fixture(scope="module")
def make_model(tmp_path_factory):
    def make(critic=True, classifier=True):
        torch.manual_seed(0)
        tokenizer, generator = (
            CompactTokenizer(CompactConfig(image_size=8, width=16, codebook_size=16)),
            Generator(SIZES),
        )
        torch.nn.init.normal_(generator.bias)  # some codes are likelier than others
        parts = {
            "critic": generator.start_critic() if critic else None,
            "classifier": Classifier(ClassifierConfig(image_size=8, num_classes=3, width=8)) if classifier else None,
        }
        folder = tmp_path_factory.mktemp("models") / "model"
        defaults = SamplingSettings(steps=3, temperature=(1.2, 0.8))
        TokenCriticPipeline(tokenizer, generator, **parts, defaults=defaults).save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="module")
def model(make_model):
    return make_model()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "data.npz"
    rng = np.random.default_rng(0)
    np.savez(file, images=rng.integers(0, 256, (120, 8, 8), np.uint8), labels=rng.integers(0, 3, 120))
    return file


@pytest.fixture
def run(capsys, data, tmp_path):
    """Run a verb in this process with classifier features; returns what it printed."""

    def call(verb, *arguments, cache=tmp_path / "cache"):
        common = ("--reference", data, "--features", "classifier", "--cache", cache)
        code = main([str(argument) for argument in (verb, *arguments, *common)])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    return call


@pytest.fixture
def refused(capsys, data, tmp_path):
    """Run a verb that must fail; returns the one line of its error."""

    def call(verb, *arguments):
        code = main([str(argument) for argument in (verb, *arguments, "--cache", tmp_path / "cache")])
        out, err = capsys.readouterr()
        assert code == 2
        assert (out, err.count("\n")) == ("", 1), err
        return err.removeprefix(f"token-critic {verb}: ").strip()

    return call


def test_the_help_names_every_metric():
    assert measuring.METRICS.split(",") == list(evaluate.METRICS)


def metrics(file, name="value"):
    return json.loads(Path(file).read_text())["results"][name]["metrics"]


def test_evaluate_prints_a_table_and_writes_all_there_is_to_know(run, model, tmp_path):
    out = run("evaluate", model, "--num", 60, "--seed", 7, "--steps", 2, "--out", tmp_path / "found.json")
    assert "60 images, critic, 2 steps, temperature 1.2 to 0.8, noise 0.2, 3 NFE, cost " in out
    assert re.search(r" NFE, cost 2\.\d\d, \d+\.\d ms/image$", out, re.MULTILINE)  # the critic is smaller
    assert "reference data.npz (train), 120 images" in out
    assert [line.split("|")[1].strip() for line in out.splitlines() if line.startswith("| ")] == [
        *("", "FID", "KID", "IS", "precision", "recall", "accuracy")
    ]
    written = json.loads((tmp_path / "found.json").read_text())
    assert written["command"].startswith(f"token-critic evaluate {model} --num 60")
    result = written["results"]["value"]
    assert result["images"]["models"]["generator"] == Generator.from_pretrained(model / "generator").fingerprint()
    assert result["images"]["settings"]["steps"] == 2
    assert result["metrics"]["fid"]["std"] > 0
    assert (result["nfe"], result["cost"]) == (3, pytest.approx(3, abs=0.5))


def test_evaluate_refine_measures_before_and_after(run, model, tmp_path):
    out = run("evaluate", model, "--num", 40, "--refine", 0.6, "--metrics", "fid,is", "--out", tmp_path / "found.json")
    assert "40 images, confidence, 3 steps, temperature 1, noise 4.5" in out  # not at the temperature of the critic
    assert "after: 0.6 refined, critic, 9 steps" in out
    before, after = (metrics(tmp_path / "found.json", name) for name in ("before", "after"))
    assert before.keys() == after.keys() == {"fid", "is"}
    assert before["fid"]["value"] != after["fid"]["value"]
    spent = json.loads((tmp_path / "found.json").read_text())["results"]
    assert spent["before"]["cost"] == spent["before"]["nfe"] == 2  # of the generator alone
    assert 2 + 9 < spent["after"]["cost"] < spent["after"]["nfe"]  # the critic is smaller
    own = ("--refine_settings", "steps=3", "temperature=1.2:0.5", "noise_kind=gumbel", "critic_window=1:0.5")
    out = run("evaluate", model, "--num", 40, "--refine", 0.6, *own, "--metrics", "fid,is")
    assert "40 images, confidence, 3 steps, temperature 1, noise 4.5" in out  # as before
    assert "after: 0.6 refined, critic, 3 steps, temperature 1.2 to 0.5, " in out
    assert "Gumbel noise 0.2, critic window 1 to 0.5, " in out
    out = run(
        "evaluate",
        model,
        "--num",
        40,
        "--refine",
        0.6,
        "--refine_settings",
        "sampler=random-remask",
        "--metrics",
        "fid,is",
    )
    assert "after: 0.6 refined, random-remask, 9 steps, " in out


def test_evaluate_says_that_nobody_tuned_the_critic(model, data, tmp_path, capsys):
    common = ("--reference", data, "--features", "classifier", "--num", 40, "--metrics", "is", "--cache", tmp_path)
    for sampler, times in (("critic", 1), ("confidence", 0)):
        assert main([str(word) for word in ("evaluate", model, "--sampler", sampler, *common)]) == 0
        assert capsys.readouterr().err.count("note: the settings of this model are not tuned") == times


def test_images_of_a_model_measure_alike_from_the_model_a_file_and_a_folder(run, model, tmp_path):
    same = ("--num", 45, "--seed", 3, "--steps", 2)
    run("evaluate", model, *same, "--metrics", "fid,accuracy", "--out", tmp_path / "model.json")
    for form, place in (("npz", "file/samples.npz"), ("png", "folder")):
        out = tmp_path / place.split("/")[0]
        assert main([str(x) for x in ("sample", model, *same, "--format", form, "--out", out)]) == 0
        given = ("--classifier", model, "--metrics", "fid,accuracy", "--out", tmp_path / f"{form}.json")
        run("evaluate", tmp_path / place, *given)
        for name, found in metrics(tmp_path / f"{form}.json").items():
            assert found["value"] == pytest.approx(metrics(tmp_path / "model.json")[name]["value"], rel=1e-5)


def test_the_classifier_of_another_model_measures_a_model_without_one(run, make_model, model, tmp_path):
    given = ("--num", 45, "--steps", 2, "--metrics", "fid,accuracy", "--out", tmp_path / "found.json")
    run("evaluate", model, *given)
    own = metrics(tmp_path / "found.json")
    run("evaluate", make_model(classifier=False), "--classifier", model, *given, cache=tmp_path / "other")
    assert metrics(tmp_path / "found.json") == own


def test_reconstructions_and_the_data_set_itself(run, model, data, tmp_path):
    out = run("evaluate", model, "--reconstructions", "--metrics", "fid,kid", "--out", tmp_path / "found.json")
    assert "120 reconstructions by the tokenizer alone" in out
    lost = metrics(tmp_path / "found.json")["fid"]["value"]
    folder = tmp_path / "images"
    folder.mkdir()
    with np.load(data) as opened:
        images = opened["images"]
    for number, pixels in enumerate(images):
        Image.fromarray(pixels).save(folder / f"{number:03}.png")
    run("evaluate", folder, "--classifier", model, "--metrics", "fid", "--out", tmp_path / "same.json")
    assert metrics(tmp_path / "same.json")["fid"]["value"] < 1e-6 < lost
    out = run("evaluate", folder, "--classifier", model, "--metrics", "fid", "--num", 60)
    assert f"60 images of {folder}" in out


def test_two_ranks_give_the_numbers_of_one(model, data, tmp_path):
    def launch(name, *launcher):
        arguments = ["evaluate", model, "--reference", data, "--features", "classifier", "--num", 600, "--steps", 2]
        arguments += ["--seed_sets", 3]
        arguments += ["--cache", tmp_path / name, "--out", tmp_path / f"{name}.json"]
        command = [*launcher, COMMAND, *arguments]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    one = launch("one")
    # Without the dashes the launcher would take --num for an option of its own.
    launcher = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "--no-python",
        "--",
    )
    two = launch("two", *launcher)
    assert metrics(tmp_path / "one.json") == metrics(tmp_path / "two.json")
    one, two = (re.sub(r"[\d.]+ ms/image", "", said) for said in (one, two))
    assert one.replace("one.json", "two.json") == two  # one rank speaks
    chunks = [sorted(file.name for file in (tmp_path / name).glob("tokens/*/*.npz")) for name in ("one", "two")]
    assert chunks[0] == chunks[1] == sorted(3 * ["000000.npz", "000001.npz", "000002.npz"])


def test_sweep_writes_rows_and_figures(run, model, tmp_path):
    out = run(
        *(
            "sweep",
            model,
            "--num",
            40,
            "--samplers",
            "critic",
            "random-order",
            "--steps",
            2,
            "random-order=3",
            "--resamples",
            2,
        ),
        *("--temperatures", "1.0", "1.2:0.6", "--noises", "critic=0.1", "--out", tmp_path / "out"),
    )
    assert "wrote sweep.csv, sweep.json, fid_is.png, fid_recall_precision.png" in out
    assert "4 settings" in out
    rows = list(csv.DictReader((tmp_path / "out/sweep.csv").read_text().splitlines()))
    found = [(row["sampler"], row["steps"], row["temperature_end"], row["selection_noise"]) for row in rows]
    assert found == [
        ("critic", "2", "1.0", "0.1"),
        ("critic", "2", "0.6", "0.1"),
        ("random-order", "3", "1.0", ""),
        ("random-order", "3", "0.6", ""),
    ]
    assert all(math.isfinite(float(row["fid"])) and float(row["is_std"]) > 0 for row in rows)
    for row in rows:  # the critic is smaller than the generator
        cost, nfe = float(row["cost"]), int(row["nfe"])
        assert cost < nfe if row["sampler"] == "critic" else cost == nfe
    assert all(float(row["seconds_per_image"]) > 0 for row in rows)


def test_a_sweep_starts_from_what_tuning_found_at_equal_nfe(run, make_model, tmp_path):
    model = make_model()
    search = ("--sampler", "confidence", "--nfe", 4, "--temperature", 0.9, 0.7, "--budget", 120, "--first", 40)
    run("tune", model, *search, "--keep_defaults")
    best = json.loads((model / "tuning-confidence-4.json").read_text())["best"]
    run("sweep", model, "--num", 40, "--resamples", 0, "--metrics", "fid", "--out", tmp_path / "out")
    critic, maskgit = csv.DictReader((tmp_path / "out/sweep.csv").read_text().splitlines())
    assert [float(maskgit[f"temperature_{end}"]) for end in ("start", "end")] == best["temperature"]
    assert (critic["temperature_start"], critic["temperature_end"]) == ("1.2", "0.8")
    assert int(maskgit["nfe"]) >= int(critic["nfe"]) - 1


def test_a_grey_image_among_coloured_ones_does_not_make_the_reference_grey(tmp_path, capsys):
    images = np.random.default_rng(1).integers(0, 256, (60, 8, 8, 3), np.uint8)
    images[0] = images[0, :, :, :1]
    np.savez(tmp_path / "colours.npz", images=images, labels=np.zeros(60, int))
    (tmp_path / "images").mkdir()
    for index, image in enumerate(images):
        Image.fromarray(image[:, :, 0] if index == 0 else image).save(tmp_path / f"images/{index:02}.png")
    tokenizer = CompactTokenizer(CompactConfig(image_size=8, channels=3, width=16, codebook_size=16))
    classifier = Classifier(ClassifierConfig(image_size=8, channels=3, num_classes=3, width=8))
    TokenCriticPipeline(tokenizer, Generator(SIZES), classifier=classifier).save_pretrained(tmp_path / "model")
    arguments = [
        "--reference",
        tmp_path / "colours.npz",
        "--features",
        "classifier",
        "--classifier",
        tmp_path / "model",
    ]
    arguments += ["--metrics", "fid", "--cache", tmp_path / "cache", "--out", tmp_path / "found.json"]
    assert main([str(part) for part in ("evaluate", tmp_path / "images", *arguments)]) == 0, capsys.readouterr().err
    assert metrics(tmp_path / "found.json")["fid"]["value"] == pytest.approx(0, abs=1e-6)


def test_what_is_tuned_is_what_is_written_to(refused, make_model, tmp_path, monkeypatch):
    """A bare name means the model inside the package, also beside a folder of that name."""
    shutil.copytree(make_model(), tmp_path / "fashion-mnist")
    monkeypatch.chdir(tmp_path)
    assert "fashion-mnist is not a model folder; expected one that can be written to" in refused(
        "tune", "fashion-mnist"
    )


def test_tune_sets_the_defaults_and_compare_uses_the_evidence(run, make_model, tmp_path):
    model = make_model()
    before = (model / "pipeline.json").read_bytes()
    search = ("tune", model, "--nfe", 5, "--budget", 300, "--first", 40)
    out = run(*search, "--keep_defaults")
    assert out.splitlines()[-2].startswith("240 images in 2 rounds; best: critic, 4 steps")
    assert (model / "pipeline.json").read_bytes() == before
    assert run(*search).startswith(out)  # the same search, now from the cache
    evidence = json.loads((model / "tuning-critic-5.json").read_text())
    assert TokenCriticPipeline.from_pretrained(model).defaults == SamplingSettings(**evidence["best"])
    kept = (model / "pipeline.json").read_bytes()
    other = ("--sampler", "confidence", "--nfe", 4, "--temperature", 0.55, "--selection_noise", 3)
    run("tune", model, *other, "--budget", 150, "--first", 40, "--keep_defaults")
    assert (model / "pipeline.json").read_bytes() == kept
    trials = [trial["settings"] for trial in json.loads((model / "tuning-confidence-4.json").read_text())["trials"]]
    assert ([0.55, 0.55], 3) in [
        (trial["temperature"], trial["selection_noise"]) for trial in trials
    ]  # the search starts there
    out = run(
        "compare", model, "--num", 40, "--steps", 2, "--candidates", 2, "--resamples", 2, "--out", tmp_path / "out"
    )
    results = json.loads((tmp_path / "out/comparison.json").read_text())["results"]
    rows = {one["name"]: one["row"] for one in results}
    assert len(rows) == 6 + 2 * 2
    start, end = evidence["best"]["temperature"]
    for name in ("Token-Critic", "Random re-masking"):  # the control has the critic's
        assert float(rows[f"{name}, 2 steps"]["temperature_start"]) == start
    assert float(rows["Token-Critic, 2 steps, best 50 % by the classifier"]["temperature_end"]) == end
    assert int(rows["MaskGIT, 4 steps"]["nfe"]) > int(rows["MaskGIT, 2 steps"]["nfe"])
    assert "| MaskGIT, 2 steps, refined by the critic" in out
    assert (tmp_path / "out/comparison.md").read_text() in out


def test_an_interrupted_comparison_leaves_the_rows_that_are_done(run, model, tmp_path, monkeypatch):
    measure = evaluate.Meter.__call__
    lines = iter(["measured", "measured"])

    def interrupted(*arguments):
        if not next(lines, None):
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(evaluate.Meter, "__call__", interrupted)
    with pytest.raises(AssertionError, match="token-critic compare: interrupted"):
        run("compare", model, "--num", 40, "--steps", 2, "--metrics", "is", "--out", tmp_path / "out")
    results = json.loads((tmp_path / "out/comparison.json").read_text())["results"]
    assert [one["name"] for one in results] == ["MaskGIT, 2 steps", "Token-Critic, 2 steps"]


def test_a_model_without_critic_and_classifier_is_compared_as_far_as_it_goes(run, make_model, model, tmp_path, refused):
    plain = make_model(critic=False, classifier=False)
    message = refused("compare", plain, "--reference", tmp_path, "--features", "classifier", "--num", 40)
    assert message == "--features is classifier, but the model has none; choose inception"
    out = run("compare", make_model(critic=False), "--num", 40, "--steps", 2, "--resamples", 0)
    assert [line.split("|")[1].strip() for line in out.splitlines() if line.startswith("| ")] == [
        *("", "MaskGIT, 2 steps", "MaskGIT, 4 steps")
    ]


def test_bad_input_is_one_line_and_nothing_is_sampled(refused, model, make_model, data, tmp_path):
    images = tmp_path / "images.npz"
    np.savez(images, arr_0=np.zeros((40, 8, 8, 3), np.uint8))
    pickled = tmp_path / "pickled.npz"
    np.savez(pickled, arr_0=np.array([{}], dtype=object))
    measured = ("--reference", data, "--features", "classifier")
    cases = {
        ("evaluate", model, *measured, "--num", 32): "32 images are too few for FID with features of 32 dimensions",
        ("evaluate", model, *measured, "--metrics", "fid,fod"): "--metrics holds 'fod'",
        ("evaluate", model, *measured, "--metrics", ","): "--metrics is empty",
        ("evaluate", model, *measured, "--num", 0): "num is 0",
        ("evaluate", model, *measured, "--seed_sets", 0): "seed_sets is 0",
        ("evaluate", model, *measured, "--refine", 2): "refinement ratio is 2.0",
        ("evaluate", model, *measured, "--refine_settings", "steps=3"): "--refine_settings is given without --refine",
        ("evaluate", model, *measured, "--guidance", 2): "guidance is 2.0; expected 1 for a generator without",
        (
            "evaluate",
            model,
            *measured,
            "--reference_num",
            500,
            "--num",
            40,
        ): "num is 500; the data set has 120",
        ("evaluate", model, "--reference", tmp_path / "no", "--features", "classifier", "--num", 40): "does not exist",
        ("evaluate", model, "--features", "classifier"): "reference",
        ("evaluate", model, "--reference", data, "--inception", "no.pth"): "no.pth is not a file",
        ("evaluate", images, *measured): "--features is classifier, but the model has none",
        ("evaluate", images, *measured, "--num", 20, "--classifier", model): "images.npz is used as a whole",
        ("evaluate", images, *measured, "--seed_sets", 3): "--seed_sets is for models",
        ("evaluate", images, *measured, "--steps", 3): "--steps is for models",
        ("evaluate", pickled, *measured, "--classifier", model): "pickled.npz",
        ("sweep", model, *measured, "--noises", "best=1"): "--noises holds 'best=1'; expected a value, or",
        ("sweep", model, *measured, "--steps", "1.5"): "--steps holds 'steps=1.5', whose value is no int",
        ("sweep", model, *measured, "--temperatures", "1:2:3"): "--temperatures has 3 numbers",
        ("sweep", model, *measured, "--steps", 0): "steps is 0",
        ("sweep", model, *measured, "--steps", "halton=4"): "--steps holds 'halton=4'; --samplers has no halton",
        ("evaluate", model, *measured, "--out", tmp_path): "which is a folder; expected a file to write",
        ("tune", model, *measured, "--budget", 10, "--first", 40): "budget is 10 images; expected at least 80",
        ("tune", model, *measured, "--nfe", 0): "--nfe is 0; it must be at least 1",
        ("tune", model, *measured, "--budget", 0): "--budget is 0; it must be at least 1",
        ("tune", model, *measured, "--steps", 9): "--steps is 9; --nfe fixes the steps of every trial",
        ("tune", tmp_path / "nowhere", *measured): "is not a model folder; expected one that can be written to",
        ("tune", model, *measured, "--budget", 200, "--first", 20): "20 images are too few for FID",
        ("compare", model, *measured, "--steps", 0): "steps is 0; it must be",
        ("compare", model, *measured, "--nfe", 0): "--nfe is 0; it must be at least 1",
        ("compare", model, *measured, "--candidates", 1): "--candidates is 1; it must be at least 2",
        ("compare", model, *measured, "--candidates", 5, "--nfe", 9): "give one of them",
    }
    cases |= {(verb, model, *measured, "--device", "cud"): "--device is cud" for verb in VERBS}
    if not torch.cuda.is_available():
        cases |= {(verb, model, *measured, "--device", "cuda"): "--device is cuda, which cannot" for verb in VERBS}
    for arguments, message in cases.items():
        assert message in refused(*arguments), arguments
    assert not list((tmp_path / "cache").glob("tokens/*/*.npz"))
