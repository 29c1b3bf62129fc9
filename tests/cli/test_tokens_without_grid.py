"""Every command on a model whose tokens have no grid: TiTok with random weights."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from tokencritic import TokenCriticPipeline
from tokencritic.cli.main import main
from tokencritic.models.classifier import Classifier, ClassifierConfig
from tokencritic.models.titok import BertConfig, BertGenerator
from tokencritic.models.uvit import UViTConfig, UViTGenerator
from tokencritic.pipeline_folder import load_part
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.tokenizers.titok import TiTok, TiTokConfig

SIZES = {"num_tokens": 6, "codebook_size": 16, "num_classes": 3, "width": 16, "layers": 3, "heads": 2, "mlp_width": 32}
WIDTHS = {"encoder_width": 64, "encoder_layers": 1, "decoder_width": 64, "decoder_layers": 1}
TOKENIZER = TiTokConfig(8, 3, 32, (1, 1), 1, codebook_size=16, code_width=4, num_tokens=6, **WIDTHS)


@pytest.fixture(scope="module", params=[BertGenerator(BertConfig(**SIZES)), UViTGenerator(UViTConfig(**SIZES))])
def model(request, tmp_path_factory):
    torch.manual_seed(0)
    generator, folder = request.param, tmp_path_factory.mktemp("models") / "model"
    classifier = Classifier(ClassifierConfig(image_size=8, channels=3, num_classes=3, width=8))
    parts = (TiTok(TOKENIZER), generator, generator.start_critic(), classifier)
    defaults = SamplingSettings("confidence", 4, schedule="titok", guidance=2.0, guidance_schedule="linear")
    TokenCriticPipeline(*(part.eval() for part in parts), defaults=defaults).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "data.npz"
    rng = np.random.default_rng(0)
    np.savez(file, images=rng.integers(0, 256, (80, 8, 8, 3), np.uint8), labels=rng.integers(0, 3, 80))
    return file


@pytest.fixture(scope="module")
def tokens(model, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens") / "tokens"
    assert run("tokenize", model, data, "--out", folder) == 0
    return folder


@pytest.fixture
def picture(tmp_path):
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (8, 8, 3), np.uint8)).save(tmp_path / "picture.png")
    return tmp_path / "picture.png"


def run(*arguments):
    return main([str(argument) for argument in arguments])


@pytest.mark.parametrize("sampler", ["confidence", "critic", "halton"])
@pytest.mark.parametrize("ending", ["gif", "png"])
def test_sampling_shows_its_steps(model, tmp_path, sampler, ending):
    trace, compare = tmp_path / f"steps.{ending}", ["--compare"] if sampler == "critic" else []
    assert run("sample", model, "--num", 3, "--sampler", sampler, "--out", tmp_path, "--trace", trace, *compare) == 0
    with Image.open(trace) as steps:
        assert steps.width > 600


def test_refining_shows_what_the_critic_trusts(model, picture, tmp_path):
    assert run("refine", model, picture, "--classes", 1, "--out", tmp_path / "out") == 0
    assert (tmp_path / "out/critic.png").is_file()


def test_no_region_can_be_edited(model, picture, tmp_path, capsys):
    for where in (("--region", "0,0,4,4"), ("--shift", "2,0")):
        assert run("edit", model, picture, *where, "--classes", 1, "--out", tmp_path / "out") == 2
        error = capsys.readouterr().err
        assert error == (
            "token-critic edit: the tokens of this model's tokenizer have no grid; a region of an image cannot be edited\n"
        )
    assert not (tmp_path / "out").exists()


def test_it_is_diagnosed_and_measured(model, data, tokens, tmp_path, capsys):
    assert run("diagnose", model, "--data", tokens, "--num", 8, "--held_out", 1, "--out", tmp_path / "diagnosis") == 0
    assert (tmp_path / "diagnosis/scores.png").is_file()
    how = ("--reference", data, "--features", "classifier", "--metrics", "fid", "--resamples", 0, "--few_samples")
    assert run("evaluate", model, "--num", 12, *how, "--out", tmp_path / "fid.json") == 0
    assert "FID" in capsys.readouterr().out
    assert json.loads((tmp_path / "fid.json").read_text())


@pytest.mark.parametrize("part", ["critic", "inline-critic"])
def test_critics_are_trained_and_exported(model, tokens, tmp_path, part):
    run_folder, folder = tmp_path / "run", tmp_path / "model"
    sizes = ("--model.layers", 2) if part == "critic" else ("--model.width", 8, "--model.mlp_width", 8)
    preset = ("fashion-mnist", "--data", tokens, "--generator", model, "--run", run_folder)
    assert run("train", part, *preset, "--training.steps", 2, "--training.batch_size", 8, *sizes) == 0
    TokenCriticPipeline.from_pretrained(model).save_pretrained(folder)
    assert run("export", run_folder, folder) == 0
    made = load_part(folder, part.replace("-", "_"))
    if part == "critic":
        assert type(made) is load_part(model, "generator").critic_type
        assert made.config.layers == (2 if "Bert" in type(made).__name__ else 1)  # a U-ViT leaves out one more
    assert run("sample", folder, "--sampler", part.split("-")[0], "--num", 2, "--out", tmp_path / "out") == 0
