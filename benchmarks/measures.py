"""What metrics cost: precision and recall as a ratio to the bare distance products, and the root inside FID.

Goals: a ratio under 1.5, and under 2 GB of memory beyond the features at 50,000 x 50,000 points in 2048 dimensions.
Features are random, with the falling spectrum that features of images have. The size here is small; for the full one:
python benchmarks/measures.py --points 50000
"""

import argparse
import resource
import time
from collections.abc import Callable

import torch
from torch import Tensor

from tokencritic.evaluation.metrics import Gaussian, fid, precision_recall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=10_000, help="real points, and as many fake ones")
    parser.add_argument("--dimension", type=int, default=2048)
    parser.add_argument("--root-dimension", type=int, default=2048, help="of the covariances in FID")
    arguments = parser.parse_args()
    rng = torch.Generator().manual_seed(0)
    real, fake = (features(arguments.points, arguments.dimension, scale, rng) for scale in (1, 0.95))
    bare = seconds(lambda: products(real, fake))
    before = peak_memory()
    spent = seconds(lambda: precision_recall(real, fake))
    grown = peak_memory() - before
    size = f"{arguments.points} x {arguments.points} points in {arguments.dimension} dimensions"
    print(
        f"precision and recall, {size}: {spent:.1f} s, {spent / bare:.2f} of the bare distance products ({bare:.1f} s)"
    )
    print(f"  memory beyond the features and the bare products: {grown / 1e6:.0f} MB")
    dimension = arguments.root_dimension
    mean = torch.zeros(dimension, dtype=torch.float64)
    gaussians = [Gaussian(mean, features(2 * dimension, dimension, scale, rng).T.double().cov()) for scale in (1, 0.95)]
    spent = seconds(lambda: fid(*gaussians))
    print(f"FID of {dimension} dimensions, from mean and covariance: {spent:.1f} s")


def features(count: int, dimension: int, scale: float, rng: torch.Generator) -> Tensor:
    """Directions fall in weight by a power law; a block at a time, so that making them needs no memory to speak of."""
    weights = torch.arange(1, dimension + 1).float() ** -0.8 * scale
    rows = torch.empty(count, dimension)
    for block in rows.split(4096):
        block.normal_(generator=rng).mul_(weights)
    return rows


def products(real: Tensor, fake: Tensor, block: int = 2048) -> None:
    """All products that distances within and between the two sets are made of, and nothing else."""
    for left, right in ((real, real), (fake, fake), (real, fake)):
        for rows in left.split(block):
            for columns in right.split(block):
                torch.mm(rows, columns.T)


def peak_memory() -> int:
    """In bytes; Linux counts in kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
