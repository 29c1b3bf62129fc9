"""Compare samplers with the true distribution on a Markov chain, where the distribution is known exactly.

Images are 8 tokens of 3 states. The generator has the exact marginals, or mixes them with 20 % of uniform noise. The
critic is the exact Bayes critic of the generator. The distance to the true distribution therefore measures the choice
of tokens only. The script writes a figure:

    python examples/exact_world.py [--out out/exact_world.png] [--samples 20000]
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from markov_world import MarkovWorld

from tokencritic import ConfidenceScorer, CriticScorer, RandomOrderScorer, SamplingSettings, sample
from tokencritic.sampling.samplers import SAMPLERS
from tokencritic.sampling.scorers import Judges, make_scorer

STEPS = [1, 2, 3, 4, 6, 8]
SHOWN = ("random-order", "confidence", "random-remask", "critic")
TITLES = {0.0: "an exact generator", 0.2: "a generator that is 20 % wrong"}


def scorers(world: MarkovWorld, steps: int) -> dict[str, list]:
    """Return the scorers to compare, by sampler: one setting of the random order, and nine of each other sampler."""
    # Windows that contain no step are widened to contain the last choice.
    windows = [SamplingSettings("random-remask", steps, critic_window=(tenths / 10, 0.0)) for tenths in range(2, 11)]
    critics = [CriticScorer(world.critic, noise) for noise in (0.4, 0.8, 1.2, 1.8, 2.5)]
    return {
        "random-order": [RandomOrderScorer()],
        "confidence": [ConfidenceScorer(noise) for noise in (0, 2, 4.5, 8, 12, 20, 40, 80, 160)],
        "random-remask": [make_scorer(settings.with_open_window(world.num_tokens), Judges()) for settings in windows],
        "critic": critics + [CriticScorer(world.critic, noise, "gumbel") for noise in (0.3, 0.6, 1, 2)],
    }


def distance(world: MarkovWorld, scorer, steps: int, samples: int) -> float:
    """Return the total variation distance between a sampler's images and the true distribution."""
    tokens = sample(world, scorer, [0] * samples, seeds=0, steps=steps)
    return 0.5 * (world.distribution(tokens) - world.truth()).abs().sum().item()


def best_distances(world: MarkovWorld, samples: int) -> dict[str, list[float]]:
    """Return the distance of each sampler at its best setting, for each number of `STEPS`."""
    table: dict[str, list[float]] = {sampler: [] for sampler in SHOWN}
    for steps in STEPS:
        for sampler, some in scorers(world, steps).items():
            table[sampler].append(min(distance(world, scorer, steps, samples) for scorer in some))
        row = "   ".join(f"{SAMPLERS[sampler].title} {values[-1]:.3f}" for sampler, values in table.items())
        print(f"{TITLES[world.error]}, {steps} steps, each at its best setting:   {row}", flush=True)
    return table


def draw(tables: dict[float, dict[str, list[float]]], floor: float, file: Path) -> None:
    figure, panels = plt.subplots(1, len(tables), figsize=(9, 3.6), sharey=True, layout="constrained")
    for axes, (error, table) in zip(panels, tables.items(), strict=True):
        for sampler, row in table.items():
            axes.plot(STEPS, row, "o-", color=SAMPLERS[sampler].colour, label=SAMPLERS[sampler].title)
        axes.axhline(floor, color="0.5", linestyle=":", label="as many true samples")
        axes.set(xlabel="steps", title=TITLES[error])
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("total variation distance to the truth")
    panels[0].legend(frameon=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/exact_world.png"))
    parser.add_argument("--samples", type=int, default=20_000)
    arguments = parser.parse_args()
    worlds = {error: MarkovWorld.random(num_tokens=8, states=3, seed=0, error=error) for error in TITLES}
    truth = worlds[0.0].truth()
    rng = torch.Generator().manual_seed(0)
    exact = truth.multinomial(arguments.samples, True, generator=rng).bincount(minlength=len(truth)) / arguments.samples
    tables = {error: best_distances(world, arguments.samples) for error, world in worlds.items()}
    draw(tables, 0.5 * (exact - truth).abs().sum().item(), arguments.out)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
