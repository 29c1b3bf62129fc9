"""What worker processes read in tests, in a module that they can import. As a script: a job that gets a signal.

`python reading.py train|tokenize|wait FOLDER [SIGNAL]` prints the workers' process ids. `wait` then waits to be killed;
the others send the signal to their whole process group while workers read.
"""

import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from tokencritic.contracts import ImageTokenizer
from tokencritic.data import feeding
from tokencritic.data.sources import open_source
from tokencritic.data.tokenizing import TokenizeJob
from tokencritic.data.transforms import ImageBatches, Preprocess
from tokencritic.errors import InputError
from tokencritic.models.classifier import Classifier, ClassifierConfig
from tokencritic.training.image_tasks import ClassifierObjective, ClassifierTask
from tokencritic.training.loop import train
from tokencritic.training.settings import OptimizerSettings, TrainingSettings

CPU = torch.device("cpu")


def answer(number):
    """Results of several megabytes, so that workers wait until somebody takes them; 3 is refused, 5 kills the worker."""
    if number == 3:
        raise InputError("three is refused")
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return np.full(2**20, number)


def write_images(folder, count=40, corrupt=()):
    rng = np.random.default_rng(0)
    for number in range(count):
        file = folder / f"class{number % 2}" / f"{number:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (12, 9, 3), np.uint8)).save(file)
        if number in corrupt:
            file.write_bytes(file.read_bytes()[:30])


class Sums(ImageTokenizer):
    """A tokenizer whose tokens are the sums of the channels' pixels."""

    num_tokens, codebook_size, image_size, channels = 3, 2**16, 8, 3
    at_batch = lambda self: None  # noqa: E731

    def fingerprint(self):
        return "sums"

    def encode(self, images):
        self.at_batch()
        return (255 * images).round().long().sum((2, 3)) % self.codebook_size


def tokenize(images, out, workers, tokenizer=None, max_corrupt=10, **options):
    source = open_source(images, max_corrupt=max_corrupt)
    options = {"crops_per_image": 2, "batch_size": 3} | options
    job = TokenizeJob(source, tokenizer or Sums(), out, Preprocess(8, 3, "random", True), workers=workers, **options)
    return job.run(progress=False)


def classify(images, run, workers, at_step=lambda step: None, **settings):
    """Train a classifier for a few steps. at_step: called before each."""
    torch.manual_seed(0)
    batches = ImageBatches(open_source(images), Preprocess(8, 3, "random", True), seed=3, workers=workers)
    model = Classifier(ClassifierConfig(image_size=8, channels=3, num_classes=2, width=8, blocks=1))
    task = ClassifierTask(model, batches, ClassifierObjective(shift=1), seed=3)
    ask = task.loss

    def loss(network, rows, step):
        at_step(step)
        return ask(network, rows, step)

    task.loss = loss
    settings = {"batch_size": 8, "accumulation": 2, "held_out": 0.1, "log_every": 1} | settings
    train(task, run, OptimizerSettings(), TrainingSettings(**settings))


def show_workers():
    print(json.dumps([process.pid for process in multiprocessing.active_children()]), flush=True)


def main(what, folder, number=0):
    feeding.FEW = 0
    images, out = folder / "images", folder / "out"

    def at_signal():
        show_workers()
        os.killpg(0, number)

    if what == "wait":
        with feeding.read_ahead(answer, ((6,) for _ in range(100)), 100, 2, CPU) as results:
            next(results)
            show_workers()
            signal.pause()
    if what == "train":
        classify(images, out, 2, lambda step: at_signal() if step == 2 else None, steps=100_000)
    if what == "tokenize":
        tokenizer, left = Sums(), iter(range(4))
        tokenizer.at_batch = lambda: next(left, None) == 3 and at_signal()
        tokenize(images, out, 2, tokenizer)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
