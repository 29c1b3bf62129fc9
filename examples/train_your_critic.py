"""A critic for your own generator, trained in seconds on a CPU.

Images are 16 tokens of 8 codes that count up from a random start, so there are 8 equally likely images. Generator and critic
are plain torch modules. The generator has token ids of its own: 0 means hidden and the codes are 1 to 8. `as_generator` is
told so once; our tokens are always codes from 0.

MaskGIT's sampler and Token-Critic are compared at equal steps; a step with the critic evaluates a second network.

    python examples/train_your_critic.py
"""

import torch
from torch import Tensor, nn

from tokencritic import ConfidenceScorer, CriticScorer, as_generator, critic_loss, sample

NUM_TOKENS, CODES, STEPS = 16, 8, 6


class YourNetwork(nn.Module):
    """Tokens (b, 16) -> (b, 16, outputs)."""

    def __init__(self, vocabulary: int, outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 16)
        sizes = 16 * NUM_TOKENS, 256, outputs * NUM_TOKENS
        self.layers = nn.Sequential(
            nn.Linear(*sizes[:2]), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(*sizes[1:])
        )

    def forward(self, tokens: Tensor, labels: Tensor | None = None) -> Tensor:
        return self.layers(self.embedding(tokens).flatten(1)).unflatten(1, (NUM_TOKENS, -1)).squeeze(-1)


def training_images(count: int) -> Tensor:
    """Tokens (count, 16), codes from 0."""
    return (torch.randint(0, CODES, (count, 1)) + torch.arange(NUM_TOKENS)) % CODES


def train_your_generator(network: nn.Module) -> None:
    """Your training, with your ids."""
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3)
    for _ in range(300):
        tokens = training_images(128) + 1
        hidden = torch.rand(tokens.shape) < torch.rand(len(tokens), 1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(tokens.masked_fill(hidden, 0))[hidden], tokens[hidden]).backward()
        optimizer.step()


def report(name: str, tokens: Tensor) -> None:
    """Print how many images are right, and the total variation distance to the 8 equally likely ones."""
    right = (tokens.diff(dim=1) % CODES == 1).all(1)
    shares = tokens[right, 0].bincount(minlength=CODES) / len(tokens)
    distance = 0.5 * ((shares - 1 / CODES).abs().sum() + 1 - shares.sum())
    print(f"{name:<20} {shares.sum():6.1%} right, distance to the truth {distance:.2f}, in {STEPS} steps")


def main() -> None:
    torch.manual_seed(0)
    network = YourNetwork(vocabulary=CODES + 1, outputs=CODES + 1)
    train_your_generator(network)
    generator = as_generator(network, num_tokens=NUM_TOKENS, codebook_size=CODES, mask_id=0, first_code=1)
    report("before: confidence", sample(generator, ConfidenceScorer(), None, range(1000), steps=STEPS))

    critic = YourNetwork(vocabulary=CODES, outputs=1)
    optimizer = torch.optim.AdamW(critic.parameters(), 2e-3)
    for step in range(400):
        seeds = torch.arange(64 * step, 64 * step + 64)  # one random stream for each example
        loss = critic_loss(critic, generator, training_images(64), None, seeds)
        optimizer.zero_grad()
        loss.values.mean().backward()
        optimizer.step()
    report("after: critic", sample(generator, CriticScorer(critic), None, range(1000), steps=STEPS))


if __name__ == "__main__":
    main()
