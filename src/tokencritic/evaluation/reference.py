"""What generated images are measured against: a data set, or a file of its mean and covariance."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tokencritic.data.npz import array_names, arrays_of, write_arrays
from tokencritic.data.source import Split
from tokencritic.distribution import ALONE, Ranks
from tokencritic.errors import InputError
from tokencritic.evaluation.cache import ChunkArrays, Chunks, chunk_ranges, file_digest
from tokencritic.evaluation.features import Features, extract
from tokencritic.evaluation.image_sets import ImageSet, check_whole, open_images
from tokencritic.evaluation.metrics import Gaussian, fit_gaussian

PACKED = "reference.npz"  # in a model folder


@dataclass(frozen=True)
class Reference:
    """gaussian: of the features, what FID needs. features: of the images, None for a file of statistics alone."""

    gaussian: Gaussian
    features: Chunks | None
    facts: dict[str, Any]


def open_reference(
    path: str | Path,
    features: Features,
    cache: Path,
    image_size: tuple[int, int],
    channels: int = 3,
    split: Split = "train",
    num: int | None = None,
    ranks: Ranks = ALONE,
) -> Reference:
    """A data set, ADM's reference .npz, or an .npz of `mu` and `sigma`.

    Features of images and their statistics are computed once and kept in the folder `cache`. A file that holds `mu` does not
    name its features: it is taken to be the usual one, Inception's. image_size, channels, split, num: as in `open_images`.
    """
    path = Path(path)
    names = array_names(path)
    if "mu" not in names:
        images = open_images(path, num, split, image_size, channels)
        found = extract(images, features, cache, ranks, "reference")
        gaussian = ranks.told_by_first(lambda: _fit(found, cache))
        return Reference(gaussian, found, images.facts | {"name": path.name})
    check_whole(path, num, split)
    if features.name != "inception-v3":
        raise InputError(f"{path} holds statistics of Inception; use it with inception-v3, not {features.name}")
    gaussian = read_statistics(path)
    if (dimension := len(gaussian.mean)) != features.dimension:
        raise InputError(f"{path} holds statistics of {dimension} dimensions; {features.name} has {features.dimension}")
    facts: dict[str, Any] = {"kind": "statistics", "name": path.name, "sha256": file_digest(path)}
    found = None
    if "arr_0" in names:
        found = extract(open_images(path, image_size=image_size), features, cache, ranks, "reference")
        facts["images"] = len(found)
    return Reference(gaussian, found, facts)


def pack_images(images: ImageSet, file: Path) -> None:
    """Write images (n, h, w, c) and their labels atomically as one compressed .npz, which `open_reference` reads."""
    # In chunks, as photographs are large before they are cropped.
    arrays = {"arr_0": np.concatenate([images.batch(rows.start, rows.stop) for rows in chunk_ranges(len(images))])}
    if images.labels is not None:
        arrays["arr_1"] = images.labels
    write_arrays(file, arrays)


def _fit(found: Chunks, cache: Path) -> Gaussian:
    """The Gaussian of these features: from the cache, or computed now and kept there."""

    def make(_: range) -> ChunkArrays:
        fitted = fit_gaussian(found.stream("features"))
        return {"mu": fitted.mean.numpy()[None], "sigma": fitted.covariance.numpy()[None]}

    facts = {"features": found.folder.name, "count": len(found)}
    kept = Chunks.open(cache, "statistics", facts, count=1).complete(range(1), make)
    return Gaussian(torch.from_numpy(kept["mu"][0]), torch.from_numpy(kept["sigma"][0]), len(found))


def read_statistics(file: Path) -> Gaussian:
    """Read an ADM reference batch, or any .npz with `mu` and `sigma`; no image is read. The number of images is not known."""
    with arrays_of(file) as arrays:
        if "mu" not in arrays or "sigma" not in arrays:
            raise InputError(f"{file} has no mu and sigma; it holds {', '.join(arrays) or 'nothing'}")
        mean, covariance = arrays["mu"], arrays["sigma"]
    kinds = {mean.dtype.kind, covariance.dtype.kind}
    if mean.ndim != 1 or covariance.shape != 2 * mean.shape or kinds != {"f"}:
        shapes = f"{mean.dtype} {mean.shape} and {covariance.dtype} {covariance.shape}"
        raise InputError(f"{file} holds a mean and a covariance {shapes}; expected floats (d,) and (d, d)")
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise InputError(f"{file} holds a mean or covariance with NaN or infinity")
    return Gaussian(torch.from_numpy(mean.astype(np.float64)), torch.from_numpy(covariance.astype(np.float64)))
