"""Measure the time per step of the sampling loop without its networks, as a share of the networks' time.

    python benchmarks/loop_overhead.py [--batches 64 256] [--steps 18] [--rounds 3]

The networks return constants. The sizes are the paper's: 256 tokens of 1,024 codes. The networks' time is a lower
bound: their FLOPs, counted by torch, divided by the rate of a matrix product in the same run. Real networks take
longer.

Sampling a code for each hidden token is part of the loop: softmax, sum and search over (images, hidden, 1024) logits.
Every sampler of such models does this work, so the share is printed with and without it. The goal is below 2 %.

`kernels` is the number of operations per step that are not views. A GPU launches them in each step, at any batch size.
"""

import argparse
import statistics
import time
from unittest.mock import patch

import torch
from forward import gemm_rate
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tokencritic import ConfidenceScorer, CriticScorer, Scorer, sample
from tokencritic.contracts import FeatureCritic, Features, MaskedGenerator, TokenCritic
from tokencritic.cost import count_flops
from tokencritic.models.critic import Critic
from tokencritic.models.generator import PAPER_256, Generator
from tokencritic.models.inline_critic import InlineCritic, InlineCriticConfig
from tokencritic.sampling import propose
from tokencritic.sampling.scorers import InlineScorer

NUM_TOKENS, CODES = PAPER_256.num_tokens, PAPER_256.codebook_size


class ConstantGenerator(MaskedGenerator):
    num_tokens, codebook_size, num_classes, mask_id = NUM_TOKENS, CODES, 1000, CODES + 1000
    num_features = feature_width = 1

    def __init__(self, images: int) -> None:
        self.logits = torch.randn(images * NUM_TOKENS * CODES)

    def __call__(self, masked_tokens: Tensor, labels: Tensor | None, /) -> Tensor:
        return self.logits_at(masked_tokens, labels, masked_tokens)

    def logits_at(self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor) -> Tensor:
        return self.logits[: positions.numel() * CODES].view(*positions.shape, CODES)

    def logits_with_features(
        self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor
    ) -> tuple[Tensor, Features]:
        return self.logits_at(masked_tokens, labels, positions), (self.logits[: masked_tokens.numel()],)


class ConstantCritic(TokenCritic):
    def __init__(self, images: int) -> None:
        self.scores = torch.randn(images, NUM_TOKENS)

    def __call__(self, tokens: Tensor, labels: Tensor | None, mask: Tensor | None = None, /) -> Tensor:
        return self.scores


class ConstantHead(FeatureCritic):
    num_features = feature_width = 1

    def __init__(self, images: int) -> None:
        self.scores = torch.randn(images, NUM_TOKENS)

    def __call__(self, features: Features, /) -> Tensor:
        return self.scores


class Kernels(TorchDispatchMode):
    """A mode that counts the operations that compute: all except views and uninitialized tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += not (func.is_view or func is torch.ops.aten.empty.memory_format)
        return func(*args, **(kwargs or {}))


class TimedCodes:
    """A wrapper of `sample_codes` that sums its time."""

    def __init__(self) -> None:
        self.seconds, self.call = 0.0, propose.sample_codes

    def __call__(self, *given: Tensor) -> Tensor:
        start = time.perf_counter()
        codes = self.call(*given)
        self.seconds += time.perf_counter() - start
        return codes


def network_flops() -> dict[str, int]:
    """Return the FLOPs per image of all networks that a step with re-masking evaluates, by sampler."""
    with torch.device("meta"):
        generator, critic, head = Generator().eval(), Critic().eval(), InlineCritic(InlineCriticConfig()).eval()
        tokens, label = torch.zeros(1, NUM_TOKENS, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
        filling = count_flops(lambda: generator(tokens, label))
        features = generator.features(tokens, label)
    judging, inline = count_flops(lambda: critic(tokens, label)), count_flops(lambda: head(features))
    return {"MaskGIT": filling, "Token-Critic": filling + judging, "inline critic": filling + inline}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--steps", type=int, default=18)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.manual_seed(0)
    flops = network_flops()
    print(f"{torch.get_num_threads()} threads, {given.steps} steps, {given.rounds} rounds, medians, per step")
    for images in given.batches:
        generator, labels = ConstantGenerator(images), torch.arange(images)
        scorers: dict[str, Scorer] = {
            "MaskGIT": ConfidenceScorer(),
            "Token-Critic": CriticScorer(ConstantCritic(images)),
            "inline critic": InlineScorer(ConstantHead(images)),
        }
        for name, scorer in scorers.items():
            with Kernels() as kernels:
                sample(generator, scorer, labels, 0, steps=given.steps)
            loops, codes, bounds = [], [], []
            for number in range(given.rounds):
                bounds.append(images * flops[name] / gemm_rate(repeats=4))
                with patch.object(propose, "sample_codes", TimedCodes()) as timed:
                    start = time.perf_counter()
                    sample(generator, scorer, labels, number, steps=given.steps)
                    loops.append((time.perf_counter() - start) / given.steps)
                codes.append(timed.seconds / given.steps)
            whole = statistics.median(loop / bound for loop, bound in zip(loops, bounds, strict=True))
            rest = statistics.median((a - b) / bound for a, b, bound in zip(loops, codes, bounds, strict=True))
            loop, code, bound = (statistics.median(times) for times in (loops, codes, bounds))
            print(
                f"{name:<13} batch {images:3}: loop {1e3 * loop:7.1f} ms, of which codes {1e3 * code:7.1f} ms; "
                f"networks at least {bound:6.1f} s; share {whole:.2%}, without codes {rest:.2%}; "
                f"{kernels.count / given.steps:.0f} kernels",
                flush=True,
            )


if __name__ == "__main__":
    main()
