"""Compare the FLOPs and the time of the sampling loop with those of a plain loop, which skips no work.

    python benchmarks/sampling.py [--images 8] [--steps 18] [--layers 24] [--rounds 1]

The models have the paper's sizes and random weights. Fails if any token differs.
"""

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch.utils.flop_counter import FlopCounterMode

from tokencritic import CriticScorer, MaskedGenerator, Scorer, sample
from tokencritic.models import critic, generator
from tokencritic.plan import Plan
from tokencritic.randomness import as_seeds
from tokencritic.sampling.loop import choose
from tokencritic.sampling.propose import propose


@torch.no_grad()
def plain_sample(generator: MaskedGenerator, scorer: Scorer, labels: torch.Tensor, steps: int) -> torch.Tensor:
    """Sample by Algorithm 2 as printed, with all steps, all positions, and scores in the last step."""
    plan = Plan.make([generator.num_tokens] * len(labels), steps)
    mask = everything = torch.ones(len(labels), generator.num_tokens, dtype=torch.bool)
    tokens = torch.full(mask.shape, generator.mask_id)
    for step in plan.steps:
        proposal = propose(_Everywhere(generator), tokens, mask, labels, as_seeds(0, len(labels)), step=step)
        _, mask = choose(scorer, proposal, everything, step.num_masked)
        tokens = proposal.tokens.masked_fill(mask, generator.mask_id)
    return tokens


class _Everywhere(MaskedGenerator):
    """A generator that always computes the logits of all positions."""

    def __init__(self, generator: MaskedGenerator) -> None:
        self.generator = generator

    def __call__(self, masked_tokens: torch.Tensor, labels: torch.Tensor | None, /) -> torch.Tensor:
        return self.generator(masked_tokens, labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=8, help="the number of images, all of one class")
    parser.add_argument("--steps", type=int, default=18)
    parser.add_argument("--layers", type=int, default=24, help="layers of the generator; the critic has 5/6 of them")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    judged = critic.Critic(dataclasses.replace(critic.PAPER_256, layers=max(1, arguments.layers * 5 // 6))).eval()
    filling = generator.Generator(dataclasses.replace(generator.PAPER_256, layers=arguments.layers)).eval()

    scorer, labels = CriticScorer(judged), torch.full((arguments.images,), 207)

    def run(method: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, float, int]:
        with FlopCounterMode(display=False) as counter:
            start = time.perf_counter()
            tokens = method()
            seconds = time.perf_counter() - start
        return tokens, seconds, counter.get_total_flops()

    ours = partial(sample, filling, scorer, labels, 0, steps=arguments.steps)
    plain = partial(plain_sample, filling, scorer, labels, arguments.steps)
    rounds = [(run(ours), run(plain)) for _ in range(arguments.rounds)]
    equal = all(on[0].equal(off[0]) for on, off in rounds)
    fast, slow = (statistics.median(pair[side][1] for pair in rounds) for side in (0, 1))
    few, many = (pair[2] / 1e12 for pair in rounds[0])
    print(f"{arguments.images} images of one class, {arguments.steps} steps, {torch.get_num_threads()} threads")
    print(f"tokens equal bit for bit: {equal}")
    print(f"FLOPs  loop {few:7.2f} T   plain {many:7.2f} T   ratio {few / many:.3f}")
    print(f"time   loop {fast:7.1f} s   plain {slow:7.1f} s   ratio {fast / slow:.3f}")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
