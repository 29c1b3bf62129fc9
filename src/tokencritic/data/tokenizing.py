"""Images to token arrays: in parallel, resumable, and the same bytes whatever the workers, ranks and interruptions.

The work is cut into fixed chunks. Each chunk is one file, written under `.chunks` in the folder, whole or not at all.
A run does the chunks of its rank that are not there yet; the rank that then finds all of them joins them.
"""

import dataclasses
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokencritic.data.chunk_files import Chunk, ChunkFiles, check_settings
from tokencritic.data.source import Source
from tokencritic.data.tokens import CROPS_PER_IMAGE, MAX_CODEBOOK, TokenArrays, read_facts
from tokencritic.data.transforms import Preprocess, to_float
from tokencritic.errors import InputError, check_at_least
from tokencritic.progress import Progress
from tokencritic.tokenizers.tokenizer import Tokenizer

CHUNK_ROWS = 2048


def tokenize(
    source: Source,
    tokenizer: Tokenizer,
    out: str | Path,
    *,
    preprocess: Preprocess,
    crops_per_image: int = 1,
    seed: int = 0,
    batch_size: int = 64,
    workers: int = 4,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device | str = "cpu",
    progress: bool = True,
) -> TokenArrays | None:
    """Write the tokens of every image of the source to the folder `out`; or go on where it stopped.

    crops_per_image: how many rows each image has, each of a crop of its own. seed: of the random crops. workers: threads that
    decode. rank, world_size: chunk i is done by rank i % world_size; all share the folder.
    Rows come in the source's order, first those of all first crops; a corrupt image leaves none. Workers, ranks and
    interruptions do not change the result; another batch_size may, where a tokenizer rounds differently.
    Returns the arrays, or None if other ranks have work left: the last of them joins the chunks.
    """
    check_at_least(1, crops_per_image=crops_per_image, batch_size=batch_size, workers=workers)
    if not 0 <= rank < world_size:
        raise InputError(f"rank is {rank} of world_size {world_size}; it must lie in [0, world_size)")
    job = Job(source, tokenizer, preprocess, crops_per_image, seed, batch_size, torch.device(device))
    out, settings = Path(out), job.settings()
    facts = read_facts(out)
    if facts is not None:
        check_settings(out, facts, settings)
        return TokenArrays.open(out)
    files = ChunkFiles(out, settings, crops_per_image * job.chunks_per_crop, tokenizer.num_tokens)
    files.prepare(rank)
    mine = range(rank, files.count, world_size)
    missing = [number for number in mine if files.read(number) is None]
    total, left = (sum(len(batch) for number in some for batch in job.batches(number)) for some in (mine, missing))
    with Progress(total, "tokenizing", "images", done=total - left, shown=progress and rank == 0) as shown:
        for number, chunk in _chunks(job, missing, workers, shown):
            files.write(number, chunk)
    return TokenArrays.open(out) if files.join(source.max_corrupt) else None


@dataclass(frozen=True, eq=False)
class Job:
    """What is to be done, apart from who does it. Chunks are numbered over all crops."""

    source: Source
    tokenizer: Tokenizer
    preprocess: Preprocess
    crops_per_image: int
    seed: int
    batch_size: int
    device: torch.device

    def __post_init__(self) -> None:
        if len(self.source) == 0:
            raise InputError("source holds no image; there is nothing to tokenize")
        wanted = self.tokenizer.image_size, self.tokenizer.channels
        given = self.preprocess.size, self.preprocess.channels
        if given != wanted:
            raise InputError(f"preprocess gives (size, channels) {given}; the tokenizer takes {wanted}")
        if self.tokenizer.codebook_size > MAX_CODEBOOK:
            size = self.tokenizer.codebook_size
            raise InputError(f"codebook_size is {size}; token arrays hold at most {MAX_CODEBOOK}")

    @property
    def chunks_per_crop(self) -> int:
        return -(-len(self.source) // CHUNK_ROWS)

    def batches(self, chunk: int) -> list[range]:
        """The numbers of a chunk's examples in the source, in batches."""
        start = chunk % self.chunks_per_crop * CHUNK_ROWS
        stop = min(start + CHUNK_ROWS, len(self.source))
        return [range(first, min(first + self.batch_size, stop)) for first in range(start, stop, self.batch_size)]

    def settings(self) -> dict[str, Any]:
        """All that decides the result, as it stands in the JSON."""
        return {
            "format": 1,
            "tokenizer_fingerprint": self.tokenizer.fingerprint(),
            "codebook_size": self.tokenizer.codebook_size,
            "grid": list(self.tokenizer.grid),
            "preprocess": dataclasses.asdict(self.preprocess),
            CROPS_PER_IMAGE: self.crops_per_image,
            "seed": self.seed,
            "source": self.source.describe(),
            "class_names": list(self.source.class_names),
        }

    def decode(self, chunk: int, batch: range) -> tuple[Tensor, np.ndarray, dict[str, str]]:
        """Read and crop: uint8 (b, c, h, w), labels (b,), and the corrupt examples, which leave no row. Runs in a worker."""
        source, kept = self.source, list(batch)
        if source.images is not None:
            images = source.images[batch.start : batch.stop]
        else:
            examples = {index: source[index] for index in batch}
            images = [example[0] for example in examples.values() if example is not None]
            kept = [index for index, example in examples.items() if example is not None]
        crop_number = chunk // self.chunks_per_crop
        pixels = self.preprocess.batch(images, kept, seed=self.seed, crop_number=crop_number)
        names = [source.name(index) for index in batch if index not in kept]
        return pixels, source.labels[kept], {name: source.corrupt[name] for name in names}

    @torch.inference_mode()
    def encode(self, pixels: Tensor) -> np.ndarray:
        """uint8 (b, c, h, w) -> uint16 (b, n)."""
        shape = (len(pixels), self.tokenizer.num_tokens)
        if not len(pixels):
            return np.zeros(shape, np.uint16)
        tokens = self.tokenizer.encode(to_float(pixels.to(self.device)))
        if tokens.shape != shape:
            raise InputError(f"tokenizer gives tokens {tuple(tokens.shape)}; its grid promises {shape}")
        values = tokens.cpu().numpy()
        if values.min() < 0 or values.max() >= self.tokenizer.codebook_size:
            size = self.tokenizer.codebook_size
            raise InputError(f"tokenizer gives tokens {values.min()} to {values.max()}; its codebook has {size}")
        return values.astype(np.uint16)


def _chunks(job: Job, numbers: list[int], workers: int, progress: Progress) -> Iterator[tuple[int, Chunk]]:
    """The chunks of these numbers, in order. Workers decode ahead, across chunks, while this thread encodes."""
    batches = ((number, batch) for number in numbers for batch in job.batches(number))
    waiting: deque[Future[tuple[Tensor, np.ndarray, dict[str, str]]]] = deque()
    pool = ThreadPoolExecutor(workers)
    try:
        for number in numbers:
            pieces = []
            for batch in job.batches(number):
                wanted = workers + 2 - len(waiting)
                waiting.extend(pool.submit(job.decode, *ahead) for ahead in islice(batches, wanted))
                pixels, labels, corrupt = waiting.popleft().result()
                pieces.append(Chunk(job.encode(pixels), labels, corrupt))
                progress.advance(len(batch))
            yield number, Chunk.joined(pieces)
    finally:
        pool.shutdown(cancel_futures=True)
