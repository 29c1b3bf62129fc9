"""Features of a set of images: computed in chunks, shared among ranks, kept on disk.

Rank r of n computes chunks r, r + n, ...; all then read all of them, in one order. So the numbers do not depend on how many
ranks there are.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from tokencritic.distribution import ALONE, Ranks
from tokencritic.errors import InputError
from tokencritic.evaluation.cache import Chunks, Rows, chunk_range, count_rows, num_chunks
from tokencritic.evaluation.features import Extracted, Features, Provenance
from tokencritic.evaluation.image_sets import ImageSet
from tokencritic.evaluation.moments import Gaussian, Moments
from tokencritic.progress import Progress

Part = Literal["features", "probabilities", "spatial"]


@dataclass(frozen=True)
class FeatureRows:
    """What `extract` found of `count` images. parts: what there is of each: features, probabilities, spatial."""

    chunks: Chunks
    count: int
    provenance: Provenance
    parts: tuple[Part, ...]

    def __len__(self) -> int:
        return self.count

    def stream(self, part: Part) -> Iterator[Tensor]:
        """Chunk by chunk, (b, d) float32 each: memory for one of them at a time."""
        for chunk in range(num_chunks(self.count)):
            rows, wanted = self.chunks.read(chunk), len(chunk_range(chunk, self.count))
            if rows is None or count_rows(rows) < wanted or part not in rows:
                place = f"chunk {chunk} in {self.chunks.folder}"
                raise InputError(f"{place} is not there or damaged; ranks must share one cache; run the command again")
            yield torch.from_numpy(rows[part][:wanted])

    def whole(self, part: Part) -> Tensor:
        """All rows in memory, (count, d) float32: what neighbours and kernels need."""
        return torch.cat(list(self.stream(part)))

    def gaussian(self, part: Part, often: Tensor | None = None) -> Gaussian:
        """Mean and covariance, streamed. often: (count,) integers, how often each row counts; once if not given."""
        moments: Moments | None = None
        done = 0
        for rows in self.stream(part):
            moments = moments or Moments(rows.shape[1])
            counted = rows if often is None else rows.repeat_interleave(often[done : done + len(rows)], dim=0)
            moments.update(counted)
            done += len(rows)
        assert moments is not None
        return moments.gaussian()


def extract(
    images: ImageSet, features: Features, cache: Path, ranks: Ranks = ALONE, what: str = "features", shown: bool = True
) -> FeatureRows:
    """The features of all images, those that are not in the cache computed now; returns when all ranks have done theirs.

    what: what the progress is called. shown: False keeps silent.
    """
    made = Provenance(features.name, features.resize, features.fingerprint, images.image_size)
    parts = tuple(widths_of(features, images.image_size))
    facts = {"images": images.facts, "features": dataclasses.asdict(made), "parts": parts} | head_of(features)
    chunks, count = Chunks.open(cache, "features", facts), len(images)
    mine = {chunk: chunk_range(chunk, count) for chunk in range(ranks.rank, num_chunks(count), ranks.size)}
    lacking = {chunk: rows for chunk, rows in mine.items() if count_rows(chunks.read(chunk)) < len(rows)}
    total, left = (sum(map(len, some.values())) for some in (mine, lacking))
    with Progress(total, what, "images", done=total - left, shown=shown and ranks.first) as progress:
        for chunk, wanted in lacking.items():
            before = chunks.read(chunk)
            batch = images.batch(wanted.start + count_rows(before), wanted.stop)
            chunks.extend(chunk, before, _as_rows(features(batch)))
            progress.advance(len(wanted))
    ranks.wait()
    return FeatureRows(chunks, count, made, parts)


def widths_of(features: Features, image_size: tuple[int, int]) -> dict[Part, int]:
    """What these features give, and of how many dimensions each part is: asked with no image at all."""
    none = features(torch.empty(0, 1, *image_size))
    return {name: values.shape[1] for name, values in none._asdict().items() if values is not None}  # pyright: ignore[reportReturnType]


def head_of(features: Features) -> dict[str, str]:
    """For facts: the fingerprint of what makes class probabilities of features, where they tell it apart from their own."""
    fingerprint = getattr(features, "head_fingerprint", None)
    return {} if fingerprint is None else {"head": fingerprint}


def _as_rows(extracted: Extracted) -> Rows:
    found = {name: values for name, values in extracted._asdict().items() if values is not None}
    for name, values in found.items():
        if not bool(values.isfinite().all()):
            raise InputError(f"{name} of some images hold NaN or infinity; nothing can be measured with them")
    return {name: values.numpy().astype(np.float32) for name, values in found.items()}
