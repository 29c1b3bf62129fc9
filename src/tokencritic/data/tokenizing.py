"""Images to token arrays: in parallel, resumable, and the same bytes whatever the workers, ranks and interruptions.

The work is cut into fixed chunks. Each chunk is one part file, written under `.parts` in the folder, whole or not at all.
A run does the chunks of its rank that are not there yet; the rank that then finds all of them joins them.
"""

import dataclasses
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from tokencritic.data.parts import Part, Parts, check_settings
from tokencritic.data.sources import Source
from tokencritic.data.tokens import MAX_CODEBOOK, TokenArrays, read_facts
from tokencritic.data.transforms import Preprocess, to_float
from tokencritic.errors import InputError
from tokencritic.progress import Progress

CHUNK_ROWS = 2048


class Tokenizer(Protocol):
    """What tokenizing needs: `encode(images (b, c, h, w) float in [0, 1]) -> tokens (b, n) int64`, and four numbers."""

    @property
    def codebook_size(self) -> int: ...

    @property
    def grid(self) -> tuple[int, int]: ...

    @property
    def image_size(self) -> int: ...

    @property
    def channels(self) -> int: ...

    def encode(self, images: Tensor, /) -> Tensor: ...


class Batch(NamedTuple):
    """Examples start to stop of one pass, which belong to one chunk; `last` if they end it."""

    chunk: int
    pass_number: int
    start: int
    stop: int
    last: bool


class Decoded(NamedTuple):
    """pixels: uint8 (b, c, h, w). labels: (b,). corrupt: name -> reason, of the examples that left no row."""

    pixels: Tensor
    labels: np.ndarray
    corrupt: dict[str, str]


def tokenize(
    source: Source,
    tokenizer: Tokenizer,
    out: str | Path,
    *,
    preprocess: Preprocess,
    fingerprint: str,
    passes: int = 1,
    seed: int = 0,
    batch_size: int = 64,
    workers: int = 4,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device | str = "cpu",
    progress: bool = True,
) -> TokenArrays | None:
    """Write the tokens of every image of the source to the folder `out`, `passes` times over; or go on where it stopped.

    fingerprint: names the tokenizer's weights; a reader compares it. seed: of the random crops, which differ in each pass.
    workers: threads that decode. rank, world_size: chunk i is done by rank i % world_size; all share the folder.
    Rows come pass by pass in the source's order; a corrupt image leaves none. Workers, ranks and interruptions do not
    change the result; another batch_size may, where a tokenizer rounds differently.
    Returns the arrays, or None if other ranks have work left: the last of them joins the parts.
    """
    job = Job(source, tokenizer, preprocess, passes, seed, batch_size, torch.device(device))
    check_job(job, workers, rank, world_size)
    out = Path(out)
    settings = job.settings(fingerprint)
    facts = read_facts(out)
    if facts is not None:
        check_settings(out, facts, settings)
        return TokenArrays.open(out, fingerprint)
    parts = Parts.prepare(out, settings, job.chunks, job.num_tokens, rank)
    mine = range(rank, job.chunks, world_size)
    missing = [chunk for chunk in mine if parts.read(chunk) is None]
    rows = {chunk: len(job.examples(chunk)) for chunk in mine}
    total, done = sum(rows.values()), sum(rows.values()) - sum(rows[chunk] for chunk in missing)
    with Progress(total, "tokenizing", "images", done=done, shown=progress and rank == 0) as shown:
        for chunk, part in _encode(job, missing, workers, shown):
            parts.write(chunk, part)
    return TokenArrays.open(out, fingerprint) if parts.join(source.max_corrupt) else None


