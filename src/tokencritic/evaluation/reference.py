"""What generated images are measured against: a data set, or a file of its mean and covariance."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tokencritic.data.npz import arrays_of
from tokencritic.data.source import Split
from tokencritic.data.sources import open_source
from tokencritic.distribution import ALONE, Ranks
from tokencritic.errors import InputError
from tokencritic.evaluation.cache import chunk_ranges, key_of
from tokencritic.evaluation.features import CachedFeatures, FeatureKind, Features, Provenance, extract
from tokencritic.evaluation.image_sets import ImageSet, SampleImages, SourceImages, file_digest
from tokencritic.evaluation.metrics import Gaussian, fit_gaussian
from tokencritic.files import write_atomically
from tokencritic.interop.adm import array_names

PACKED = "reference.npz"  # in a model folder
_STATISTICS = "statistics"
_NAMES: Mapping[FeatureKind, tuple[str, str]] = {"features": ("mu", "sigma"), "spatial": ("mu_s", "sigma_s")}


@dataclass(frozen=True)
class Statistics:
    """What FID needs of a set of images. gaussians: of its features and, for sFID, of its spatial features.

    provenance: None for files of other projects.
    """

    gaussians: dict[FeatureKind, Gaussian]
    provenance: Provenance | None = None

    @property
    def count(self) -> int | None:
        """The number of images, if it is known."""
        return self.gaussians["features"].count

    def save(self, file: str | Path) -> None:
        """Write an .npz that ADM's evaluator and pytorch-fid read as their own (`mu`, `sigma`, `mu_s`, `sigma_s`)."""
        arrays: dict[str, np.ndarray] = {}
        for kind, gaussian in self.gaussians.items():
            mean, covariance = _NAMES[kind]
            arrays |= {mean: gaussian.mean.numpy(), covariance: gaussian.covariance.numpy()}
        if self.count is not None:
            arrays["count"] = np.array(self.count)
        if self.provenance is not None:
            arrays |= {name: np.array(value) for name, value in dataclasses.asdict(self.provenance).items()}

        def write(path: Path) -> None:
            with path.open("wb") as opened:
                np.savez(opened, allow_pickle=False, **arrays)

        write_atomically(Path(file), write)


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
    facts["count"] = statistics.count
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
            gaussians: dict[FeatureKind, Gaussian] = {
                kind: fit_gaussian(found.stream(kind)) for kind in _NAMES if kind in found.kinds
            }
            computed = Statistics(gaussians, found.provenance)
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
    if (dimension := len(statistics.gaussians["features"].mean)) != features.dimension:
        raise InputError(f"{path} holds statistics of {dimension} dimensions; {features.name} has {features.dimension}")


def read_statistics(file: str | Path, expected: Provenance | None = None) -> Statistics:
    """Read a file of `Statistics.save`, an ADM reference batch, or any .npz with `mu` and `sigma`; no image is read.

    expected: what the statistics must be made with. Raises InputError if the file names something else.
    """
    with arrays_of(Path(file)) as arrays:
        if "mu" not in arrays or "sigma" not in arrays:
            raise InputError(f"{file} has no mu and sigma; it holds {', '.join(arrays) or 'nothing'}")
        count = _count(file, arrays["count"]) if "count" in arrays else None
        gaussians: dict[FeatureKind, Gaussian] = {
            kind: _gaussian(file, arrays[mean], arrays[covariance], count)
            for kind, (mean, covariance) in _NAMES.items()
            if mean in arrays and covariance in arrays
        }
        made = _provenance(file, arrays) if "fingerprint" in arrays else None
    check_comparable(made, expected, str(file))
    return Statistics(gaussians, made)


def check_comparable(one: Provenance | None, other: Provenance | None, name: str) -> None:
    """Raise InputError if two provenances are known and differ. name: what `one` belongs to."""
    if one is None or other is None or one == other:
        return
    wanted = dataclasses.asdict(other)
    differences = [
        f"{field} {value} instead of {wanted[field]}"
        for field, value in dataclasses.asdict(one).items()
        if value != wanted[field]
    ]
    raise InputError(f"{name} is not comparable: it has {', '.join(differences)}")


def _provenance(file: str | Path, arrays: Mapping[str, np.ndarray]) -> Provenance:
    names = [field.name for field in dataclasses.fields(Provenance)]
    if missing := [name for name in names if name not in arrays]:
        raise InputError(f"{file} has a fingerprint but no {', '.join(missing)}; it is not whole")
    features, resize, fingerprint = (str(arrays[name]) for name in names[:3])
    height, width = (int(value) for value in arrays["image_size"])
    return Provenance(features, resize, fingerprint, (height, width))


def _count(file: str | Path, value: np.ndarray) -> int:
    if value.size != 1 or value.dtype.kind not in "iu" or int(value.item()) < 2:
        raise InputError(f"{file} holds count {value}; expected an integer of 2 or more")
    return int(value.item())


def _gaussian(file: str | Path, mean: np.ndarray, covariance: np.ndarray, count: int | None) -> Gaussian:
    kinds = {mean.dtype.kind, covariance.dtype.kind}
    if mean.ndim != 1 or covariance.shape != (len(mean), len(mean)) or kinds != {"f"}:
        shapes = f"{mean.dtype} {mean.shape} and {covariance.dtype} {covariance.shape}"
        raise InputError(f"{file} holds a mean and a covariance {shapes}; expected floats (d,) and (d, d)")
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise InputError(f"{file} holds a mean or covariance with NaN or infinity")
    return Gaussian(torch.from_numpy(mean.astype(np.float64)), torch.from_numpy(covariance.astype(np.float64)), count)
