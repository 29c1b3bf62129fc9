"""Time the metrics: precision and recall relative to the matrix products of their distances, and FID.

    python benchmarks/measures.py [--points 10000] [--dimension 2048]

Goals for 50,000 x 50,000 points in 2048 dimensions (`--points 50000`): a ratio under 1.5, and less than 2 GB of memory
in addition to the features. Features are random with a decreasing spectrum, like features of images.
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
    parser.add_argument("--points", type=int, default=10_000, help="the number of real points and of fake points")
    parser.add_argument("--dimension", type=int, default=2048)
    parser.add_argument("--root-dimension", type=int, default=2048, help="dimension of the covariances in FID")
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
    """Make random features whose scales follow a power law, block by block to save memory: (count, dimension)."""
    weights = torch.arange(1, dimension + 1).float() ** -0.8 * scale
    rows = torch.empty(count, dimension)
    for block in rows.split(4096):
        block.normal_(generator=rng).mul_(weights)
    return rows


def products(real: Tensor, fake: Tensor, block: int = 2048) -> None:
    """Compute only the matrix products of the distances within and between the two sets."""
    for left, right in ((real, real), (fake, fake), (real, fake)):
        for rows in left.split(block):
            for columns in right.split(block):
                torch.mm(rows, columns.T)


def peak_memory() -> int:
    """Return the peak memory of this process in bytes. Linux reports kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
