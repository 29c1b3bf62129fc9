"""Compare sampling and training with muse-maskgit-pytorch 0.3.5, the peer, at equal sizes and in one process.

    python benchmarks/peers.py --peer FOLDER [--batches 16 64] [--steps 18] [--rounds 5] [--paper-layers 0]

Install the peer into its own folder, because its requirements would replace packages of this environment:

    pip install --no-deps --target FOLDER muse-maskgit-pytorch==0.3.5 einops beartype memory-efficient-attention-pytorch

The comparison does not use the peer's text encoder, VAE and trainer. Stand-ins replace the packages that these need. No
image is encoded or decoded. The class is one text token with a learned vector.

- Sampling is timed with and without the critic (`TokenCritic` of the peer), for the same number of steps and without
  guidance. The peer samples only from the likeliest tenth of the codes. This filter stays on, because it cannot be
  turned off cheaply.
- Training: the peer updates generator and critic in one step. It samples the critic's input from the logits of the
  generator's loss. Ours are two steps. The critic's step evaluates a frozen generator, as in the paper.

The peer's flash attention is on by default. On a CPU it is a loop in Python. Both settings are timed, and the ratio to
the faster one counts. The peer's blocks also attend to the text. `FLOPs` is the ratio of the counted operations.

Compared calls alternate, because the speed of a shared machine varies. Prints the median ratios of the peer's time to
ours.
"""

import argparse
import dataclasses
import importlib
import math
import statistics
import sys
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from training import batch_of, critic_step, generator_step, updater

from tokencritic import ConfidenceScorer, CriticScorer, Scorer, sample
from tokencritic.models import generator as models
from tokencritic.models.transformer import TransformerConfig
from tokencritic.presets.fashion_mnist import GENERATOR

Step = Callable[[int], Any]  # takes a seed
# Packages that the peer imports for its text encoder, its VAE and its trainer.
UNUSED = (
    "accelerate", "ema_pytorch", "torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.utils",
    "transformers", "vector_quantize_pytorch",
)  # fmt: skip


def import_peer(folder: str) -> ModuleType:
    """Import muse_maskgit_pytorch from a folder, without the packages of `UNUSED`."""
    sys.path.append(folder)  # last, so that nothing of this environment is replaced
    for name in UNUSED:
        sys.modules[name] = MagicMock()
    encoder: Any = importlib.import_module("muse_maskgit_pytorch.t5")
    networks: Any = importlib.import_module("muse_maskgit_pytorch.muse_maskgit_pytorch")
    for name in UNUSED:
        del sys.modules[name]
    networks.tqdm = lambda steps, **_: steps
    encoder.T5_CONFIGS["none"] = {}
    return networks


class Peer:
    """The generator and the critic of muse-maskgit-pytorch, with the sizes of our models."""

    def __init__(self, networks: Any, config: TransformerConfig, flash: bool, with_critic: bool) -> None:
        config_of_text = SimpleNamespace(d_model=config.width)
        importlib.import_module("muse_maskgit_pytorch.t5").T5_CONFIGS["none"] = {"config": config_of_text}
        sizes = {
            "num_tokens": config.codebook_size, "seq_len": config.num_tokens, "dim": config.width,
            "depth": config.layers, "heads": config.heads, "dim_head": config.width // config.heads,
            "ff_mult": config.mlp_width // config.width, "flash": flash, "t5_name": "none",
        }  # fmt: skip
        vae = networks.VQGanVAE.__new__(networks.VQGanVAE)  # MaskGit reads the number of codes from it
        nn.Module.__init__(vae)
        vae.codebook_size, vae.copy_for_eval, vae.decode_from_ids = config.codebook_size, lambda: vae, lambda ids: ids
        vae.get_encoded_fmap_size = lambda _: math.isqrt(config.num_tokens)
        critic = networks.TokenCritic(**sizes) if with_critic else None
        parts = {"image_size": 256, "vae": vae, "cond_drop_prob": 0.0, "token_critic": critic}
        self.model = networks.MaskGit(transformer=networks.MaskGitTransformer(**sizes), **parts)
        self.classes = nn.Embedding(config.num_classes, config.width)

    def sampling(self, labels: Tensor, steps: int) -> Step:
        self.model.transformer.encode_text = lambda _: self.classes(labels)[:, None]
        return lambda _: self.model.generate([""] * len(labels), timesteps=steps, cond_scale=1)

    def training(self, tokens: Tensor, labels: Tensor) -> Step:
        update = updater(nn.ModuleList([self.model, self.classes]))
        return lambda _: update(self.model(tokens, text_embeds=self.classes(labels)[:, None]))


