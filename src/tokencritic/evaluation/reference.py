"""What generated images are measured against: a data set, or a file of its statistics."""

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokencritic.data.source import Split
from tokencritic.data.sources import open_source
from tokencritic.distribution import ALONE, Ranks
from tokencritic.errors import InputError
from tokencritic.evaluation.cache import CHUNK_ROWS, key_of
from tokencritic.evaluation.extraction import FeatureRows, extract
from tokencritic.evaluation.features import Features, Provenance
from tokencritic.evaluation.image_sets import ImageSet, SampleImages, SourceImages
from tokencritic.evaluation.moments import Statistics, read_statistics
from tokencritic.files import write_atomically
from tokencritic.interop.adm import array_names

PACKED = "reference.npz"  # in a model folder
_STATISTICS = "statistics"


@dataclass(frozen=True)
class Reference:
    """statistics: what FID and sFID need. rows: features of its images, None for a file of statistics alone."""

    statistics: Statistics
    rows: FeatureRows | None
    facts: dict[str, Any]


@dataclass(frozen=True)
class ReferenceImages:
    """How the images of a data set become comparable with those of a model.

    image_size: height and width. channels: 1 or 3. split: of the data set. num: only so many images, evenly spaced.
    """

    image_size: tuple[int, int]
    channels: int = 3
    split: Split = "train"
    num: int | None = None

    def open(self, path: Path) -> ImageSet:
        """path: a data set, or an .npz of images."""
        if "arr_0" in array_names(path):
            if self.num is not None or self.split != "train":
                raise InputError(
                    f"{path} is a reference as it stands; it has no splits, and no share of it can be taken"
                )
            images = SampleImages(path)
            _check_size(path, images, self)
            return images
        height, width = self.image_size
        if height != width:
            raise InputError(f"images are {height} x {width}; a data set can be cropped to squares only")
        return SourceImages(open_source(path, self.split, max_corrupt=0), height, self.channels, self.num)


def open_reference(
    path: str | Path, features: Features, wanted: ReferenceImages, cache: Path, ranks: Ranks = ALONE
) -> Reference:
    """A data set, ADM's reference .npz, an .npz of `mu` and `sigma`, or one that `Statistics.save` wrote.

    Features of images and their statistics are computed once and kept in the folder `cache`. A file that tells of other
    features, another resize or another size of images is refused.
    """
    path = Path(path)
    made = Provenance(features.name, features.resize, features.fingerprint, wanted.image_size)
    names = array_names(path)
    if "mu" in names and (wanted.num is not None or wanted.split != "train"):
        raise InputError(f"{path} is a reference as it stands; it has no splits, and no share of it can be taken")
    if "mu" not in names:
        images = wanted.open(path)
        rows = extract(images, features, cache, ranks, "reference")
        return Reference(_statistics(rows, cache, ranks), rows, images.facts | {"name": path.name})
    statistics = read_statistics(path, made)
    if statistics.provenance is None:
        _check_foreign(path, statistics, features)
    facts: dict[str, Any] = {
        "kind": "statistics",
        "name": path.name,
        "sha256": _digest(path),
        "count": statistics.features.count,
    }
    rows = None
    if "arr_0" in names:
        images = SampleImages(path)
        _check_size(path, images, wanted)
        rows = extract(images, features, cache, ranks, "reference")
        facts["images"] = len(images)
    return Reference(statistics, rows, facts)


def pack_images(images: ImageSet, file: Path) -> None:
    """Write images (n, h, w, c) and their labels as one compressed .npz, which `open_reference` reads, whole or not at all."""
    starts = range(0, len(images), CHUNK_ROWS)  # photographs are large before they are cropped
    arrays = {"arr_0": np.concatenate([images.batch(at, min(at + CHUNK_ROWS, len(images))) for at in starts])}
    if images.labels is not None:
        arrays["arr_1"] = images.labels

    def write(path: Path) -> None:
        with path.open("wb") as opened:
            np.savez_compressed(opened, **arrays)  # pyright: ignore[reportArgumentType]

    write_atomically(file, write)


def _statistics(rows: FeatureRows, cache: Path, ranks: Ranks) -> Statistics:
    """Of these rows: from the cache, or computed now and kept there."""
    key = key_of(
        {"rows": rows.chunks.folder.name, "count": rows.count, "provenance": dataclasses.asdict(rows.provenance)}
    )
    file = cache / _STATISTICS / f"{key}.npz"

    def compute() -> Statistics:
        try:
            return read_statistics(file, rows.provenance)
        except InputError:  # not there, or damaged
            spatial = rows.gaussian("spatial") if "spatial" in rows.parts else None
            found = Statistics(rows.gaussian("features"), spatial, rows.provenance)
            file.parent.mkdir(parents=True, exist_ok=True)
            found.save(file)
            return found

    return ranks.told_by_first(compute)


def _check_size(path: Path, images: ImageSet, wanted: ReferenceImages) -> None:
    if images.image_size != wanted.image_size:
        one, other = (" x ".join(map(str, size)) for size in (images.image_size, wanted.image_size))
        raise InputError(f"{path} holds images of {one} pixels; those to be measured have {other}")


def _check_foreign(path: Path, statistics: Statistics, features: Features) -> None:
    """A file that tells nothing of its features is taken to be the usual one: Inception's, of 2048 dimensions."""
    if features.name != "inception-v3":
        raise InputError(
            f"{path} does not tell its features, so it may only be used with inception-v3, not {features.name}"
        )
    if (dimension := len(statistics.features.mean)) != features.dimension:
        raise InputError(f"{path} holds statistics of {dimension} dimensions; {features.name} has {features.dimension}")


def _digest(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
