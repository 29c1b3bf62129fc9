"""The cost of a run, held against what a batch keeps on the CPU and against the sizes by hand."""

import dataclasses

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from tokencritic.cli.main import main
from tokencritic.cli.train_tasks import imagined_task
from tokencritic.presets import find_preset
from tokencritic.training.estimate import GPUS, UTILISATION, Estimate, estimate, report
from tokencritic.training.settings import TrainingSettings

BATCH = 32


class Given:
    start = "generator"


def make_task(model="generator"):
    preset = find_preset(model, "fashion-mnist")
    task = imagined_task(model, preset, find_preset("generator", "fashion-mnist").model, Given())
    task.arrays = dataclasses.replace(
        task.arrays, tokens=task.arrays.tokens.repeat(BATCH, 0), labels=task.arrays.labels.repeat(BATCH, 0)
    )
    return task


def measured(task):
    """What a whole batch keeps for the backward pass, in bytes, weights left out."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in task.model.parameters()}
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = task.loss(task.model.train(), torch.arange(BATCH), 0)
    del loss
    return sum(storage.nbytes() for place, storage in kept.items() if place not in weights)


@pytest.mark.parametrize("model", ["generator", "critic", "inline-critic"])
def test_memory_is_what_a_batch_keeps(model):
    task = make_task(model)
    if model == "generator":
        task.model.fixed_shapes = True  # as on a GPU
    expected = measured(task)
    found = estimate(task, TrainingSettings(batch_size=BATCH, steps=1))
    assert BATCH * found.activations == pytest.approx(expected, rel=0.1)
    assert found.parameters == sum(p.numel() for p in task.model.parameters())
    state = 20 * found.parameters + 4 * found.frozen
    assert found.memory(BATCH) == state + BATCH * found.activations
    assert found.memory(BATCH, 8, "fsdp") < found.memory(BATCH) < found.memory(BATCH, 8)


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