@dataclass(frozen=True, eq=False)
class Job:
    """What is to be done, apart from who does it."""

    source: Source
    tokenizer: Tokenizer
    preprocess: Preprocess
    passes: int
    seed: int
    batch_size: int
    device: torch.device

    @property
    def num_tokens(self) -> int:
        height, width = self.tokenizer.grid
        return height * width

    @property
    def chunks(self) -> int:
        return self.passes * self._chunks_per_pass

    @property
    def _chunks_per_pass(self) -> int:
        return -(-len(self.source) // CHUNK_ROWS)

    def examples(self, chunk: int) -> range:
        """The numbers of a chunk's examples in the source."""
        start = chunk % self._chunks_per_pass * CHUNK_ROWS
        return range(start, min(start + CHUNK_ROWS, len(self.source)))

    def batches(self, chunks: list[int]) -> Iterator[Batch]:
        for chunk in chunks:
            examples = self.examples(chunk)
            for start in range(examples.start, examples.stop, self.batch_size):
                stop = min(start + self.batch_size, examples.stop)
                yield Batch(chunk, chunk // self._chunks_per_pass, start, stop, stop == examples.stop)

    def settings(self, fingerprint: str) -> dict[str, Any]:
        """All that decides the result, as it stands in the JSON."""
        return {
            "format": 1,
            "tokenizer_fingerprint": fingerprint,
            "codebook_size": self.tokenizer.codebook_size,
            "grid": list(self.tokenizer.grid),
            "preprocess": dataclasses.asdict(self.preprocess),
            "passes": self.passes,
            "seed": self.seed,
            "source": self.source.describe(),
            "class_names": list(self.source.class_names),
        }

    def decode(self, batch: Batch) -> Decoded:
        """Read and crop the images of a batch. Runs in a worker."""
        chances = {"seed": self.seed, "pass_number": batch.pass_number}
        indices = np.arange(batch.start, batch.stop)
        read_batch = getattr(self.source, "batch", None)
        if read_batch is not None:
            images, labels = read_batch(slice(batch.start, batch.stop))
            return Decoded(self.preprocess.batch(images, indices, **chances), labels, {})
        examples = {int(index): self.source[int(index)] for index in indices}
        whole = {index: example for index, example in examples.items() if example is not None}
        pixels = self.preprocess.batch([image for image, _ in whole.values()], list(whole), **chances)
        labels = np.array([label for _, label in whole.values()], np.int64)
        names = [self.source.name(index) for index in examples.keys() - whole.keys()]
        return Decoded(pixels, labels, {name: self.source.corrupt[name] for name in names})

    @torch.inference_mode()
    def encode(self, pixels: Tensor) -> np.ndarray:
        """uint8 (b, c, h, w) -> uint16 (b, n)."""
        if not len(pixels):
            return np.zeros((0, self.num_tokens), np.uint16)
        tokens = self.tokenizer.encode(to_float(pixels.to(self.device)))
        if tokens.shape != (len(pixels), self.num_tokens):
            shape = tuple(tokens.shape)
            raise InputError(f"tokenizer gives tokens {shape}; its grid promises {(len(pixels), self.num_tokens)}")
        values = tokens.cpu().numpy()
        if values.min() < 0 or values.max() >= self.tokenizer.codebook_size:
            size = self.tokenizer.codebook_size
            raise InputError(f"tokenizer gives tokens {values.min()} to {values.max()}; its codebook has {size}")
        return values.astype(np.uint16)


def check_job(job: Job, workers: int, rank: int, world_size: int) -> None:
    """Refuse what cannot work before anything is written."""
    for name, value in {"passes": job.passes, "batch_size": job.batch_size, "workers": workers}.items():
        if value < 1:
            raise InputError(f"{name} is {value}; it must be at least 1")
    if not 0 <= rank < world_size:
        raise InputError(f"rank is {rank} of world_size {world_size}; it must lie in [0, world_size)")
    if len(job.source) == 0:
        raise InputError("source holds no image; there is nothing to tokenize")
    wanted = job.tokenizer.image_size, job.tokenizer.channels
    given = job.preprocess.size, job.preprocess.channels
    if given != wanted:
        raise InputError(f"preprocess gives (size, channels) {given}; the tokenizer takes {wanted}")
    if job.tokenizer.codebook_size > MAX_CODEBOOK:
        raise InputError(f"codebook_size is {job.tokenizer.codebook_size}; token arrays hold at most {MAX_CODEBOOK}")


def _encode(job: Job, chunks: list[int], workers: int, progress: Progress) -> Iterator[tuple[int, Part]]:
    """The parts of the chunks, in order. Workers decode ahead, across chunks, while this thread encodes."""
    batches = job.batches(chunks)
    waiting: deque[tuple[Batch, Future[Decoded]]] = deque()
    encoded: list[tuple[np.ndarray, Decoded]] = []
    pool = ThreadPoolExecutor(workers)
    try:
        while True:
            while len(waiting) < workers + 2 and (batch := next(batches, None)) is not None:
                waiting.append((batch, pool.submit(job.decode, batch)))
            if not waiting:
                return
            batch, future = waiting.popleft()
            decoded = future.result()
            encoded.append((job.encode(decoded.pixels), decoded))
            if batch.last:
                yield batch.chunk, _part(encoded)
                encoded = []
            progress.advance(batch.stop - batch.start)
    finally:
        pool.shutdown(cancel_futures=True)


def _part(encoded: list[tuple[np.ndarray, Decoded]]) -> Part:
    corrupt = {name: reason for _, decoded in encoded for name, reason in decoded.corrupt.items()}
    tokens = np.concatenate([tokens for tokens, _ in encoded])
    return Part(tokens, np.concatenate([decoded.labels for _, decoded in encoded]), corrupt)
