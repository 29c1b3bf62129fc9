"""Mean and covariance of features: streamed, merged across ranks, kept in files with what they were made with."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tokencritic.data.npz import arrays_of
from tokencritic.errors import InputError
from tokencritic.evaluation.features import Extracted, Features, Provenance, provenance
from tokencritic.files import write_atomically


class Moments:
    """Mean and covariance of rows that come in batches. Order, batch sizes and merging change only the last rounding.

    Everything is float64. `scatter` is the sum of outer products of the deviations from the mean: sums of squares, from
    which a covariance would be a small difference, are never formed.
    """

    def __init__(self, dimension: int) -> None:
        self.count = 0
        self.mean = torch.zeros(dimension, dtype=torch.float64)
        self.scatter = torch.zeros(dimension, dimension, dtype=torch.float64)

    @property
    def covariance(self) -> Tensor:
        """(d, d), unbiased: divided by count - 1."""
        if self.count < 2:
            raise InputError(f"a covariance of {self.count} samples was asked for; it needs at least 2")
        return self.scatter / (self.count - 1)

    def update(self, features: Tensor) -> None:
        """Take in the rows of features (b, d), of any floating type and any b."""
        if features.ndim != 2 or features.shape[1] != len(self.mean):
            raise InputError(f"features are {tuple(features.shape)}; expected (b, {len(self.mean)})")
        if len(features) == 0:
            return
        rows = features.detach().to("cpu", torch.float64)
        if not rows.isfinite().all():
            raise InputError("features hold NaN or infinity; no mean can be taken")
        mean = rows.mean(0)
        rows = rows - mean
        self.scatter.addmm_(rows.T, rows)
        self._shift(len(rows), mean)

    def merge(self, other: "Moments") -> None:
        """Take in all that another has seen, such as another rank."""
        if len(other.mean) != len(self.mean):
            raise InputError(f"moments of dimension {len(other.mean)} do not merge into those of {len(self.mean)}")
        if other.count:
            self.scatter += other.scatter
            self._shift(other.count, other.mean)

    def _shift(self, count: int, mean: Tensor) -> None:
        """Chan, Golub and LeVeque (1979): what the distance between two parts' means adds to their scatters."""
        difference = mean - self.mean
        total = self.count + count
        self.scatter.addr_(difference, difference, alpha=self.count * count / total)
        self.mean = self.mean + difference * (count / total)
        self.count = total

    def gaussian(self) -> "Gaussian":
        """Mean, covariance and count as they are now."""
        return Gaussian(self.mean, self.covariance, self.count)


@dataclass(frozen=True)
class Gaussian:
    """mean (d,), covariance (d, d), both float64; count: of how many samples, None where a file does not tell."""

    mean: Tensor
    covariance: Tensor
    count: int | None = None


@dataclass(frozen=True)
class Statistics:
    """What FID needs to know of a set of images. spatial: what sFID needs. provenance: None for files of other projects."""

    features: Gaussian
    spatial: Gaussian | None = None
    provenance: Provenance | None = None

    def save(self, file: str | Path) -> None:
        """Write an .npz; ADM's evaluator and pytorch-fid read it as their own (`mu`, `sigma`, `mu_s`, `sigma_s`)."""
        arrays = {"mu": self.features.mean.numpy(), "sigma": self.features.covariance.numpy()}
        if self.spatial is not None:
            arrays |= {"mu_s": self.spatial.mean.numpy(), "sigma_s": self.spatial.covariance.numpy()}
        if self.features.count is not None:
            arrays["count"] = np.array(self.features.count)
        if self.provenance is not None:
            made = self.provenance
            arrays |= {name: np.array(getattr(made, name)) for name in ("features", "resize", "fingerprint")}
            arrays["image_size"] = np.array(made.image_size)

        def write(path: Path) -> None:
            with path.open("wb") as opened:
                np.savez(opened, allow_pickle=False, **arrays)

        write_atomically(Path(file), write)


