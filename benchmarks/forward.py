"""Compare the FLOP/s of a forward pass of the paper-size models with those of a matrix product.

    python benchmarks/forward.py [--batch 4] [--rounds 7]

Forward passes and matrix products of similar duration alternate in one process, because the speed of a shared machine
varies. The median of the ratios is printed.
"""

import argparse
import statistics
import time

import torch

from tokencritic.models.critic import Critic
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig


def forward_flops(config: TransformerConfig, batch: int, outputs: int) -> int:
    """Count the multiplications and additions of all matrix products, including attention.

    outputs: the number of outputs of the head per token.
    """
    n, d = config.num_tokens + 1, config.width
    block = n * (8 * d * d + 4 * d * config.mlp_width) + 4 * n * n * d
    return batch * (config.layers * block + config.num_tokens * (2 * d * d + 2 * d * outputs))


def gemm_rate(size: int = 2048, repeats: int = 20) -> float:
    """Measure the FLOP/s of a square float32 matrix product with a preallocated output."""
    a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    start = time.perf_counter()
    for _ in range(repeats):
        torch.mm(a, b, out=out)
    return repeats * 2 * size**3 / (time.perf_counter() - start)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    print(f"{torch.get_num_threads()} threads, batch {arguments.batch}, {arguments.rounds} rounds, medians")
    for model in (Generator().eval(), Critic().eval()):
        config = model.config
        tokens = torch.randint(0, config.codebook_size, (arguments.batch, config.num_tokens))
        labels = torch.arange(arguments.batch)
        flops = forward_flops(config, arguments.batch, config.codebook_size if isinstance(model, Generator) else 1)
        model(tokens, labels)
        gemm_rate()
        rates, bounds = [], []
        for _ in range(arguments.rounds):
            bounds.append(gemm_rate())
            start = time.perf_counter()
            model(tokens, labels)
            rates.append(flops / (time.perf_counter() - start))
        ratio = statistics.median(rate / bound for rate, bound in zip(rates, bounds, strict=True))
        rate, bound = statistics.median(rates) / 1e9, statistics.median(bounds) / 1e9
        print(
            f"{type(model).__name__:<10} {rate:6.1f} GFLOP/s   matrix product {bound:6.1f} GFLOP/s   ratio {ratio:.2f}"
        )


if __name__ == "__main__":
    main()
