"""The reference that generated images are compared with: a data set, or a file of its feature statistics."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokencritic.data.npz import array_names, arrays_of, write_arrays
from tokencritic.data.source import Split
from tokencritic.distribution import ALONE, Ranks
from tokencritic.errors import InputError
from tokencritic.evaluation.cache import ChunkArrays, Chunks, chunk_ranges, file_digest
from tokencritic.evaluation.features import Features, extract
from tokencritic.evaluation.image_sets import ImageSet, check_whole, open_images
from tokencritic.evaluation.metrics import Gaussian, fit_gaussian, manifold_radii

PACKED = "reference.npz"  # file name in a model folder


@dataclass(frozen=True)
class Reference:
    """Statistics and features of the reference.

    gaussian: the Gaussian fitted to the features, used by FID.
    features: the features of the images, or None for a file with statistics only.
    facts: JSON values that identify the reference in results.
    """

    gaussian: Gaussian
    features: Chunks | None
    facts: dict[str, Any]

    @cached_property
    def radii(self) -> Tensor:
        """The radii of the manifold of the features, which precision needs. Computed once for all image sets."""
        assert self.features is not None
        return manifold_radii(self.features.whole("features"))


class Unmeasured(NamedTuple):
    """A reference before its features are computed: its images, its statistics, or both."""

    path: Path
    images: ImageSet | None
    gaussian: Gaussian | None = None


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
    """Open a reference: a data set, ADM's reference .npz, or an .npz with `mu` and `sigma`.

    cache: the folder in which features and statistics are kept once computed.
    image_size, channels, split, num: as in `open_images`.

    A file with `mu` does not name its features. They are assumed to be those of Inception.
    """
    return measure_reference(find_reference(path, image_size, channels, split, num), features, cache, ranks)


def find_reference(
    path: str | Path, image_size: tuple[int, int], channels: int = 3, split: Split = "train", num: int | None = None
) -> Unmeasured:
    """Open and check the images or statistics of a reference, without features. Arguments as in `open_reference`."""
    path = Path(path)
    names = array_names(path)
    if "mu" not in names:
        return Unmeasured(path, open_images(path, num, split, image_size, channels))
    check_whole(path, num, split)
    images = open_images(path, image_size=image_size) if "arr_0" in names else None
    return Unmeasured(path, images, read_statistics(path))


def measure_reference(reference: Unmeasured, features: Features, cache: Path, ranks: Ranks = ALONE) -> Reference:
    """Compute the features and statistics that a reference does not have yet. Arguments as in `open_reference`."""
    path, images, gaussian = reference
    if gaussian is None:
        assert images is not None
        found = extract(images, features, cache, ranks, "reference")
        fitted = ranks.from_first(lambda: _fit(found, cache))
        return Reference(fitted, found, images.facts | {"name": path.name})
    if features.name != "inception-v3":
        raise InputError(f"{path} has statistics of inception-v3; it cannot be used with {features.name}")
    if (dimension := len(gaussian.mean)) != features.dimension:
        raise InputError(f"{path} has statistics of {dimension} dimensions; {features.name} has {features.dimension}")
    facts: dict[str, Any] = {"kind": "statistics", "name": path.name, "sha256": file_digest(path)}
    if images is None:
        return Reference(gaussian, None, facts)
    found = extract(images, features, cache, ranks, "reference")
    return Reference(gaussian, found, facts | {"images": len(found)})


def pack_images(images: ImageSet, file: Path) -> None:
    """Write images and labels to a compressed .npz for `open_reference`: `arr_0` (n, h, w, c) and `arr_1` (n,)."""
    # Read in chunks, because photographs are large before they are cropped.
    arrays = {"arr_0": np.concatenate([images.batch(rows.start, rows.stop) for rows in chunk_ranges(len(images))])}
    if images.labels is not None:
        arrays["arr_1"] = images.labels
    write_arrays(file, arrays)


def _fit(found: Chunks, cache: Path) -> Gaussian:
    """Return the Gaussian of these features, from the cache or computed now and added to it."""

    def make(_: range) -> ChunkArrays:
        fitted = fit_gaussian(found.stream("features"))
        return {"mu": fitted.mean.numpy()[None], "sigma": fitted.covariance.numpy()[None]}

    facts = {"features": found.folder.name, "count": len(found)}
    kept = Chunks.open(cache, "statistics", facts, count=1).complete(range(1), make)
    return Gaussian(torch.from_numpy(kept["mu"][0]), torch.from_numpy(kept["sigma"][0]), len(found))


def read_statistics(file: Path) -> Gaussian:
    """Read `mu` and `sigma` of an .npz, such as ADM's reference batch. No images are read, and the count is None."""
    with arrays_of(file) as arrays:
        if "mu" not in arrays or "sigma" not in arrays:
            raise InputError(f"{file} has arrays {', '.join(arrays) or 'none'}; expected mu and sigma")
        mean, covariance = arrays["mu"], arrays["sigma"]
    kinds = {mean.dtype.kind, covariance.dtype.kind}
    if mean.ndim != 1 or covariance.shape != 2 * mean.shape or kinds != {"f"}:
        shapes = f"{mean.dtype} {mean.shape} and {covariance.dtype} {covariance.shape}"
        raise InputError(f"{file} has mu and sigma {shapes}; expected floats (d,) and (d, d)")
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise InputError(f"{file} has NaN or infinity in mu or sigma; expected finite values")
    return Gaussian(torch.from_numpy(mean.astype(np.float64)), torch.from_numpy(covariance.astype(np.float64)))
