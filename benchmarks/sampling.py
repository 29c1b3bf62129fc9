"""What the exact work-saving of the sampling loop saves: the same code with it on and off, in turns, in one run.

    python benchmarks/sampling.py [--images 8] [--steps 18] [--layers 24] [--rounds 1]

The models have the paper's sizes and random weights. Fails if a single token differs.
"""

import argparse
import dataclasses
import statistics
import sys
import time

import torch
from torch.utils.flop_counter import FlopCounterMode

from tokencritic import CriticScorer, sample
from tokencritic.models import critic, generator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=8, help="all of one class")
    parser.add_argument("--steps", type=int, default=18)
    parser.add_argument("--layers", type=int, default=24, help="of the generator; the critic has 5/6 of them")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    judged = critic.Critic(dataclasses.replace(critic.PAPER_256, layers=max(1, arguments.layers * 5 // 6))).eval()
    drawn = generator.Generator(dataclasses.replace(generator.PAPER_256, layers=arguments.layers)).eval()

    def run(save_work: bool) -> tuple[torch.Tensor, float, int]:
        labels = [207] * arguments.images
        with FlopCounterMode(display=False) as counter:
            start = time.perf_counter()
            tokens = sample(drawn, CriticScorer(judged), labels, seeds=0, steps=arguments.steps, save_work=save_work)
            seconds = time.perf_counter() - start
        return tokens, seconds, counter.get_total_flops()

    rounds = [(run(True), run(False)) for _ in range(arguments.rounds)]
    equal = all(on[0].equal(off[0]) for on, off in rounds)
    fast, slow = (statistics.median(pair[side][1] for pair in rounds) for side in (0, 1))
    few, many = (pair[2] / 1e12 for pair in rounds[0])
    print(f"{arguments.images} images of one class, {arguments.steps} steps, {torch.get_num_threads()} threads")
    print(f"tokens equal bit for bit: {equal}")
    print(f"FLOPs  on {few:7.2f} T   off {many:7.2f} T   ratio {few / many:.3f}")
    print(f"time   on {fast:7.1f} s   off {slow:7.1f} s   ratio {fast / slow:.3f}")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
