"""A small training for tests, on real processes: `python run_task.py RUN '{"steps": 60}'`, also under torchrun."""

import json
import os
import signal
import sys
import threading
from pathlib import Path

import torch
from safetensors.torch import load_file

from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.randomness import example_seeds
from tokencritic.training.loop import train
from tokencritic.training.losses import generator_loss
from tokencritic.training.settings import OptimizerSettings, TrainingSettings
from tokencritic.training.task import Loss, Task

CONFIG = TransformerConfig(num_tokens=16, codebook_size=32, num_classes=4, width=32, layers=2, heads=2, dropout=0.1)
SETTINGS = {"batch_size": 16, "log_every": 1, "held_out": 0.1}


class PatternTask(Task):
    """A generator learns rows of four equal codes. nan_at: a step whose loss is not a number; scale_at: (step, factor)."""

    name = "generator"

    def __init__(self, dropout: float = 0.1, nan_at: int = -1, scale_at: tuple[int, float] = (-1, 1.0)) -> None:
        torch.manual_seed(0)
        self.model = Generator(TransformerConfig(**{**vars(CONFIG), "dropout": dropout}))
        self.parts = [self.model]
        rng = torch.Generator().manual_seed(1)
        self.tokens = torch.randint(0, 32, (200, 4), generator=rng).repeat_interleave(4, 1)
        self.labels = torch.randint(0, 4, (200,), generator=rng)
        self.num_rows, self.num_images = 200, 100
        self.nan_at, self.scale_at = nan_at, scale_at
        self.signal_at, self.number, self.rank = -1, signal.SIGKILL, 0  # the step and the rank at which a signal comes

    def loss(self, network, rows, step):
        if step == self.signal_at and self.rank == int(os.environ.get("RANK", "0")):
            os.kill(os.getpid(), self.number)
        found = generator_loss(network, self.tokens[rows], self.labels[rows], example_seeds(0, step, rows))
        factor = torch.nan if step == self.nan_at else self.scale_at[1] if step == self.scale_at[0] else 1.0
        return Loss(found.values * factor, {"hidden": found.mask.float().mean()}, found.mask)

    def validate(self, network, rows):
        loss = self.loss(network, rows, 2**40)
        return {"loss": float(loss.values.sum() / loss.num_counted())}

    def facts(self):
        return {"rows": self.num_rows}


def run(folder, task=None, **settings):
    train(task or PatternTask(), folder, OptimizerSettings(), TrainingSettings(**{**SETTINGS, **settings}))


def weights(folder):
    return load_file(folder / "generator/model.safetensors")


def log_of(folder, kind="training"):
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def newest(folder):
    return max(path for path in (folder / "checkpoints").iterdir() if path.name.isdecimal())


def assert_equal_weights(one, other):
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.equal(second[name]), name


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    task = PatternTask(given.pop("dropout", 0.1))
    for name in ("signal_at", "number", "rank"):
        setattr(task, name, given.pop(name, getattr(task, name)))
    if "killed_after" in given:
        threading.Timer(given.pop("killed_after"), lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    train(task, Path(sys.argv[1]), OptimizerSettings(), TrainingSettings(**{**SETTINGS, **given}))
    os._exit(0)  # a timer that is still waiting has nothing left to kill
