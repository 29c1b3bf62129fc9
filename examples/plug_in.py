"""Use your own generator, critic and scorer with the sampling loop, without a base class or a registry.

- A generator is a callable from masked tokens and labels to logits. `as_generator` adds its sizes.
- A critic is a callable from complete tokens and labels to one logit per token.
- A scorer is a callable from a proposal to scores.

This example has one of each. Images are checkerboards of 4 x 4 tokens with one of two phases.

    python examples/plug_in.py
"""

import torch
from torch import Tensor

from tokencritic import ConfidenceScorer, CriticScorer, Proposal, as_generator, sample

SIZE, MASK = 4, 2  # tokens 0 and 1 are the colours, 2 means hidden
PHASE = torch.tensor([(row + column) % 2 for row in range(SIZE) for column in range(SIZE)])


def votes_for_a_phase(masked_tokens: Tensor, labels: Tensor | None) -> Tensor:
    """Return the generator's logits (b, n, 2): visible squares vote for a phase. An empty board has uniform logits."""
    visible = masked_tokens != MASK
    votes = torch.where(visible, 1 - 2 * (masked_tokens ^ PHASE), 0).sum(1, keepdim=True)  # b 1
    first = 1.5 * votes * (1 - 2 * PHASE)  # b n: for colour 0
    return torch.stack([first, -first], dim=-1).float() / 2


def critic(tokens: Tensor, labels: Tensor | None) -> Tensor:
    """Return the critic's logits (b, n): a square is real if it agrees with the majority."""
    side = 1 - 2 * (tokens ^ PHASE)
    return (side * side.sum(1, keepdim=True)).float()


def left_to_right(proposal: Proposal) -> Tensor:
    """Return a scorer's scores (b, n): the first squares in reading order have the highest scores."""
    return -torch.arange(proposal.tokens.shape[1]).expand(proposal.tokens.shape).float()


def main() -> None:
    generator = as_generator(votes_for_a_phase, num_tokens=SIZE * SIZE, codebook_size=2, mask_id=MASK)
    scorers = {"confidence": ConfidenceScorer(), "critic": CriticScorer(critic, 0.2), "left to right": left_to_right}
    for name, scorer in scorers.items():
        boards = sample(generator, scorer, None, range(1000), steps=4)
        side = boards ^ PHASE
        perfect = ((side == 0).all(1) | (side == 1).all(1)).float().mean()
        print(f"{name:<14} {perfect:6.1%} perfect boards in 4 steps; the first one:")
        for row in boards[0].reshape(SIZE, SIZE).tolist():
            print("   ", " ".join(".#"[token] for token in row))


if __name__ == "__main__":
    main()
