"""The samplers against the truth, in a world where the truth is known.

Images are 8 tokens of 3 states from a Markov chain; the generator knows the exact marginals and the critic is the exact
Bayes critic, so what is left of the distance is the fault of choosing which tokens to keep. Writes a figure:

    python examples/exact_world.py [--out out/exact_world.png] [--samples 30000]
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from tokencritic import ConfidenceScorer, CriticScorer, RandomScorer, sample
from tokencritic.exact_world import MarkovWorld

STEPS = [1, 2, 3, 4, 6, 8]
NOISES = {"confidence": [4.5, 10, 20, 40, 80], "critic": [0, 0.4, 0.8, 1.2, 1.8, 2.5]}
COLOURS = {"confidence": "#D55E00", "critic": "#0072B2", "random order": "#009E73"}  # told apart by colour-blind eyes


def distance(world: MarkovWorld, scorer, steps: int, samples: int) -> float:
    """Total variation between what a sampler makes and the true joint."""
    tokens = sample(world, scorer, [0] * samples, seeds=0, steps=steps, num_tokens=world.num_tokens)
    return 0.5 * (world.distribution(tokens) - world.truth()).abs().sum().item()


def best_distances(world: MarkovWorld, samples: int) -> dict[str, dict[int, dict[float, float]]]:
    """name -> steps -> noise -> distance."""
    scorers = {"confidence": ConfidenceScorer, "critic": lambda noise: CriticScorer(world.critic, noise)}
    table: dict[str, dict[int, dict[float, float]]] = {"random order": {}}
    for steps in STEPS:
        table["random order"][steps] = {0: distance(world, RandomScorer(), steps, samples)}
        for name, scorer in scorers.items():
            row = {noise: distance(world, scorer(noise), steps, samples) for noise in NOISES[name]}
            table.setdefault(name, {})[steps] = row
        text = "   ".join(f"{name} {min(rows[steps].values()):.3f}" for name, rows in table.items())
        print(f"{steps} steps, each at its best noise:   {text}", flush=True)
    return table


def draw(table: dict[str, dict[int, dict[float, float]]], floor: float, file: Path) -> None:
    figure, (left, *right) = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
    for name, rows in table.items():
        left.plot(STEPS, [min(rows[steps].values()) for steps in STEPS], "o-", color=COLOURS[name], label=name)
    left.axhline(floor, color="0.5", linestyle=":", label="as many true samples")
    left.set(xlabel="steps", ylabel="total variation distance to the truth", title="each at its best noise")
    left.legend(frameon=False)
    for axes, name in zip(right, ("confidence", "critic"), strict=True):
        for steps, shade in ((4, 1.0), (8, 0.45)):
            row = table[name][steps]
            axes.plot(list(row), list(row.values()), "o-", color=COLOURS[name], alpha=shade, label=f"{steps} steps")
        axes.set(xlabel="selection noise", title=name)
        axes.legend(frameon=False)
    right[0].set_xscale("log")
    right[0].set_xticks(NOISES["confidence"], map(str, NOISES["confidence"]))
    right[0].minorticks_off()
    for axes in (left, *right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/exact_world.png"))
    parser.add_argument("--samples", type=int, default=30_000)
    arguments = parser.parse_args()
    world = MarkovWorld.random(num_tokens=8, states=3, seed=0)
    truth = world.truth()
    rng = torch.Generator().manual_seed(0)
    exact = truth.multinomial(arguments.samples, True, generator=rng).bincount(minlength=len(truth)) / arguments.samples
    draw(best_distances(world, arguments.samples), 0.5 * (exact - truth).abs().sum().item(), arguments.out)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
