"""Measure the rate of reading token batches, and the rate of tokenizing relative to the tokenizer's forward pass.

Goals: reading at more than 1 M rows/s, and tokenizing at 80 % or more of the forward pass. Arrays and images are random
and files are in the page cache. A rate of tokenizing is the median of three, alternating with the forward pass.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tokencritic.data.order import ExampleOrder
from tokencritic.data.source import ArraySource, Source
from tokencritic.data.sources import open_source
from tokencritic.data.tokenizing import TokenizeJob
from tokencritic.data.tokens import TokenArrays
from tokencritic.data.transforms import Preprocess
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer
from tokencritic.training.token_tasks import read_rows

CODES = 256


class Nothing(CompactTokenizer):
    """A tokenizer without cost, to measure reading, cropping and writing alone."""

    def encode(self, images: Tensor) -> Tensor:
        return torch.zeros(len(images), self.num_tokens, dtype=torch.int64)


def cheap(image_size: int, channels: int, width: int) -> CompactTokenizer:
    """Make a very small tokenizer: patches of 4 x 4 pixels, two layers and 256 codes."""
    sizes = {"encoder_blocks": 0, "decoder_blocks": 0, "encoder_kernel": 1, "codebook_size": CODES}
    return CompactTokenizer(CompactConfig(image_size, channels, width=width, **sizes))


def main() -> None:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for num_tokens in (49, 256):
            rate = reading_rate(folder / str(num_tokens), num_tokens)
            print(f"reading {num_tokens:3} tokens per row: {rate / 1e6:.1f} M rows/s")
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (8192, 28, 28), np.uint8)
        small = ArraySource(images, np.zeros(len(images), np.int64), ("all",), "array", "train", "random")
        for crop in ("center", "random"):
            preprocess = Preprocess(28, 1, crop, flip=True)
            rate = len(small) / seconds(lambda p=preprocess: write(small, Nothing(), p, folder / f"nothing {p.crop}"))
            print(f"tokenizing 28x28 array, {crop} crop, without the forward pass: {rate:.0f} images/s")
            compare(f"28x28 array, {crop} crop", small, cheap(28, 1, 128), preprocess, folder)
        write_files(folder / "files", rng)
        photos = open_source(folder / "files")
        # This tokenizer costs about a hundredth of the paper's, like the paper's on a fast GPU.
        compare("500x375 JPEG files", photos, cheap(256, 3, 256), Preprocess(256, 3), folder)


def reading_rate(folder: Path, num_tokens: int, rows: int = 300_000, batch_size: int = 256) -> float:
    """Return the rows read per second over one epoch, including the shuffle."""
    side = int(num_tokens**0.5)
    folder.mkdir()
    np.save(folder / "tokens.npy", np.random.default_rng(0).integers(0, CODES, (rows, num_tokens), np.uint16))
    np.save(folder / "labels.npy", np.zeros(rows, np.int32))
    facts = {"tokenizer_fingerprint": "none", "codebook_size": CODES, "grid": [side, side], "class_names": ["all"]}
    (folder / "tokens.json").write_text(json.dumps(facts | {"rows": rows}))
    arrays, order = TokenArrays.open(folder), ExampleOrder(rows, batch_size)
    steps = rows // batch_size

    def read() -> None:
        for step in range(steps):
            read_rows(arrays, torch.from_numpy(order.batch(step)), step, 0, torch.device("cpu"))

    return steps * batch_size / seconds(read)


def compare(what: str, source: Source, tokenizer: CompactTokenizer, preprocess: Preprocess, folder: Path) -> None:
    """Print the rate of tokenizing and its ratio to the rate of the forward pass."""
    batch = torch.rand(128, tokenizer.channels, tokenizer.image_size, tokenizer.image_size)
    rounds = max(1, len(source) // len(batch))

    def forward() -> None:
        with torch.inference_mode():
            for _ in range(rounds):
                tokenizer.encode(batch)

    ratios, rates = [], []
    forward()
    for number in range(3):
        bare = rounds * len(batch) / seconds(forward)
        out = folder / f"{what} {number}"
        rates.append(len(source) / seconds(lambda out=out: write(source, tokenizer, preprocess, out)))
        ratios.append(rates[-1] / bare)
    rate, ratio = statistics.median(rates), statistics.median(ratios)
    print(f"tokenizing {what}: {rate:.0f} images/s, {ratio:.0%} of the forward pass")


def write(source: Source, tokenizer: CompactTokenizer, preprocess: Preprocess, out: Path) -> None:
    TokenizeJob(source, tokenizer, out, preprocess, batch_size=128, workers=2).run(progress=False)


def write_files(folder: Path, rng: np.random.Generator) -> None:
    """Write JPEG files with the statistics of blurred photographs, which cost as much to decode as photographs."""
    for label in range(2):
        place = folder / f"class{label}"
        place.mkdir(parents=True)
        for number in range(64):
            rough = Image.fromarray(rng.integers(0, 256, (47, 63, 3), np.uint8))
            rough.resize((500, 375), Image.Resampling.BICUBIC).save(place / f"{number}.jpg", quality=90)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
