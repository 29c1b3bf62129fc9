"""Measuring a small model that was really trained: its numbers must stand in the right relation."""

import csv
import json
import shutil

import numpy as np
import pytest

from tokencritic.cli.main import main


def call(*arguments):
    assert main([str(part) for part in arguments]) == 0


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """data.npz of three kinds of stripes; model, trained on it; raw, the same with a generator of one step."""
    place = tmp_path_factory.mktemp("trained")
    rng, labels = np.random.default_rng(0), np.arange(600) % 3
    rows, columns = np.indices((8, 8))
    kinds = np.stack([rows // 2 % 2, columns // 2 % 2, (rows + columns) // 4 % 2])[labels]
    images = kinds * rng.integers(120, 250, (600, 1, 1)) + rng.integers(0, 20, (600, 8, 8))
    np.savez(place / "data.npz", images=images.astype(np.uint8), labels=labels)
    run = (
        "fashion-mnist",
        "--training.batch_size",
        32,
        "--training.held_out",
        0.1,
        "--optimizer.learning_rate",
        0.002,
        "--training.checkpoint_seconds",
        1e9,
    )

    def train(model, name, data, steps, *flags):
        call("train", model, *run, "--data", place / data, "--run", place / name, "--steps", steps, *flags)

    small = ("--model.image_size", 8, "--model.factor", 2, "--model.width", 16, "--model.encoder_kernel", 3)
    train("tokenizer", "t", "data.npz", 150, *small, "--model.codebook_size", 16, "--model.code_width", 8)
    train("classifier", "k", "data.npz", 80, "--model.image_size", 8, "--model.width", 8)
    call("tokenize", place / "t/tokenizer", place / "data.npz", "--out", place / "tokens")
    sizes = ("--model.width", 32, "--model.layers", 2, "--model.heads", 2, "--model.mlp_width", 64)
    for name, steps in (("raw", 1), ("model", 200)):
        train("generator", f"g-{name}", "tokens", steps, *sizes)
        for part in ("t", "k", f"g-{name}"):
            call("export", place / part, place / name)
    train("critic", "c", "tokens", 100, "--generator", place / "model")
    call("export", place / "c", place / "model")
    return place


@pytest.fixture
def measured(place, monkeypatch):
    monkeypatch.setenv("TOKENCRITIC_CACHE", str(place / "cache"))
    return ("--reference", place / "data.npz", "--features", "classifier")


def test_training_lowers_fid_and_raises_the_accuracy(place, measured, tmp_path):
    found = {}
    for name in ("raw", "model"):
        call("evaluate", place / name, *measured, "--num", 150, "--steps", 6, "--out", tmp_path / f"{name}.json")
        found[name] = json.loads((tmp_path / f"{name}.json").read_text())["results"]["value"]["metrics"]
    raw, trained = found["raw"], found["model"]
    assert trained["fid"]["value"] + 3 * trained["fid"]["std"] < 0.5 * raw["fid"]["value"]
    assert trained["accuracy"]["value"] > raw["accuracy"]["value"] + 0.2


def test_tuning_is_no_worse_than_where_it_began_and_the_others_run(place, measured, tmp_path):
    call("tune", place / "model", *measured, "--sampler", "critic", "--nfe", 11, "--budget", 600, "--first", 50)
    evidence = json.loads((place / "model/tuning-critic-11.json").read_text())
    assert json.loads((place / "model/pipeline.json").read_text())["sampling"]["sampler"] == "critic"
    fids = [trial["fid"] for trial in evidence["trials"]]
    longest = max(fids, key=len)
    assert evidence["best"]["temperature"] == evidence["trials"][fids.index(longest)]["settings"]["temperature"]
    # Each round keeps the better half of those that it measured on equally many images.
    for count in list(longest)[:-1]:
        kept = [one[count] for one in fids if len(one) > list(longest).index(count) + 1]
        dropped = [one[count] for one in fids if count in one and len(one) == list(longest).index(count) + 1]
        assert max(kept) <= min(dropped, default=float("inf"))
    call("sweep", place / "model", *measured, "--steps", 2, 6, "--num", 100, "--out", tmp_path / "sweep")
    with (tmp_path / "sweep/sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    assert all(float(row["fid"]) > 0 for row in rows)
    call(
        "compare",
        place / "model",
        *measured,
        "--num",
        60,
        "--steps",
        3,
        "--few_samples",
        "--out",
        tmp_path / "c",
    )


def test_samplers_are_compared_at_equal_nfe(place, measured, tmp_path):
    few = ("--num", 60, "--few_samples", "--metrics", "fid", "--resamples", 0)
    call("compare", place / "model", *measured, *few, "--nfe", 5, 11, "--out", tmp_path)
    results = json.loads((tmp_path / "comparison.json").read_text())["results"]
    rows = [[result["row"][name] for name in ("sampler", "nfe", "steps")] for result in results]
    assert [row[0] for row in rows] == ["confidence", "critic", "random-remask"] * 2
    assert [row[1] for row in rows] == [5, 5, 5, 11, 11, 11]
    assert all(critic[2] < min(maskgit[2], control[2]) for maskgit, critic, control in (rows[:3], rows[3:]))


def test_a_packed_model_needs_no_data_set(place, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TOKENCRITIC_CACHE", str(place / "cache"))
    model = tmp_path / "model"
    shutil.copytree(place / "model", model)
    few = ("--num", 60, "--steps", 3, "--few_samples")
    assert main(["evaluate", str(model), *map(str, few)]) == 2
    assert f"--reference is missing, and {model} includes no reference.npz" in capsys.readouterr().err
    call("pack", model, "--tokens", place / "tokens", "--reference", place / "data.npz", "--split", "train")
    call("evaluate", model, *few, "--out", tmp_path / "own.json")
    given = ("--reference", place / "data.npz", "--features", "classifier")
    call("evaluate", model, *few, *given, "--out", tmp_path / "given.json")
    own, other = (json.loads((tmp_path / f"{name}.json").read_text())["results"]["value"] for name in ("own", "given"))
    assert own["features"]["name"].startswith("classifier")
    assert own["metrics"]["fid"]["value"] == pytest.approx(other["metrics"]["fid"]["value"], rel=1e-6)
    run = ("--run", tmp_path / "run", "--steps", 2, "--training.batch_size", 8, "--objective.temperature", "[1.1, 0.7]")
    call("train", "critic", "fashion-mnist", "--generator", model, *run)
    call("train", "critic", "fashion-mnist", "--generator", model, *run)  # goes on, and finds nothing left to do
    assert (tmp_path / "run/critic/model.safetensors").is_file()


def test_packing_refuses_what_is_not_the_models(place, tmp_path, capsys):
    assert main(["pack", str(place / "model")]) == 2
    assert "--tokens and --reference are both missing" in capsys.readouterr().err
    assert main(["pack", str(tmp_path / "none"), "--tokens", str(place / "tokens")]) == 2
    assert "is not a folder" in capsys.readouterr().err
    assert main(["pack", str(place / "model"), "--tokens", str(place / "t")]) == 2
    assert "has no tokens.json" in capsys.readouterr().err
    assert not (place / "model/tokens.npz").exists()
