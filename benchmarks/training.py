"""Compare the FLOP/s of a training step with those of a matrix product, and measure the overhead of the training loop.

    python benchmarks/training.py [--batches 64 128] [--rounds 9] [--loop-steps 60]

The models have the sizes of the fashion-mnist preset. A step consists of mask, forward, backward, clipping and AdamW. A
critic step starts with an evaluation of the frozen generator and its samples.

Only necessary matrix products are counted. In a generator step, the head and the last block's output projection and MLP
count at hidden tokens only. The backward pass of attention counts without the recomputed scores.

Compared calls alternate in one process, because the speed of a shared machine varies. Prints the medians of the ratios.
`peers.py` compares the steps with those of another project.
"""

import argparse
import contextlib
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from forward import gemm_rate
from torch import Tensor, nn

from tokencritic.data.tokens import TokenArrays
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.presets.fashion_mnist import GENERATOR
from tokencritic.training.loop import train
from tokencritic.training.losses import critic_loss, generator_loss
from tokencritic.training.settings import OptimizerSettings, TrainingSettings
from tokencritic.training.task import Loss
from tokencritic.training.token_tasks import GeneratorObjective, GeneratorTask

CONFIG: TransformerConfig = GENERATOR.model
SMOOTHING = GENERATOR.objective.label_smoothing
Step = Callable[[int], int]  # takes a seed, and returns the FLOPs of the step


def forward_flops(config: TransformerConfig, batch: int, wanted: int, outputs: int) -> int:
    """Count the multiplications and additions of the matrix products.

    wanted: the number of positions at which the last block is needed.
    outputs: the number of outputs of the head at each of these positions.
    """
    length, d = config.num_tokens + 1, config.width
    places, mlp = batch * length, 4 * d * config.mlp_width
    blocks = (config.layers - 1) * places * (8 * d * d + mlp) + places * 6 * d * d + wanted * (2 * d * d + mlp)
    return blocks + config.layers * places * 4 * length * d + wanted * (2 * d * d + 2 * d * outputs)


def updater(model: nn.Module) -> Callable[[Tensor], None]:
    """Return a function that updates the weights from a loss: backward, clipping, AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.96), weight_decay=0.045, fused=True)

    def update(loss: Tensor) -> None:
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return update


def batch_of(size: int, config: TransformerConfig = CONFIG) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, config.codebook_size, (size, config.num_tokens), generator=rng)
    return tokens, torch.arange(size) % config.num_classes


def generator_step(size: int, config: TransformerConfig = CONFIG) -> Step:
    generator = Generator(config).train()
    update, (tokens, labels) = updater(generator), batch_of(size, config)

    def step(number: int) -> int:
        seeds = torch.arange(size) + size * number
        loss = generator_loss(generator, tokens, labels, seeds, label_smoothing=SMOOTHING)
        update(loss.mean)
        return 3 * forward_flops(config, size, int(loss.mask.sum()), config.codebook_size)

    return step


def critic_step(size: int, config: TransformerConfig = CONFIG) -> Step:
    generator = Generator(config).eval().requires_grad_(False)
    critic = generator.start_critic().train()
    update, (tokens, labels) = updater(critic), batch_of(size, config)

    def step(number: int) -> int:
        loss = critic_loss(critic, generator, tokens, labels, torch.arange(size) + size * number)
        update(loss.values.mean())
        frozen = forward_flops(config, size, int(loss.mask.sum()), config.codebook_size)
        return frozen + 3 * forward_flops(config, size, tokens.numel(), 1)

    return step


def against_gemm(name: str, step: Step, rounds: int) -> None:
    """Print the FLOP/s of a step, those of a matrix product, and their ratio."""
    step(0)
    gemm_rate(repeats=1)
    rates, bounds, times = [], [], []
    for number in range(1, rounds + 1):
        bounds.append(gemm_rate(repeats=4))
        start = time.perf_counter()
        flops = step(number)
        times.append(time.perf_counter() - start)
        rates.append(flops / times[-1])
    ratio = statistics.median(rate / bound for rate, bound in zip(rates, bounds, strict=True))
    rate, bound, milliseconds = (statistics.median(x) for x in (rates, bounds, times))
    print(
        f"{name:<22} {1e3 * milliseconds:6.0f} ms {rate / 1e9:6.1f} GFLOP/s   "
        f"matrix product {bound / 1e9:6.1f} GFLOP/s   ratio {ratio:.2f}",
        flush=True,
    )


class _BareBetween(GeneratorTask):
    """A task that runs a bare step before each step of the loop, on the same examples and masks, and times both."""

    def __init__(self, model: Generator, arrays: TokenArrays, objective: GeneratorObjective) -> None:
        super().__init__(model, arrays, objective)
        self.other = Generator(model.config).train()
        self.update = updater(self.other)
        self.loop_times: list[float] = []
        self.bare_times: list[float] = []
        self.left: float | None = None

    def loss(self, network: nn.Module, rows: Tensor, step: int | None) -> Loss:
        if step is None:  # the validation at the end
            return super().loss(network, rows, step)
        entered = time.perf_counter()
        if self.left is not None:
            self.loop_times.append(entered - self.left)
        tokens, labels, seeds = self.batch(rows, step)
        start = time.perf_counter()
        smoothing = self.objective.label_smoothing
        self.update(generator_loss(self.other, tokens, labels, seeds, label_smoothing=smoothing).mean)
        self.left = time.perf_counter()
        self.bare_times.append(self.left - start)
        return super().loss(network, rows, step)


def loop_overhead(size: int, steps: int) -> None:
    """Print the overhead of the loop per step: data, moving average, checks and log, without checkpoints."""
    tokens, labels = batch_of(60_000)
    arrays = TokenArrays(
        tokens.numpy().astype(np.uint16), labels.numpy().astype(np.int32), "", CONFIG.codebook_size, (14, 14),
        tuple(map(str, range(CONFIG.num_classes))), {},
    )  # fmt: skip
    task = _BareBetween(Generator(CONFIG), arrays, GENERATOR.objective)
    settings = TrainingSettings(batch_size=size, steps=steps, validate_seconds=1e9, checkpoint_seconds=1e9)
    quiet = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(quiet),
        contextlib.redirect_stderr(quiet),
    ):
        train(task, Path(folder) / "run", OptimizerSettings(learning_rate=1e-4), settings)
    # The first steps warm up. The duration of the last step is unknown.
    bare, loop = task.bare_times[2:-1], task.loop_times[2:]
    median = statistics.median(inside / alone for inside, alone in zip(loop, bare, strict=True)) - 1
    mean = sum(loop) / sum(bare) - 1
    print(f"the loop, batch {size}, {len(loop)} steps: {median:+.1%} on the bare step (median), {mean:+.1%} (mean)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--loop-steps", type=int, default=60)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    print(f"{torch.get_num_threads()} threads, {arguments.rounds} rounds, medians")
    for size in arguments.batches:
        against_gemm(f"generator, batch {size}", generator_step(size), arguments.rounds)
        against_gemm(f"critic, batch {size}", critic_step(size), arguments.rounds)
    loop_overhead(arguments.batches[0], arguments.loop_steps)


if __name__ == "__main__":
    main()