def flops(step: Step) -> int:
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        step(0)
    return counter.get_total_flops()


def compare(name: str, ours: Step, theirs: dict[str, Step], rounds: int) -> float:
    """Print the ratios of the peer's times to ours, and return the smallest ratio."""
    calls = {"ours": ours, **theirs}
    counted = {key: flops(call) for key, call in calls.items()}  # also warms up
    times: dict[str, list[float]] = {key: [] for key in calls}
    for number in range(1, rounds + 1):
        for key, call in calls.items():
            start = time.perf_counter()
            call(number)
            times[key].append(time.perf_counter() - start)
    ratios = {
        key: statistics.median(their / our for their, our in zip(times[key], times["ours"], strict=True))
        for key in theirs
    }
    text = ", ".join(
        f"{ratio:.2f} ({key}; FLOPs {counted[key] / counted['ours']:.2f})" for key, ratio in ratios.items()
    )
    print(f"{name:<36} ours {statistics.median(times['ours']):7.3f} s   theirs / ours: {text}", flush=True)
    return min(ratios.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", metavar="FOLDER", help="where muse-maskgit-pytorch is installed")
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--steps", type=int, default=18, help="of sampling")
    parser.add_argument("--rounds", type=int, default=5)
    text = "layers of the paper's width, 768, with 256 tokens of 1,024 codes; 0: the sizes of the fashion-mnist preset"
    parser.add_argument("--paper-layers", type=int, default=0, metavar="N", help=text)
    given = parser.parse_args()
    if given.peer is None:
        print(
            "nothing compared: --peer FOLDER is missing; `python benchmarks/peers.py --help` explains the installation"
        )
        return
    torch.manual_seed(0)
    networks = import_peer(given.peer)
    config = GENERATOR.model
    if given.paper_layers:
        config = dataclasses.replace(models.PAPER_256, layers=given.paper_layers, dropout=0.0)
    print(f"{torch.get_num_threads()} threads, {given.rounds} rounds, {given.steps} steps of sampling; {config}")
    for size in given.batches:
        compare_at(networks, config, size, given.steps, given.rounds)


def compare_at(networks: Any, config: TransformerConfig, size: int, steps: int, rounds: int) -> None:
    tokens, labels = batch_of(size, config)
    generator = models.Generator(config).eval()
    scorers: dict[str, Scorer] = {"MaskGIT": ConfidenceScorer(), "Token-Critic": CriticScorer(generator.start_critic())}
    for name, scorer in scorers.items():
        theirs = {
            f"flash={flash}": Peer(networks, config, flash, name == "Token-Critic").sampling(labels, steps)
            for flash in (False, True)
        }
        compare(
            f"sampling, {name}, batch {size}",
            lambda seed, s=scorer: sample(generator, s, labels, seed, steps=steps),
            theirs,
            rounds,
        )
    first, second = generator_step(size, config), critic_step(size, config)
    for name, with_critic in (("generator", False), ("generator + critic", True)):
        theirs = {
            f"flash={flash}": Peer(networks, config, flash, with_critic).training(tokens, labels)
            for flash in (False, True)
        }
        compare(
            f"training, {name}, batch {size}",
            lambda seed, both=with_critic: (first(seed), both and second(seed)),
            theirs,
            rounds,
        )


if __name__ == "__main__":
    main()
