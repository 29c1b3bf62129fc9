"""The cost of a run, held against what a batch keeps on the CPU and against the sizes by hand."""

import dataclasses
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tokencritic.cli.main import main
from tokencritic.cli.train_tasks import imagined_task
from tokencritic.contracts import MaskedGenerator
from tokencritic.data.tokens import TokenArrays
from tokencritic.distribution import Ranks
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.models.uvit import UViTConfig, UViTGenerator
from tokencritic.presets import find_preset, imagenet_256, imagenet_512
from tokencritic.training import estimate as estimates
from tokencritic.training.estimate import GPUS, UTILISATION, Estimate, estimate, report, step_flops
from tokencritic.training.learner import Learner
from tokencritic.training.settings import OptimizerSettings, TrainingSettings
from tokencritic.training.token_tasks import CriticObjective, CriticTask, GeneratorObjective, GeneratorTask

ROOT = Path(__file__).parents[2]
MODELS = ["generator", "critic", "inline-critic"]
BATCH = 32


class Given:
    start = "generator"


def make_task(model="generator"):
    preset = find_preset(model, "fashion-mnist")
    task = imagined_task(model, preset, find_preset("generator", "fashion-mnist").model, Given())
    task.arrays = dataclasses.replace(
        task.arrays, tokens=task.arrays.tokens.repeat(BATCH, 0), labels=task.arrays.labels.repeat(BATCH, 0)
    )
    for part in task.parts:
        if isinstance(part, MaskedGenerator):
            part.fixed_shapes = True  # as on a GPU
    return task


def measured(task, batch):
    """What a whole batch keeps for the backward pass, in bytes, weights left out."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in task.model.parameters()}
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = task.loss(task.model.train(), torch.arange(batch), 0)
    del loss
    return sum(storage.nbytes() for place, storage in kept.items() if place not in weights)


@pytest.mark.parametrize("model", MODELS)
def test_memory_is_what_a_batch_of_the_preset_keeps(model):
    batch = find_preset(model, "fashion-mnist").training.batch_size
    task = make_task(model)
    expected = measured(task, batch)
    found = estimate(task, TrainingSettings(batch_size=batch, steps=1))
    assert batch * found.activations == pytest.approx(expected, rel=0.1)
    assert found.parameters == sum(p.numel() for p in task.model.parameters())
    state = 20 * found.parameters + 4 * found.frozen
    assert found.memory(batch) == state + batch * found.activations
    assert found.memory(batch, 8, "fsdp") < found.memory(batch) < found.memory(batch, 8)


@pytest.mark.parametrize("model", MODELS)
def test_flops_are_those_of_a_real_step(model):
    task, settings = make_task(model), TrainingSettings(batch_size=8, steps=1)
    learner = Learner(task, OptimizerSettings(learning_rate=1e-3), settings, Ranks(0, 1, torch.device("cpu")))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        learner.backward(torch.arange(8), 0)
        learner.update(0, 0.0)
    assert 8 * step_flops(make_task(model), settings) == pytest.approx(counter.get_total_flops(), rel=0.01)


def small_task(kind, num_tokens=16, **sizes):
    """A task of seven layers. kind: generator, critic or U-ViT."""
    sizes |= {"num_tokens": num_tokens, "codebook_size": 32, "num_classes": 4, "width": 16, "layers": 7, "heads": 2}
    tokens, grid = np.zeros((2, num_tokens), np.uint16), (4, num_tokens // 4)
    arrays = TokenArrays(tokens, np.zeros(2, np.int32), "", 32, grid, tuple("abcd"), {})
    if kind == "U-ViT":
        return GeneratorTask(UViTGenerator(UViTConfig(**sizes, mlp_width=32)), arrays, GeneratorObjective())
    generator = Generator(TransformerConfig(**sizes, mlp_width=32))
    if kind == "generator":
        return GeneratorTask(generator, arrays, GeneratorObjective())
    return CriticTask(generator.start_critic(), generator, arrays, CriticObjective())


@pytest.mark.parametrize("options", [{}, {"recompute_activations": True}, {"precision": "bfloat16"}])
@pytest.mark.parametrize("kind", ["generator", "critic", "U-ViT"])
def test_few_layers_tell_the_memory_of_all(kind, options, monkeypatch):
    """To the byte."""
    settings = TrainingSettings(batch_size=BATCH, steps=1, **options)
    quick = estimate(small_task(kind), settings)
    monkeypatch.setattr(estimates, "_MEASURED", (1, 99))  # all layers
    assert estimate(small_task(kind), settings) == quick


def test_dropout_in_attention_keeps_no_weights_of_pairs_as_on_a_gpu():
    settings = TrainingSettings(batch_size=BATCH, steps=1)
    without, dropped = (estimate(small_task("generator", 400, dropout=rate), settings) for rate in (0.0, 0.1))
    assert without.activations < dropped.activations < 1.5 * without.activations


def test_flops_are_those_of_the_products():
    task = make_task()
    config = task.model.config
    found = estimate(task, TrainingSettings(batch_size=BATCH, steps=1))
    length, d = config.num_tokens + 1, config.width
    block = length * (8 * d * d + 4 * d * config.mlp_width) + 4 * length**2 * d
    forward = config.layers * block + config.num_tokens * (2 * d * d + 2 * d * config.codebook_size)
    assert found.flops == pytest.approx(3 * forward, rel=0.02)


def test_recomputing_and_half_precision_keep_less():
    plain, fewer, half = (
        estimate(make_task(), TrainingSettings(batch_size=BATCH, steps=1, **options))
        for options in ({}, {"recompute_activations": True}, {"precision": "bfloat16"})
    )
    assert fewer.activations < 0.5 * plain.activations
    assert 1.2 * plain.flops < fewer.flops < 1.35 * plain.flops
    assert 0.4 * plain.activations < half.activations < 0.8 * plain.activations
    assert half.casts == pytest.approx(2 * plain.parameters, rel=0.3)
    assert plain.casts == 0


def of_preset(model, name):
    """The FLOPs of a preset's step and its hours on an A100 and an H100, by adding up layers, each of which costs the same."""
    preset, filling = find_preset(model, name), find_preset("generator", name).model

    def flops(layers, judging=1):
        changed = {"generator": {"layers": layers}, "critic": {"layers": judging}, "inline-critic": {}}[model]
        settings = dataclasses.replace(preset, model=dataclasses.replace(preset.model, **changed))
        with torch.device("meta"):
            task = imagined_task(model, settings, dataclasses.replace(filling, layers=layers), Given())
        return step_flops(task, preset.training)

    one, two = flops(1), flops(2)
    total = one + (filling.layers - 1) * (two - one)
    if model == "critic":
        total += (preset.model.layers - 1) * (flops(2, 2) - two)
    found = Estimate(0, 0, total, 0, 0, 0, preset.training.precision)
    examples = preset.training.steps * preset.training.batch_size
    return total / 1e9, found.hours(examples, "A100"), found.hours(examples, "H100 SXM")


