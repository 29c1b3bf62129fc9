"""Features of a set of images: computed in chunks, shared among ranks, kept on disk.

Rank r of n computes chunks r, r + n, ...; all then read all of them, in one order. So the numbers do not depend on how many
ranks there are.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tokencritic.distribution import ALONE, Ranks
from tokencritic.errors import InputError
from tokencritic.evaluation.cache import ChunkArrays, Chunks, chunk_ranges
from tokencritic.evaluation.features import FeatureKind, Features, Provenance
from tokencritic.evaluation.image_sets import ImageSet
from tokencritic.progress import Progress


@dataclass(frozen=True)
class CachedFeatures:
    """What `extract` found of `count` images. kinds: what there is of each: features, probabilities, spatial."""

    chunks: Chunks
    count: int
    provenance: Provenance
    kinds: tuple[FeatureKind, ...]

    def __len__(self) -> int:
        return self.count

    def stream(self, kind: FeatureKind) -> Iterator[Tensor]:
        """Chunk by chunk, (b, d) float32 each: memory for one of them at a time."""
        for number, rows in enumerate(chunk_ranges(self.count)):
            values = self.chunks.read(rows).get(kind, np.empty(0))
            if len(values) < len(rows):
                place = f"chunk {number} in {self.chunks.folder}"
                raise InputError(f"{place} is not there or damaged; ranks must share one cache; run the command again")
            yield torch.from_numpy(values)

    def read(self, kind: FeatureKind) -> Tensor:
        """All rows in memory, (count, d) float32."""
        return torch.cat(list(self.stream(kind)))


def extract(
    images: ImageSet, features: Features, cache: Path, ranks: Ranks = ALONE, what: str = "features"
) -> CachedFeatures:
    """The features of all images; those that are not in the cache are computed now, shared among ranks.

    what: the name of the progress. Returns when all ranks have finished.
    """
    made = features.provenance(images.image_size)
    kinds = tuple(features.widths(images.image_size))
    facts = {"images": images.facts, "features": dataclasses.asdict(made), "parts": kinds} | features.head_facts
    chunks, count = Chunks.open(cache, "features", facts), len(images)

    def make(rows: range) -> ChunkArrays:
        found = features(images.batch(rows.start, rows.stop)).by_kind
        for kind, values in found.items():
            if not bool(values.isfinite().all()):
                raise InputError(f"{kind} of some images hold NaN or infinity; nothing can be measured with them")
        return {kind: values.numpy().astype(np.float32) for kind, values in found.items()}

    mine = chunk_ranges(count)[ranks.rank :: ranks.size]
    missing = {rows: some for rows in mine if (some := chunks.count_missing(rows))}
    total = sum(map(len, mine))
    with Progress(total, what, "images", done=total - sum(missing.values()), shown=ranks.first) as progress:
        for rows, some in missing.items():
            chunks.complete(rows, make)
            progress.advance(some)
    ranks.wait()
    return CachedFeatures(chunks, count, made, kinds)
