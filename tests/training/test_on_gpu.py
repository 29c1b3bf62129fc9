"""Training on a stand-in for a GPU: a step leaves no tensor on the CPU and does not make the host wait for the device."""

import sys
from functools import partial

import numpy as np
import pytest
import torch
from stand_in_gpu import StandInGpu
from training.tiny_tokens import SIZES, make_arrays

from tokencritic.data.source import ArraySource
from tokencritic.data.transforms import ImageBatches, Preprocess
from tokencritic.distribution import Ranks
from tokencritic.models.generator import Generator
from tokencritic.models.halton import HaltonConfig, HaltonGenerator
from tokencritic.models.inline_critic import InlineCritic, InlineCriticConfig
from tokencritic.models.maskbit import MaskBitConfig, MaskBitGenerator
from tokencritic.models.titok import BertConfig, BertGenerator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.models.uvit import UViTConfig, UViTGenerator
from tokencritic.training.learner import Learner
from tokencritic.training.settings import OptimizerSettings, TrainingSettings
from tokencritic.training.token_tasks import (
    CriticObjective,
    CriticTask,
    GeneratorObjective,
    GeneratorTask,
    InlineCriticObjective,
    InlineCriticTask,
)

ROWS = torch.tensor([5, 60, 0, 33, 7, 8, 12, 40])


# MaskBit's tokens are parts of places: 2 places of 2 parts, of 4 bits each.
MASKBIT_SIZES = {name: value for name, value in SIZES.items() if name not in ("num_tokens", "codebook_size")}
FAMILIES = {
    "maskgit": lambda: Generator(TransformerConfig(**SIZES, dropout=0.0, null_class=True)),
    "halton": lambda: HaltonGenerator(HaltonConfig(**SIZES, dropout=0.0)),
    "bert": lambda: BertGenerator(BertConfig(**SIZES, dropout=0.0)),
    "uvit": lambda: UViTGenerator(UViTConfig(**SIZES | {"layers": 3})),
    "maskbit": lambda: MaskBitGenerator(
        MaskBitConfig(**MASKBIT_SIZES, places=2, splits=2, bits_per_part=4, dropout=0.0)
    ),
}


def make_generator(family="maskgit"):
    torch.manual_seed(1)
    return FAMILIES[family]()


def generator_task(family="maskgit"):
    return GeneratorTask(make_generator(family), make_arrays(), GeneratorObjective(drop_label=0.5), seed=3)


def critic_task(family="maskgit", **objective):
    generator = make_generator(family)
    critic = generator.start_critic(reads_mask=True, ratio_conditioned=True)
    return CriticTask(critic, generator, make_arrays(), CriticObjective(**objective), seed=3)


def inline_critic_task():
    generator = make_generator()
    features = {"num_features": 2, "feature_width": 16, "width": 16, "layers": 1, "heads": 2, "mlp_width": 16}
    config = InlineCriticConfig(
        num_tokens=4, codebook_size=16, num_classes=3, generator=generator.fingerprint(), **features
    )
    return InlineCriticTask(InlineCritic(config), generator, make_arrays(), InlineCriticObjective(fills=2), seed=3)


TASKS = {
    "generator": generator_task,
    "critic": critic_task,
    "critic, temperature of a sampler": lambda: critic_task(temperature=(1.2, 0.5), target="changed"),
    "inline critic": inline_critic_task,
}
for family in ("halton", "bert", "uvit", "maskbit"):
    TASKS |= {f"{family} generator": partial(generator_task, family), f"{family} critic": partial(critic_task, family)}


@pytest.fixture(autouse=True)
def fused_adam_anywhere(monkeypatch):
    """The stand-in's tensors call themselves meta, for which torch has no fused kernel; the CPU's does the work."""
    optimizers = sys.modules[torch.optim.Optimizer.__module__]
    known = optimizers._get_fused_kernels_supported_devices()
    monkeypatch.setattr(optimizers, "_get_fused_kernels_supported_devices", lambda: [*known, "meta"])


def steps_of(task, device, first, last, learner=None):
    """Train from one step to another. Returns the learner and the losses, which stay on the device."""
    settings = TrainingSettings(steps=9, accumulation=2)
    learner = learner or Learner(task, OptimizerSettings(learning_rate=0.01), settings, Ranks(0, 1, device))
    losses = []
    for step in range(first, last):
        losses.append(learner.backward(ROWS, step)[0])
        learner.update(step, step / 9)
    return learner, losses


@pytest.mark.parametrize("name", TASKS)
def test_a_step_does_not_wait(name):
    torch.manual_seed(0)
    plain, expected = steps_of(TASKS[name](), torch.device("cpu"), 0, 3)
    torch.manual_seed(0)
    task = TASKS[name]()
    with StandInGpu() as gpu:
        learner, losses = steps_of(task, gpu.device, 0, 1)
        gpu.waits.clear()
        _, more = steps_of(task, gpu.device, 1, 3, learner)
        assert gpu.waits == []
        for found, same in zip([*losses, *more], expected, strict=True):
            assert found.device == gpu.device
            torch.testing.assert_close(found.cpu(), same, rtol=1e-4, atol=1e-5)
        for key, value in learner.gathered().items():
            torch.testing.assert_close(value, plain.state[key].detach(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", TASKS)
def test_validation_has_the_same_numbers(name):
    task = TASKS[name]()
    expected = task.validate(task.model.eval(), torch.arange(40))
    with StandInGpu() as gpu:
        task.to(gpu.device)
        assert task.validate(task.model, torch.arange(40)) == pytest.approx(expected, rel=1e-4)


def test_images_are_sent_without_waiting():
    pixels = np.random.default_rng(0).integers(0, 256, (64, 8, 8, 3), np.uint8)
    source = ArraySource(pixels, np.arange(64) % 3, ("a", "b", "c"), "x", "train", "x")
    batches = ImageBatches(source, Preprocess(8, 3, "random", flip=True), seed=3)
    expected = batches.labelled(ROWS, 2)
    with StandInGpu() as gpu:
        found = batches.labelled(ROWS, 2, gpu.device)
        assert gpu.waits == []
        for one, same in zip(found, expected, strict=True):
            assert one.device == gpu.device
            assert one.cpu().equal(same)
