"""Train a critic for your own generator, in seconds on a CPU.

The generator is a plain torch module with its own token ids: 0 means hidden, and the codes are 1 to 8. `as_generator`
converts them; tokens of this package are codes from 0. Images are 16 tokens that count up from a random start, so there
are 8 equally likely images. Samples are compared at equal steps. A step with the critic evaluates a second network.

    python examples/train_your_critic.py
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tokencritic import ConfidenceScorer, Critic, CriticConfig, CriticScorer, as_generator, sample
from tokencritic.data.tokens import TokenArrays
from tokencritic.training.loop import train
from tokencritic.training.settings import OptimizerSettings, TrainingSettings
from tokencritic.training.token_tasks import CriticObjective, CriticTask

NUM_TOKENS, CODES, STEPS = 16, 8, 6


class YourGenerator(nn.Module):
    """Your generator: tokens (b, 16) with ids from 0 (hidden) to 8 -> logits (b, 16, 9)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CODES + 1, 16)
        self.layers = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 144))

    def forward(self, tokens: Tensor, labels: Tensor | None = None) -> Tensor:
        return self.layers(self.embedding(tokens).flatten(1)).unflatten(1, (NUM_TOKENS, CODES + 1))


def training_images(count: int) -> Tensor:
    """Return tokens (count, 16) of real images, codes from 0."""
    return (torch.randint(0, CODES, (count, 1)) + torch.arange(NUM_TOKENS)) % CODES


def train_your_generator(network: nn.Module) -> None:
    """Train the generator with its own token ids."""
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3)
    for _ in range(300):
        tokens = training_images(128) + 1
        hidden = torch.rand(tokens.shape) < torch.rand(len(tokens), 1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(tokens.masked_fill(hidden, 0))[hidden], tokens[hidden]).backward()
        optimizer.step()


def report(name: str, tokens: Tensor) -> None:
    """Print the share of valid images and the total variation distance to the true distribution."""
    right = (tokens.diff(dim=1) % CODES == 1).all(1)
    shares = tokens[right, 0].bincount(minlength=CODES) / len(tokens)
    distance = 0.5 * ((shares - 1 / CODES).abs().sum() + 1 - shares.sum())
    print(f"{name:<20} {shares.sum():6.1%} right, distance to the truth {distance:.2f}, in {STEPS} steps")


def main() -> None:
    torch.manual_seed(0)
    network = YourGenerator()
    train_your_generator(network)

    generator = as_generator(network, num_tokens=NUM_TOKENS, codebook_size=CODES, mask_id=0, first_code=1)
    report("before: confidence", sample(generator, ConfidenceScorer(), None, range(1000), steps=STEPS))

    tokens = training_images(10_000).numpy().astype("uint16")
    no_labels = np.full(len(tokens), -1)
    arrays = TokenArrays(tokens, no_labels, "none", CODES, (4, 4), class_names=(), facts={})
    config = CriticConfig(
        NUM_TOKENS, CODES, 0, width=64, layers=2, heads=4, mlp_width=128, dropout=0.0, norm_first=True
    )
    task = CriticTask(Critic(config), generator, arrays, CriticObjective())
    with tempfile.TemporaryDirectory() as run:
        train(task, Path(run), OptimizerSettings(learning_rate=3e-3), TrainingSettings(batch_size=64, steps=400))
        critic = Critic.from_pretrained(Path(run) / "critic")
    report("after: critic", sample(generator, CriticScorer(critic), None, range(1000), steps=STEPS))


if __name__ == "__main__":
    main()
