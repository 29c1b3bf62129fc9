"""A whole model on a stand-in for a GPU, and how commands choose their device."""

import numpy as np
import pytest
import torch
from evaluation import reference
from stand_in_gpu import StandInGpu

from tokencritic import TokenCriticPipeline, Trace
from tokencritic.cli import arguments
from tokencritic.cli.main import COMMANDS, main
from tokencritic.devices import choose_device, describe_device
from tokencritic.errors import InputError
from tokencritic.evaluation.features import ClassifierFeatures, InceptionFeatures
from tokencritic.evaluation.inception import read_weights

LABELS = torch.tensor([8, 1, 8])


def load():
    return TokenCriticPipeline.from_pretrained("fashion-mnist")


def assert_same(work, close=False):
    """work(pipe) gives the same tensors on both devices."""
    pipe = load()
    expected, other = work(pipe), load()
    with StandInGpu() as gpu:
        found = work(other.to(gpu.device))
        assert other.device == gpu.device
    for one, same in zip(found, expected, strict=True):
        assert one.device.type == "cpu"
        torch.testing.assert_close(one, same, rtol=1e-4 if close else 0, atol=1e-4 if close else 0)


def settings_of(pipe, **changes):
    return pipe.settings(steps=4, **changes)


@pytest.mark.parametrize("reject_by", ["critic", "classifier"])
def test_rejection(reject_by):
    def work(pipe):
        settings = settings_of(pipe, sampler="critic", candidates=2, reject_by=reject_by, critic_window=(1, 0))
        candidates = [pipe.sample_tokens(LABELS, seed, settings_of(pipe)) for seed in (0, 9)]
        return pipe.sample_tokens(LABELS, 3, settings), pipe.choose_tokens(candidates, LABELS, settings)

    assert_same(work)


def test_refining_editing_and_a_trace():
    def work(pipe):
        images = np.random.default_rng(0).integers(0, 256, (2, 28, 28, 1), np.uint8)
        tokens, trace = pipe.encode(images), Trace()
        refined = pipe.refine(tokens, output_type="pt", num_inference_steps=3, on_step=trace)
        region = torch.arange(pipe.tokenizer.num_tokens) % 3 == 0
        edited = pipe.edit(images, region, [1, 2], output_type="pt", num_inference_steps=3)
        return tokens, refined, edited, trace.steps[1].proposal, trace.steps[1].hidden

    assert_same(work)


def test_scores_classes_and_features():
    def work(pipe):
        tokens = pipe.sample_tokens(LABELS, 3, settings_of(pipe))
        found = ClassifierFeatures(pipe.classifier)(pipe.images(tokens, "pt"))
        scores = pipe.critic_scores(tokens, LABELS)
        return tokens, scores, pipe.classify(tokens), found["features"], found["probabilities"]

    assert_same(work, close=True)


def test_inception_features(tmp_path):
    torch.save(reference.random_state(), tmp_path / "random.pth")
    images = np.random.default_rng(0).integers(0, 256, (1, 40, 40, 3), np.uint8)
    expected = InceptionFeatures(read_weights(tmp_path / "random.pth"))(images)
    weights = read_weights(tmp_path / "random.pth")
    with StandInGpu() as gpu:
        found = InceptionFeatures(weights, device=gpu.device)(images)
        for name, values in expected.items():
            torch.testing.assert_close(found[name], values, rtol=1e-3, atol=1e-4)


def test_auto_takes_the_best_device_there_is(monkeypatch):
    made = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", made.append)
    monkeypatch.setattr(torch, "empty", lambda *_, device: torch.zeros(0))
    monkeypatch.setattr(torch, "set_float32_matmul_precision", made.append)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert choose_device() == "cuda"
    assert made == ["cuda:3", "high"]  # TF32
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device() == "mps"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device() == "cpu"
    assert describe_device("cpu") == "cpu"
    assert choose_device("cpu") == "cpu"


def test_training_leaves_out_mps(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device(training=True) == "cpu"
    command = ["train", "generator", "fashion-mnist", "--data", "fashion-mnist", "--run", "never", "--device", "mps"]
    assert main(command) == 2
    assert "--device is mps, which has no float64" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["meta", "nowhere", "cuda:99"])
def test_a_device_that_cannot_be_used_is_refused_in_one_line(name, capsys):
    with pytest.raises(InputError, match=f"--device is {name}, wh"):
        choose_device(name)
    for command in (["sample", "fashion-mnist", "--num", "1"], ["evaluate", "fashion-mnist"]):
        assert main([*command, "--device", name]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1


# These compute nothing: they convert, copy or pack files.
WITHOUT_DEVICE = {"export", "pack", "import"}


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in WITHOUT_DEVICE])
def test_every_command_that_computes_has_auto_as_its_device(command, capsys):
    words = [command, "generator", "fashion-mnist"] if command == "train" else [command]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "--device DEVICE cpu, cuda, mps; auto takes cuda, else mps, else cpu (default: auto)" in said


def test_a_command_says_what_auto_took(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(arguments, "_SAID", set())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    command = ["sample", "fashion-mnist", "--num", "1", "--classes", "Bag", "--steps", "2", "--out", str(tmp_path)]
    assert main(command) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line.startswith("device")] == [f"device: {choose_device()}"]
    assert main([*command, "--device", "cpu"]) == 0
    assert "device" not in capsys.readouterr().err


def test_flags_cast_and_compile_the_transformers(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda block: seen.append(next(block.parameters()).dtype))
    command = ["sample", "fashion-mnist", "--num", "1", "--classes", "Bag", "--steps", "2", "--out", str(tmp_path)]
    assert main([*command, "--dtype", "bfloat16", "--compile", "--device", "cpu"]) == 0
    assert set(seen) == {torch.bfloat16}
    assert main([*command, "--dtype", "int8"]) == 2
