"""What generated images are measured against: a data set, or a file of its statistics."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokencritic.data.sources import Split, open_source
from tokencritic.distribution import ALONE, Ranks
from tokencritic.errors import InputError
from tokencritic.evaluation.cache import chunk_ranges, key_of
from tokencritic.evaluation.extraction import CachedFeatures, extract
from tokencritic.evaluation.features import Features
from tokencritic.evaluation.image_sets import ImageSet, SampleImages, SourceImages, file_digest
from tokencritic.evaluation.moments import Statistics, fit_gaussian, read_statistics
from tokencritic.files import write_atomically
from tokencritic.interop.adm import array_names

PACKED = "reference.npz"  # in a model folder
_STATISTICS = "statistics"


@dataclass(frozen=True)
class Reference:
    """statistics: what FID and sFID need. features: of its images, None for a file of statistics alone."""

    statistics: Statistics
    features: CachedFeatures | None
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
        height, width = self.image_size
        if "arr_0" in array_names(path):
            self.check_whole(path)
            images = SampleImages(path)
            if images.image_size != self.image_size:
                size = " x ".join(map(str, images.image_size))
                raise InputError(f"{path} holds images of {size} pixels; those to be measured have {height} x {width}")
            return images
        if height != width:
            raise InputError(f"images are {height} x {width}; a data set can be cropped to squares only")
        return SourceImages(open_source(path, self.split, max_corrupt=0), height, self.channels, self.num)

    def check_whole(self, path: Path) -> None:
        """Raise InputError if a share of a file is asked for that can only be taken whole."""
        if self.num is not None or self.split != "train":
            raise InputError(f"{path} is a reference as it stands; it has no splits, and no share of it can be taken")


def open_reference(
    path: str | Path, features: Features, wanted: ReferenceImages, cache: Path, ranks: Ranks = ALONE
) -> Reference:
    """A data set, ADM's reference .npz, an .npz of `mu` and `sigma`, or one that `Statistics.save` wrote.

    Features of images and their statistics are computed once and kept in the folder `cache`. Raises InputError for a file
    that names other features, another resize or another size of images.
    """
    path = Path(path)
    names = array_names(path)
    if "mu" not in names:
        images = wanted.open(path)
        found = extract(images, features, cache, ranks, "reference")
        return Reference(_statistics(found, cache, ranks), found, images.facts | {"name": path.name})
    wanted.check_whole(path)
    statistics = read_statistics(path, features.provenance(wanted.image_size))
    if statistics.provenance is None:
        _check_foreign(path, statistics, features)
    facts: dict[str, Any] = {"kind": "statistics", "name": path.name, "sha256": file_digest(path)}
    facts["count"] = statistics.features.count
    found = None
    if "arr_0" in names:
        found = extract(wanted.open(path), features, cache, ranks, "reference")
        facts["images"] = len(found)
    return Reference(statistics, found, facts)


def pack_images(images: ImageSet, file: Path) -> None:
    """Write images (n, h, w, c) and their labels atomically as one compressed .npz, which `open_reference` reads."""
    # In chunks, as photographs are large before they are cropped.
    arrays = {"arr_0": np.concatenate([images.batch(rows.start, rows.stop) for rows in chunk_ranges(len(images))])}
    if images.labels is not None:
        arrays["arr_1"] = images.labels

    def write(path: Path) -> None:
        with path.open("wb") as opened:
            np.savez_compressed(opened, **arrays)  # pyright: ignore[reportArgumentType]

    write_atomically(file, write)


def _statistics(found: CachedFeatures, cache: Path, ranks: Ranks) -> Statistics:
    """Of these features: from the cache, or computed now and kept there."""
    facts = {"rows": found.chunks.folder.name, "count": len(found), "provenance": dataclasses.asdict(found.provenance)}
    file = cache / _STATISTICS / f"{key_of(facts)}.npz"

    def compute() -> Statistics:
        try:
            return read_statistics(file, found.provenance)
        except InputError:  # it does not exist, or is damaged
            spatial = fit_gaussian(found.stream("spatial")) if "spatial" in found.kinds else None
            computed = Statistics(fit_gaussian(found.stream("features")), spatial, found.provenance)
            file.parent.mkdir(parents=True, exist_ok=True)
            computed.save(file)
            return computed

    return ranks.told_by_first(compute)


def _check_foreign(path: Path, statistics: Statistics, features: Features) -> None:
    """A file that does not name its features is taken to be the usual one: Inception's, of 2048 dimensions."""
    if features.name != "inception-v3":
        raise InputError(
            f"{path} does not tell its features, so it may only be used with inception-v3, not {features.name}"
        )
    if (dimension := len(statistics.features.mean)) != features.dimension:
        raise InputError(f"{path} holds statistics of {dimension} dimensions; {features.name} has {features.dimension}")