def read_statistics(file: str | Path, expected: Provenance | None = None) -> Statistics:
    """From a file of `Statistics.save`, ADM's reference batches, or any .npz with `mu` and `sigma`; no image is read.

    expected: what the statistics must be made with; a file that tells something else is refused.
    """
    with arrays_of(Path(file)) as arrays:
        if "mu" not in arrays or "sigma" not in arrays:
            raise InputError(f"{file} has no mu and sigma; it holds {', '.join(arrays) or 'nothing'}")
        count = _number(file, arrays["count"]) if "count" in arrays else None
        features = _gaussian(file, arrays["mu"], arrays["sigma"], count)
        spatial = None
        if "mu_s" in arrays and "sigma_s" in arrays:
            spatial = _gaussian(file, arrays["mu_s"], arrays["sigma_s"], count)
        made = None
        if "fingerprint" in arrays:
            made = _provenance(file, arrays)
    if expected is not None and made is not None:
        check_comparable(made, expected, str(file))
    return Statistics(features, spatial, made)


def check_comparable(one: Provenance, other: Provenance, name: str) -> None:
    """Features of different kinds have no distance. `name` is what `one` belongs to."""
    if one != other:
        differences = [
            f"{field.name} {getattr(one, field.name)} instead of {getattr(other, field.name)}"
            for field in dataclasses.fields(Provenance)
            if getattr(one, field.name) != getattr(other, field.name)
        ]
        raise InputError(f"{name} is not comparable: it has {', '.join(differences)}")


def _provenance(file: str | Path, arrays: Mapping[str, np.ndarray]) -> Provenance:
    names = [field.name for field in dataclasses.fields(Provenance)]
    if missing := [name for name in names if name not in arrays]:
        raise InputError(f"{file} has a fingerprint but no {', '.join(missing)}; it is not whole")
    features, resize, fingerprint = (str(arrays[name]) for name in names[:3])
    height, width = (int(value) for value in arrays["image_size"])
    return Provenance(features, resize, fingerprint, (height, width))


def _number(file: str | Path, value: np.ndarray) -> int:
    if value.size != 1 or value.dtype.kind not in "iu" or int(value.item()) < 2:
        raise InputError(f"{file} holds count {value}; expected an integer of 2 or more")
    return int(value.item())


def _gaussian(file: str | Path, mean: np.ndarray, covariance: np.ndarray, count: int | None) -> Gaussian:
    if (
        mean.ndim != 1
        or covariance.shape != (len(mean), len(mean))
        or {mean.dtype.kind, covariance.dtype.kind} != {"f"}
    ):
        shapes = f"{mean.dtype} {mean.shape} and {covariance.dtype} {covariance.shape}"
        raise InputError(f"{file} holds a mean and a covariance {shapes}; expected floats (d,) and (d, d)")
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise InputError(f"{file} holds a mean or covariance with NaN or infinity")
    return Gaussian(torch.from_numpy(mean.astype(np.float64)), torch.from_numpy(covariance.astype(np.float64)), count)


def image_statistics(
    features: Features, images: Tensor | np.ndarray | Iterable[Tensor | np.ndarray], batch_size: int = 256
) -> Statistics:
    """The statistics of images: one array of them, or batches from anywhere, of which none is kept."""
    batches = _batches(images, batch_size) if isinstance(images, (Tensor, np.ndarray)) else images
    made: Provenance | None = None
    pooled = Moments(features.dimension)
    spatial: Moments | None = None
    for batch in batches:
        extracted: Extracted = features(batch)
        if made is not None and provenance(features, batch) != made:
            sizes = f"{made.image_size} and {provenance(features, batch).image_size}"
            raise InputError(f"images of sizes {sizes} are mixed; bring them to one size first")
        made = provenance(features, batch)
        pooled.update(extracted.features)
        if extracted.spatial is not None:
            spatial = spatial or Moments(extracted.spatial.shape[1])
            spatial.update(extracted.spatial)
    if pooled.count < 2:
        raise InputError(f"there are {pooled.count} images; statistics need at least 2")
    return Statistics(pooled.gaussian(), spatial.gaussian() if spatial is not None else None, made)


def _batches(images: Tensor | np.ndarray, batch_size: int) -> Iterator[Tensor | np.ndarray]:
    for start in range(0, len(images), batch_size):
        yield images[start : start + batch_size]
