"""`token-critic diagnose` on a small model with random weights."""

import json
import math
import shutil

import numpy as np
import pytest
import torch

from tokencritic import Generator, TokenCriticPipeline, TransformerConfig
from tokencritic.cli.main import main
from tokencritic.data.tokens import TokenArrays
from tokencritic.evaluation.diagnosis import held_out_report, held_out_rows, judge, sampling_report, watch
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer

SIZES = TransformerConfig(num_tokens=16, codebook_size=16, num_classes=3, width=16, layers=1, heads=2, mlp_width=32)
FILES = ["diagnosis.json", "sampling.png", "scores.png"]


@pytest.fixture(scope="module")
def pipe():
    torch.manual_seed(0)
    generator = Generator(SIZES)
    torch.nn.init.normal_(generator.bias)
    critic = generator.start_critic()
    torch.nn.init.normal_(critic.head.weight)
    tokenizer = CompactTokenizer(CompactConfig(image_size=16, width=16, codebook_size=16))
    defaults = SamplingSettings(steps=4, temperature=(1.2, 0.8), selection_noise=0.3)
    return TokenCriticPipeline(tokenizer.eval(), generator.eval(), critic.eval(), defaults=defaults)


@pytest.fixture(scope="module")
def model(pipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    pipe.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tokens(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (200, 16, 16), np.uint8), rng.integers(0, 3, 200)
    np.savez(folder / "images.npz", images=images, labels=labels)
    assert main(["tokenize", str(model), str(folder / "images.npz"), "--out", str(folder / "tokens")]) == 0
    return folder / "tokens"


def run(*arguments):
    return main([str(argument) for argument in ("diagnose", *arguments)])


def known(value):
    """As JSON has it: no NaN, no tuples."""
    if isinstance(value, dict):
        return {name: known(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [known(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


ARGUMENTS = ("--num", 12, "--seed", 5, "--held_out", 0.1, "--proposal_temperature", 1.5, 0.5, "--steps", 3)


def test_it_writes_what_the_library_measures(pipe, model, tokens, tmp_path, capsys):
    assert run(model, "--data", tokens, *ARGUMENTS, "--out", tmp_path / "one") == 0
    printed = capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == FILES
    found = json.loads((tmp_path / "one/diagnosis.json").read_text())

    arrays = TokenArrays.open(tokens)
    report = held_out_report(judge(pipe, arrays, held_out_rows(arrays, 12, 0.1), 5, (1.5, 0.5)))
    assert found["held_out"] == {"share": 0.1, "proposal_temperature": [1.5, 0.5], **known(report)}
    assert list(found["sampling"]) == ["critic", "confidence"]
    for sampler, noise in (("critic", 0.3), ("confidence", 4.5)):
        settings = pipe.settings(steps=3, sampler=sampler)
        watched = sampling_report(watch(pipe, torch.arange(12) % 3, torch.arange(5, 17), settings))
        some = found["sampling"][sampler]
        assert {name: some[name] for name in watched} == known(watched)
        assert (some["nfe"], some["settings"]["selection_noise"]) == (settings.nfe(16), noise)
    assert found["models"]["critic"] == pipe.critic.fingerprint()
    assert found["command"].startswith("token-critic diagnose ")

    assert printed.startswith("12 held-out images, filled in at temperature 1.5 to 0.5; 12 sampled; seed 5\n")
    assert f" {report['all']['auc']['masked']:.3f} |" in printed
    assert f" {found['sampling']['critic']['total']['remasked']['per_image']:.3f} |" in printed
    assert printed.endswith(f"wrote diagnosis.json, scores.png, sampling.png to {tmp_path / 'one'}\n")
    # Again, it is the same to the last bit.
    before = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert run(model, "--data", tokens, *ARGUMENTS, "--out", tmp_path / "one") == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()} == before


def test_one_sampler_and_all_rows(model, tokens, tmp_path):
    one = ("--sampler", "critic", "--selection_noise", 0, "--num", 300, "--steps", 1, "--held_out", 1)
    assert run(model, "--data", tokens, *one, "--out", tmp_path) == 0
    found = json.loads((tmp_path / "diagnosis.json").read_text())
    assert list(found["sampling"]) == ["critic"]
    assert found["sampling"]["critic"]["settings"]["selection_noise"] == 0
    assert len(found["sampling"]["critic"]["steps"]) == 1
    assert found["held_out"]["all"]["images"] == 200  # all there are
    assert found["sampling"]["critic"]["images"] == 300


def test_the_paper_s_settings_are_those_of_the_critic_alone(model, tokens, tmp_path):
    assert run(model, "--data", tokens, "--paper", "--num", 4, "--held_out", 0.1, "--out", tmp_path) == 0
    found = json.loads((tmp_path / "diagnosis.json").read_text())["sampling"]
    assert {name: one["settings"]["sampler"] for name, one in found.items()} == {"critic": "critic"}
    assert found["critic"]["settings"]["noise_kind"] == "uniform"


def test_a_model_that_brings_its_tokens_needs_no_data(pipe, tokens, tmp_path):
    pipe.save_pretrained(tmp_path / "model")
    TokenArrays.open(tokens).pack(tmp_path / "model/tokens.npz")
    assert run(tmp_path / "model", "--num", 3, "--out", tmp_path / "out") == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == FILES


def test_samplers_are_watched_at_equal_nfe_as_tuning_found_them(model, tokens, tmp_path):
    tuned = shutil.copytree(model, tmp_path / "model")
    best = {"sampler": "confidence", "steps": 9, "temperature": [1.3, 0.7], "selection_noise": 5.5}
    (tuned / "tuning-confidence-7.json").write_text(json.dumps({"best": best, "models": {}}))
    assert run(tuned, "--data", tokens, "--num", 4, "--held_out", 0.1, "--out", tmp_path / "out") == 0
    found = json.loads((tmp_path / "out/diagnosis.json").read_text())["sampling"]
    assert found["critic"]["nfe"] == found["confidence"]["nfe"] == 7
    settings = found["confidence"]["settings"]
    assert (settings["temperature"], settings["selection_noise"]) == ([1.3, 0.7], 5.5)


def test_bad_input_is_one_line_and_nothing_is_written(pipe, model, tokens, tmp_path, capsys):
    TokenCriticPipeline(pipe.tokenizer, pipe.generator).save_pretrained(tmp_path / "plain")
    torch.manual_seed(1)
    other = CompactTokenizer(CompactConfig(image_size=16, width=16, codebook_size=16))
    TokenCriticPipeline(other, pipe.generator, pipe.critic).save_pretrained(tmp_path / "other")
    (tmp_path / "file").write_text("")
    capsys.readouterr()
    with_data = ("--data", tokens)
    cases = {
        (tmp_path / "plain", *with_data): "has no critic to diagnose",
        (tmp_path / "other", *with_data): "was made with tokenizer",
        (model,): "--data is missing",
        (model, "--data", tmp_path / "nowhere"): "nowhere has no tokens.json",
        (tmp_path / "nowhere", *with_data): "nowhere",
        (model, *with_data, "--num", 0): "--num is 0; it must be at least 1",
        (model, *with_data, "--batch_size", -1): "--batch_size is -1",
        (model, *with_data, "--seed", -1): "--seed is -1",
        (model, *with_data, "--held_out", 0): "held_out is 0.0",
        (model, *with_data, "--held_out", 0.7): "held_out is 0.7",
        (model, *with_data, "--held_out", 0.001): "leaves one side of 200 images empty",
        (model, *with_data, "--proposal_temperature", -1): "temperature is -1.0",
        (model, *with_data, "--proposal_temperature", 1, 2, 3): "--proposal_temperature has 3 numbers",
        (model, *with_data, "--candidates", 2): "--candidates is 2",
        (model, *with_data, "--selection_noise", 1): "--selection_noise means another thing to each sampler",
        (model, *with_data, "--steps", 0): "steps is 0",
        (model, *with_data, "--steps", 40, "--critic_window", 1, 0.97): "it contains none of 40 steps",
        (model, *with_data, "--guidance", 2): "guidance",
        (model, *with_data, "--out", tmp_path / "file"): "which is a file; expected a folder",
        (): "model",
    }
    for arguments, message in cases.items():
        out = () if "--out" in arguments else ("--out", tmp_path / "out")
        assert run(*arguments, *out) == 2, arguments
        said, error = capsys.readouterr()
        assert said == ""
        assert error.count("\n") == 1, error
        assert message in error
        assert not (tmp_path / "out").exists(), arguments
