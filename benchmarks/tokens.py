"""Measure the rate of reading token batches, and the rate of tokenizing relative to the tokenizer's forward pass.

    python benchmarks/tokens.py [--part tokens|arrays|files|feeding] [--files 3000] [--workers 2] [--rate 1000]

Goals: reading at more than 1 M rows/s, and tokenizing at 80 % or more of the rate of the forward pass. Arrays and
images are random, and files are in the page cache. A rate relative to the forward pass is the median of three runs,
which alternate with the forward pass.

The part `feeding` tokenizes JPEG files with a stand-in for a network on a GPU. The stand-in sleeps, so it uses no core.
The goal is 0.9 of the possible rate: the rate of the network or of as many processes that only decode, if that is
lower. The measured rates exclude the start of the workers. Decoding alone is measured before and after tokenizing.
"""

import argparse
import json
import multiprocessing
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
from tokencritic.data.tokenizing import BatchReader, TokenizeJob
from tokencritic.data.tokens import TokenArrays
from tokencritic.data.transforms import Preprocess
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer
from tokencritic.training.token_tasks import read_rows

CODES = 256
PARTS = ("tokens", "arrays", "files", "feeding")
PHOTO = Preprocess(256, 3)
BATCH = 64


class Nothing(CompactTokenizer):
    """A tokenizer without cost, to measure reading, cropping and writing alone."""

    def encode(self, images: Tensor) -> Tensor:
        return torch.zeros(len(images), self.num_tokens, dtype=torch.int64)


class Sleeping(Nothing):
    """A tokenizer of a known rate that uses no core.

    rate: images per second.
    calls: the start time and the size of each batch.
    """

    rate = 1000.0

    def encode(self, images: Tensor) -> Tensor:
        self.calls.append((time.perf_counter(), len(images)))
        time.sleep(len(images) / self.rate)
        return super().encode(images)

    @property
    def calls(self) -> list[tuple[float, int]]:
        return self.__dict__.setdefault("seen", [])


def cheap(image_size: int, channels: int, width: int) -> CompactTokenizer:
    """Return a very small tokenizer: patches of 4 x 4 pixels, two layers and 256 codes."""
    sizes = {"encoder_blocks": 0, "decoder_blocks": 0, "encoder_kernel": 1, "codebook_size": CODES}
    return CompactTokenizer(CompactConfig(image_size, channels, width=width, **sizes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, help="measure only this part")
    parser.add_argument("--files", type=int, default=3000, help="feeding: JPEG files of 500 x 375")
    parser.add_argument("--workers", type=int, default=2, help="feeding: processes that decode")
    parser.add_argument("--rate", type=float, default=1000, help="feeding: images per second of the network")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    parts = {"tokens": rates_of_tokens, "arrays": rates_of_arrays, "files": rates_of_files}
    for part in PARTS if arguments.part is None else (arguments.part,):
        with tempfile.TemporaryDirectory() as name:
            if part == "feeding":
                feeding(Path(name), arguments.files, arguments.workers, arguments.rate)
            else:
                parts[part](Path(name))


def rates_of_tokens(folder: Path) -> None:
    for num_tokens in (49, 256):
        rate = reading_rate(folder / str(num_tokens), num_tokens)
        print(f"reading {num_tokens:3} tokens per row: {rate / 1e6:.1f} M rows/s")


def rates_of_arrays(folder: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (8192, 28, 28), np.uint8)
    small = ArraySource(images, np.zeros(len(images), np.int64), ("all",), "array", "train", "random")
    for crop in ("center", "random"):
        preprocess = Preprocess(28, 1, crop, flip=True)
        rate = len(small) / seconds(lambda p=preprocess: write(small, Nothing(), p, folder / f"nothing {p.crop}"))
        print(f"tokenizing 28x28 array, {crop} crop, without the forward pass: {rate:.0f} images/s")
        compare(f"28x28 array, {crop} crop", small, cheap(28, 1, 128), preprocess, folder)


def rates_of_files(folder: Path) -> None:
    write_files(folder / "files", 1024)
    photos = open_source(folder / "files")
    # On a CPU this tokenizer takes about as long as the paper's on a fast GPU, a hundredth of the paper's on a CPU.
    compare("500x375 JPEG files", photos, cheap(256, 3, 256), PHOTO, folder)


def feeding(folder: Path, files: int, workers: int, rate: float) -> None:
    """Print the rate of tokenizing with a network of a known rate, and its share of the possible rate."""
    write_files(folder / "files", files)
    source = open_source(folder / "files")
    alone = [decoding_rate(folder / "files", workers)]
    tokenizer = Sleeping(cheap(256, 3, 8).config)
    tokenizer.rate = rate
    write(source, tokenizer, PHOTO, folder / "tokens", workers, BATCH)
    # The first batches are left out: they wait for the workers to start, or are read during this wait.
    calls = tokenizer.calls[min(4 * max(1, workers), len(tokenizer.calls) // 2) :]
    took = calls[-1][0] - calls[0][0]
    found = sum(size for _, size in calls[:-1]) / took
    alone.append(decoding_rate(folder / "files", workers))
    cores = statistics.mean(alone)
    print(f"{max(1, workers)} processes that only decode 500x375 JPEG files to 256x256: {cores:.0f} images/s")
    share = found / min(rate, cores)
    print(f"tokenizing them with {workers} workers and a network of {rate:.0f} images/s: {found:.0f} images/s,")
    print(f"{share:.2f} of what is possible (goal: at least 0.9)")


def decoding_rate(folder: Path, workers: int) -> float:
    """Return the images per second of `workers` processes, at least one, that only decode."""
    count = max(1, workers)
    with multiprocessing.get_context("spawn").Pool(count) as pool:
        return sum(pool.starmap(decode_share, [(folder, number, count) for number in range(count)], chunksize=1))


def decode_share(folder: Path, number: int, count: int) -> float:
    """Decode one of `count` shares of a folder, and return the images per second."""
    torch.set_num_threads(1)
    read, batches = BatchReader(source := open_source(folder), PHOTO, 0), range(0, len(source), BATCH)
    read(0, range(min(8, len(source))))
    mine = [range(start, min(start + BATCH, len(source))) for start in batches[number::count]]
    return sum(map(len, mine)) / seconds(lambda: [read(0, batch) for batch in mine])


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


def write(
    source: Source, tokenizer: CompactTokenizer, preprocess: Preprocess, out: Path, workers: int = 2, batch: int = 128
) -> None:
    TokenizeJob(source, tokenizer, out, preprocess, batch_size=batch, workers=workers).run(progress=False)


def write_files(folder: Path, count: int) -> None:
    """Write JPEG files that resemble blurred photographs, and take as long to decode as photographs."""
    rng = np.random.default_rng(0)
    for label in range(2):
        place = folder / f"class{label}"
        place.mkdir(parents=True)
        for number in range(count // 2):
            rough = Image.fromarray(rng.integers(0, 256, (47, 63, 3), np.uint8))
            rough.resize((500, 375), Image.Resampling.BICUBIC).save(place / f"{number}.jpg", quality=90)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
