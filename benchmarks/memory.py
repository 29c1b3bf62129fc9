"""Measure the memory of decoding tokens to images of 512 x 512, and of one training step of generator and critic.

    python benchmarks/memory.py [--decode 1 4 16] [--batches 1 2] [--layers 24] [--image-size 512]

The networks have the paper's sizes and random weights, in float32 on the CPU. Each case runs in its own process. Its
memory is the peak resident size during the work, minus the resident size before. Linux only.

A training step is a forward and a backward pass, without the optimizer and the moving average. Dropout is 0, because
the CPU has a fused attention kernel only without dropout. A GPU also has one with dropout. The memory per image is the
difference between the batch sizes. The last column is the estimate of `--dry_run` for the memory that is kept for the
backward pass, without temporary buffers.
"""

import argparse
import ctypes
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tokencritic.cli.train_tasks import imagined_task
from tokencritic.contracts import MaskedGenerator
from tokencritic.presets import find_preset
from tokencritic.tokenizers.vqgan import PAPER_512, VQGAN
from tokencritic.training.estimate import estimate
from tokencritic.training.settings import TrainingSettings
from tokencritic.training.task import Task

MIB = 2**20


class Start:
    start = "generator"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decode", type=int, nargs="*", default=[1, 4, 16], help="images that are decoded at a time")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 2], help="images of a training step, ascending")
    parser.add_argument("--models", nargs="*", default=["generator", "critic"])
    parser.add_argument("--layers", type=int, default=24, help="of the transformer")
    parser.add_argument("--image-size", type=int, default=512)
    parser.add_argument("--case", nargs="+", help=argparse.SUPPRESS)  # one case, in its own process
    given = parser.parse_args()
    if given.case:
        kind, *words = given.case
        print(*(decode(given, *words) if kind == "decode" else step(given, kind, *words)))
        return
    if given.decode:
        print("| images decoded at a time | memory | time |\n|---:|---:|---:|", flush=True)
    for images in given.decode:
        size, seconds = measured(given, "decode", images)
        print(f"| {images} | {size / MIB:,.0f} MiB | {seconds:.0f} s |", flush=True)
    if given.batches and given.models:
        sizes = " | ".join(f"batch {batch}" for batch in given.batches)
        print(f"\n| model | {sizes} | per image | kept, estimated |\n|---|{'---:|' * (len(given.batches) + 2)}")
    for model in given.models if given.batches else ():
        for recompute in (False, True):
            row = [measured(given, model, batch, int(recompute)) for batch in given.batches]
            spread = given.batches[-1] - given.batches[0]
            each = f"{(row[-1][0] - row[0][0]) / spread / MIB:,.0f} MiB" if spread else ""
            kept = estimate(make_task(given, model), settings(recompute)).activations
            cells = " | ".join(f"{size / MIB:,.0f} MiB" for size, _ in row)
            name = f"{model}, recomputed" if recompute else model
            print(f"| {name} | {cells} | {each} | {kept / MIB:,.0f} MiB |", flush=True)


def measured(given: argparse.Namespace, *case: Any) -> tuple[float, float]:
    """Run one case in its own process, and return its memory in bytes and its time in seconds."""
    sizes = ["--layers", str(given.layers), "--image-size", str(given.image_size)]
    command = [sys.executable, __file__, *sizes, "--case", *map(str, case)]
    size, seconds = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.split()
    return float(size), float(seconds)


def decode(given: argparse.Namespace, images: str) -> tuple[int, float]:
    tokenizer = VQGAN(replace(PAPER_512, image_size=given.image_size)).eval()
    tokens = torch.randint(0, tokenizer.codebook_size, (int(images), tokenizer.num_tokens))
    return peak(lambda: tokenizer.decode(tokens))


def step(given: argparse.Namespace, model: str, batch: str, recompute: str) -> tuple[int, float]:
    task = make_task(given, model)
    task.model.train()
    task.model.trunk.recompute_activations = recompute == "1"
    rows = torch.arange(int(batch)) % task.num_rows
    return peak(lambda: task.loss(task.model, rows, 0).values.sum().backward())


def make_task(given: argparse.Namespace, model: str) -> Task:
    """Return the task of a preset with the given sizes. Its generators evaluate all positions, as on a GPU."""
    size = {"num_tokens": (given.image_size // PAPER_512.factor) ** 2, "layers": given.layers, "dropout": 0.0}
    presets = [find_preset(name, "imagenet-512") for name in (model, "generator")]
    preset, generator = (replace(preset, model=replace(preset.model, **size)) for preset in presets)
    task = imagined_task(model, preset, generator.model, Start())  # pyright: ignore[reportArgumentType]
    for part in task.parts:
        if isinstance(part, MaskedGenerator):
            part.fixed_shapes = True
    return task


def settings(recompute: bool) -> TrainingSettings:
    return TrainingSettings(steps=1, recompute_activations=recompute)


def peak(work: Callable[[], object]) -> tuple[int, float]:
    """Run some work, and return the peak of the resident size above its start in bytes, and the time in seconds."""
    ctypes.CDLL(None).malloc_trim(0)  # return freed memory, because the work could reuse it uncounted
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before, start = resident("VmRSS"), time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    del result
    return resident("VmHWM") - before, seconds


def resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
