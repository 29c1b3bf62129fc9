"""Use your own generator and tokenizer on the command line, without classes and with your own token ids.

The commands only need the function `make`. Images are 4 x 4 squares, dark above and light below. Each square is one
token. In the generator's ids, 0 means hidden, 1 is dark and 2 is light. The generator is right about most squares, but
guesses the last row. A wrong guess stays once it is kept, unless a critic that is trained on the images re-masks it.

This script makes the training images and runs the commands `tokenize`, `train critic` and `sample` below. It prints the
share of correct samples.

    python examples/unconditional.py
"""

import contextlib
import io
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tokencritic.cli.main import main as token_critic

SIDE, SQUARE = 4, 2  # tokens and pixels along a side
PICTURE = torch.tensor([0] * 8 + [1] * 8)

TOKENIZE = "tokenize unconditional:make images.npz --out tokens"
TRAIN = """train critic fashion-mnist --generator unconditional:make --data tokens --start random --run critic --steps 60
    --training.batch_size 64 --optimizer.learning_rate 0.01 --optimizer.ema 0.9
    --model.width 16 --model.layers 1 --model.heads 2 --model.mlp_width 32"""
SAMPLE = "sample unconditional:make --num 500 --steps 8 --format npz --out"
CRITIC = "--critic critic --critic_window 1 0 --noise_kind uniform --selection_noise 0.2 --temperature 1"


class YourGenerator(nn.Module):
    """Your generator: tokens (b, 16) with ids from 0 (hidden) to 2 -> logits (b, 16, 3), one column per id."""

    num_tokens, codebook_size, mask_id, first_code = SIDE * SIDE, 2, 0, 1

    def forward(self, tokens: Tensor, labels: Tensor | None) -> Tensor:
        sure = torch.tensor([2.0] * 12 + [0.0] * 4)
        light = (sure * (2 * PICTURE - 1)).expand(tokens.shape)
        return torch.stack([torch.full_like(light, -9.0), -light, light], dim=-1)


class YourTokenizer:
    """Your tokenizer: a square of 2 x 2 pixels is a token. It has no weights, so it defines its own fingerprint."""

    num_tokens, codebook_size, grid = SIDE * SIDE, 2, (SIDE, SIDE)
    image_size, channels = SIDE * SQUARE, 1

    def encode(self, images: Tensor) -> Tensor:
        return (nn.functional.avg_pool2d(images, SQUARE) > 0.5).long().flatten(1)

    def decode(self, tokens: Tensor) -> Tensor:
        return nn.functional.interpolate(tokens.view(-1, 1, SIDE, SIDE).float(), scale_factor=SQUARE)

    def fingerprint(self) -> str:
        return "squares"


def make() -> tuple[nn.Module, YourTokenizer]:
    """Return the generator and the tokenizer. The commands refer to this function as `unconditional:make`."""
    return YourGenerator(), YourTokenizer()


def run(command: str) -> None:
    """Run a command. If it fails, exit with its output."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        failed = token_critic(command.split())
    if failed:
        sys.exit(said.getvalue())


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))  # the commands import from the current folder, a temporary one
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        picture = 255 * YourTokenizer().decode(PICTURE)[0].numpy().astype(np.uint8)
        np.savez("images.npz", images=picture.repeat(1000, axis=0))
        run(TOKENIZE)
        run(TRAIN)
        for name, flags in (("confidence", ""), ("critic", CRITIC)):
            run(f"{SAMPLE} {name} {flags}")
            with np.load(f"{name}/samples.npz") as arrays:
                right = (arrays["arr_0"][..., 0] == picture).all((1, 2)).mean()
            print(f"{name:<10} {right:6.1%} right in 8 steps")


if __name__ == "__main__":
    main()
