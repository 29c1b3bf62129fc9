"""Use classifier-free guidance with your own generator, which has classes, a null class and its own token ids.

The generator is a plain torch module: token 0 means hidden, the codes are 1 to 8, and the label -1 means no class.
`as_generator` converts these ids. Images of class c are 16 tokens that count up in steps of c + 1 from a random start.
The generator trains for a few seconds, without the label for a quarter of the images. It still confuses classes.
Guidance makes it follow the label.

    python examples/null_class.py
"""

import torch
from torch import Tensor, nn

from tokencritic import ConfidenceScorer, as_generator, sample
from tokencritic.guidance import guided

NUM_TOKENS, CODES, CLASSES, NULL, STEPS = 16, 8, 4, -1, 8


class YourGenerator(nn.Module):
    """Your generator: tokens (b, 16) with ids 0 to 8, labels (b,) -1 to 3 -> logits (b, 16, 9), a column per id."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.classes = nn.Embedding(CODES + 1, 16), nn.Embedding(CLASSES + 1, 64)
        self.layers = nn.Sequential(nn.Linear(320, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 144))

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        read = torch.cat([self.tokens(tokens).flatten(1), self.classes(labels - NULL)], dim=1)
        return self.layers(read).unflatten(1, (NUM_TOKENS, CODES + 1))


def training_images(count: int) -> tuple[Tensor, Tensor]:
    """Return tokens (count, 16) of real images, codes from 0, and their classes (count,)."""
    labels = torch.randint(0, CLASSES, (count,))
    return (torch.randint(0, CODES, (count, 1)) + (labels[:, None] + 1) * torch.arange(NUM_TOKENS)) % CODES, labels


def train_your_generator(network: nn.Module) -> None:
    """Train the generator with its own token ids. Random tokens and a quarter of the labels are hidden."""
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3)
    for _ in range(150):
        codes, labels = training_images(64)
        hidden = torch.rand(codes.shape) < torch.rand(len(codes), 1)
        labels = labels.masked_fill(torch.rand(len(labels)) < 0.25, NULL)
        logits = network((codes + 1).masked_fill(hidden, 0), labels)
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits[hidden], codes[hidden] + 1).backward()
        optimizer.step()


def main() -> None:
    torch.manual_seed(0)
    network = YourGenerator()
    train_your_generator(network)

    generator = as_generator(
        network,
        num_tokens=NUM_TOKENS,
        codebook_size=CODES,
        num_classes=CLASSES,
        mask_id=0,
        first_code=1,
        null_label=NULL,
    )
    labels = torch.arange(1000) % CLASSES
    for scale in (1.0, 2.0, 4.0):
        tokens = sample(guided(generator, scale), ConfidenceScorer(), labels, steps=STEPS)
        follow = ((tokens.diff(dim=1) - 1) % CODES == labels[:, None]).float().mean()
        print(f"guidance {scale:g}: {follow:6.1%} of the tokens follow their class, in {STEPS} steps")


if __name__ == "__main__":
    main()
