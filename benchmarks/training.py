"""Compare the FLOP/s of a training step with those of a matrix product, and measure the overhead of the training loop.

    python benchmarks/training.py [--batches 64 128] [--rounds 9] [--loop-steps 60]

The models have the sizes of the fashion-mnist preset. A step consists of mask, forward, backward, clipping and AdamW. A
critic step starts with an evaluation of the frozen generator and its samples.

Only necessary matrix products are counted. The head and the last block's output projection and MLP count at hidden
tokens only. The backward pass of attention counts without the recomputed scores.

Compared calls alternate in one process, because the speed of a shared machine varies. Medians of the ratios are
printed. If `muse_maskgit_pytorch` is installed, its steps of the same sizes are compared too.
"""

import argparse
import contextlib
import importlib
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
Step = Callable[[int], int]  # from a seed to the FLOPs of the step, or 0 if they are not counted


def forward_flops(config: TransformerConfig, batch: int, wanted: int, outputs: int) -> int:
    """Count the multiplications and additions of the matrix products.

    wanted: the number of positions at which the last block is needed.
    outputs: outputs of the head at each of these positions.
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


def batch_of(size: int) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, CONFIG.codebook_size, (size, CONFIG.num_tokens), generator=rng)
    return tokens, torch.arange(size) % CONFIG.num_classes


def generator_step(size: int) -> Step:
    generator = Generator(CONFIG).train()
    update, (tokens, labels) = updater(generator), batch_of(size)

    def step(number: int) -> int:
        seeds = torch.arange(size) + size * number
        loss = generator_loss(generator, tokens, labels, seeds, label_smoothing=SMOOTHING)
        update(loss.mean)
        return 3 * forward_flops(CONFIG, size, int(loss.mask.sum()), CONFIG.codebook_size)

    return step


def critic_step(size: int) -> Step:
    generator = Generator(CONFIG).eval().requires_grad_(False)
    critic = generator.start_critic().train()
    update, (tokens, labels) = updater(critic), batch_of(size)

    def step(number: int) -> int:
        loss = critic_loss(critic, generator, tokens, labels, torch.arange(size) + size * number)
        update(loss.values.mean())
        frozen = forward_flops(CONFIG, size, int(loss.mask.sum()), CONFIG.codebook_size)
        return frozen + 3 * forward_flops(CONFIG, size, tokens.numel(), 1)

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
        tokens.numpy().astype(np.uint16), labels.numpy().astype(np.int32), "", CONFIG.codebook_size, (7, 7),
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


def muse_steps(size: int, flash: bool) -> tuple[Step, Step]:
    """Return the generator step and the generator + critic step of muse-maskgit-pytorch. The class is one text token.

    flash: its flash attention, on by default. On a CPU this is a loop in Python, so both are timed.
    """
    muse: Any = importlib.import_module("muse_maskgit_pytorch")
    t5: Any = importlib.import_module("muse_maskgit_pytorch.t5")
    t5.T5_CONFIGS["none"] = {"config": SimpleNamespace(d_model=CONFIG.width)}  # no text encoder, nothing to download
    sizes = {
        "num_tokens": CONFIG.codebook_size, "seq_len": CONFIG.num_tokens, "dim": CONFIG.width, "depth": CONFIG.layers,
        "heads": CONFIG.heads, "dim_head": CONFIG.width // CONFIG.heads, "ff_mult": CONFIG.mlp_width // CONFIG.width,
        "flash": flash, "t5_name": "none",
    }  # fmt: skip
    vae = muse.VQGanVAE(dim=16, layers=2, codebook_size=CONFIG.codebook_size, use_vgg_and_gan=False)
    tokens, labels = batch_of(size)

    def step_of(critic: Any) -> Step:
        parts = {"image_size": 28, "vae": vae, "cond_drop_prob": 0.0, "token_critic": critic}
        model = muse.MaskGit(transformer=muse.MaskGitTransformer(**sizes), **parts)
        model.vae.requires_grad_(False)
        classes = nn.Embedding(CONFIG.num_classes, CONFIG.width)
        update = updater(nn.ModuleList([model.transformer, classes, *([critic] if critic is not None else [])]))

        def step(number: int) -> int:
            update(model(tokens, text_embeds=classes(labels)[:, None]))
            return 0

        return step

    return step_of(None), step_of(muse.TokenCritic(**sizes))


def against_muse(size: int, rounds: int) -> None:
    try:
        theirs = {flash: muse_steps(size, flash) for flash in (False, True)}
    except (ImportError, RuntimeError) as error:  # torch's extensions raise RuntimeError if versions do not match
        print(f"no comparison with muse-maskgit-pytorch: {str(error).splitlines()[0]}")
        return
    generator, critic = generator_step(size), critic_step(size)

    def both(number: int) -> int:
        return generator(number) + critic(number)

    # Its joint step trains generator and critic together. Ours are two steps, and that of the critic has a frozen
    # generator.
    for name, ours, index in (
        ("its generator step", generator, 0),
        ("its generator + critic step, compared with our two,", both, 1),
        ("its generator + critic step, compared with our critic step,", critic, 1),
    ):
        ratios = [f"{turns(theirs[flash][index], ours, rounds):.2f} (flash={flash})" for flash in (False, True)]
        print(f"muse-maskgit-pytorch, batch {size}: {name} takes {', '.join(ratios)} times our time", flush=True)


def turns(theirs: Step, ours: Step, rounds: int) -> float:
    """Return the median ratio of the durations, theirs / ours, alternating."""
    theirs(0)
    ours(0)
    ratios = []
    for number in range(1, rounds + 1):
        start = time.perf_counter()
        theirs(number)
        middle = time.perf_counter()
        ours(number)
        ratios.append((middle - start) / (time.perf_counter() - middle))
    return statistics.median(ratios)


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
    for size in arguments.batches:
        against_muse(size, arguments.rounds)


if __name__ == "__main__":
    main()
