"""Every family of published generators, from the files to measured samples, by the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

from tokencritic import TokenCriticPipeline
from tokencritic.cli.main import main
from tokencritic.pipeline_folder import load_part

OWN = Path(__file__).parent / "fixtures"
SHARED = Path(__file__).parents[3] / "shared/fixtures"
SHORT = ("--steps", 20, "--training.batch_size", 8, "--training.held_out", 0.1)
# kind: generator, tokenizer, further flags, (images along a side, classes)
CASES = {
    "maskgit": ("maskgit-official/maskgit_checkpoint", "maskgit-official/tokenizer_checkpoint", (), (16, 10)),
    "halton": ("halton-maskgit/generator.pth", "halton-maskgit/tokenizer.pt", ("--heads", 4), (24, 10)),
    "titok-bert": ("titok/generator_vit", "titok/tokenizer", (), (64, 10)),
    "titok-uvit": ("titok/generator_uvit.bin", "titok/tokenizer", ("--heads", 4), (64, 10)),
    "maskbit": (
        "maskbit/maskbit_generator.bin",
        "maskbit/maskbit_tokenizer.bin",
        ("--config", "maskbit/generator.yaml"),
        (64, 10),
    ),
}


def run(*arguments):
    assert main([str(argument) for argument in arguments]) == 0


def found(name):
    """A fixture of the repository, else of the shared folder beside it."""
    places = [place / name for place in (OWN, SHARED) if (place / name).exists()]
    if not places:
        pytest.skip(f"{name} is neither in the repository nor in ../shared/fixtures")
    return places[0]


@pytest.mark.parametrize("case", CASES)
def test_from_published_files_to_measured_samples(case, tmp_path, capsys):
    generator, tokenizer, flags, (side, classes) = CASES[case]
    kind, model, tokens = case.partition("-")[0], tmp_path / "model", tmp_path / "tokens"
    flags = [found(flag) if str(flag).endswith(".yaml") else flag for flag in flags]
    run("import", kind, "--generator", found(generator), "--tokenizer", found(tokenizer), "--out", model, *flags)
    pipe = TokenCriticPipeline.from_pretrained(model)
    assert pipe.published == pipe.defaults
    assert pipe.defaults.sampler == ("halton" if kind == "halton" else "confidence")

    rng = np.random.default_rng(0)
    data = tmp_path / "data.npz"
    np.savez(data, images=rng.integers(0, 256, (32, side, side, 3), np.uint8), labels=np.arange(32) % classes)
    run("sample", model, "--num", 2, "--steps", 4, "--out", tmp_path / "authors")
    run("tokenize", model, data, "--out", tokens)
    source = ("--data", tokens, "--generator", model)
    run("train", "inline-critic", "fashion-mnist", *source, "--run", tmp_path / "head", "--model.width", 16, *SHORT)
    run("export", tmp_path / "head", model)
    assert TokenCriticPipeline.from_pretrained(model).defaults.sampler == "inline"
    run("train", "critic", "fashion-mnist", *source, "--run", tmp_path / "critic", "--model.layers", 1, *SHORT)
    critic = load_part(tmp_path / "critic", "critic")
    assert type(critic) is type(pipe.generator).critic_type
    sizes = ("--model.image_size", side, "--model.width", 8)
    run("train", "classifier", "fashion-mnist", "--data", data, "--run", tmp_path / "classifier", *sizes, *SHORT)
    for part in ("critic", "classifier"):
        run("export", tmp_path / part, model)

    for sampler in ("critic", "inline", "confidence"):
        run("sample", model, "--sampler", sampler, "--steps", 4, "--num", 2, "--out", tmp_path / sampler)
    own = TokenCriticPipeline.from_pretrained(model)
    if kind != "halton":  # the baseline stays the authors' own
        assert own.settings(sampler="confidence") == pipe.defaults
    measured = ("--features", "classifier", "--reference", data, "--few_samples", "--metrics", "fid", "--resamples", 0)
    capsys.readouterr()
    run("evaluate", model, "--num", 8, "--steps", 4, *measured, "--out", tmp_path / "fid.json")
    assert "FID" in capsys.readouterr().out
    assert json.loads((tmp_path / "fid.json").read_text())["results"]