def numbers(*words):
    return [float(word.replace(",", "")) for word in words]


def test_published_costs_are_those_of_the_estimate(monkeypatch):
    monkeypatch.setattr(Generator, "identity", lambda self: "")  # weights on the meta device have no hash
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs" / "gpus.md").read_text()
    for name, preset in (("imagenet-256", imagenet_256), ("imagenet-512", imagenet_512)):
        exact = {model: of_preset(model, name) for model in MODELS}
        two_digits = {model: [float(f"{value:.2g}") for value in exact[model]] for model in MODELS}
        row = re.search(rf"\| `{name}` \| ([\d,]+) A100-hours \| ([\d,]+) A100-hours", readme)
        assert row
        assert numbers(*row.groups()) == [two_digits[model][1] for model in ("critic", "inline-critic")]
        for model in MODELS:
            words = model.replace("-", " ")
            line = re.search(
                rf"^  {words} +([\d,]+) GFLOP per image.* ([\d,]+) GPU-hours", inspect.getdoc(preset) or "", re.M
            )
            assert line
            assert numbers(*line.groups()) == two_digits[model][:2]
            if name == "imagenet-256":
                cells = re.search(rf"^\| {words} \| ([\d,]+) \|.* ([\d,]+) \| ([\d,.]+) \|$", page, re.M)
                assert cells
                assert numbers(*cells.groups()) == [round(exact[model][0]), *two_digits[model][1:]]


def test_hours_follow_from_the_peak():
    found = Estimate(10**6, 0, 10**12, 10**6, 0, 0, "bfloat16")
    seconds = 10**6 / (UTILISATION * GPUS["A100"][0])
    assert found.hours(10**6, "A100") == pytest.approx(seconds / 3600)
    lines = report(found, TrainingSettings(batch_size=BATCH, steps=10), 4, 10)
    assert any("fsdp" in line for line in lines)
    assert any(line.startswith("H100") and "bfloat16 peak" in line for line in lines)


def test_the_command_prints_and_writes_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "generator", "fashion-mnist", "--dry_run", "--ranks", "2", "--steps", "100"]) == 0
    said = capsys.readouterr().out
    for word in ("parameters: 0.9 million", "GFLOP an example", "memory of each of 2 ranks, fsdp", "A100"):
        assert word in said
    assert not list(tmp_path.iterdir())
    assert main(["train", "tokenizer", "cifar10", "--dry_run"]) == 2
    assert "--data is missing" in capsys.readouterr().err
