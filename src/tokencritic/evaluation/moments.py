"""Mean and covariance of features: fitted batch by batch, and kept in files with what they were made with."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tokencritic.data.npz import arrays_of
from tokencritic.errors import InputError
from tokencritic.evaluation.features import Provenance
from tokencritic.files import write_atomically


@dataclass(frozen=True)
class Gaussian:
    """mean (d,), covariance (d, d), both float64; count: of how many samples, None if a file does not say."""

    mean: Tensor
    covariance: Tensor
    count: int | None = None


def fit_gaussian(batches: Iterable[Tensor]) -> Gaussian:
    """The mean and the unbiased covariance of rows that come in batches, (b, d) of any floating type and any b.

    Batch sizes change only the last rounding. `scatter` is the sum of outer products of the deviations from the mean: sums
    of squares, from which a covariance would be a small difference, are never formed.
    """
    count = 0
    mean = scatter = torch.empty(0)
    for batch in batches:
        rows = batch.detach().to("cpu", torch.float64)
        if rows.ndim != 2 or not rows.isfinite().all():
            raise InputError(f"features are {tuple(rows.shape)} or hold NaN or infinity; expected finite (b, d)")
        if len(rows) == 0:
            continue
        if count == 0:
            mean = torch.zeros(rows.shape[1], dtype=torch.float64)
            scatter = torch.zeros(rows.shape[1], rows.shape[1], dtype=torch.float64)
        rows_mean = rows.mean(0)
        rows = rows - rows_mean
        scatter.addmm_(rows.T, rows)
        # Chan, Golub and LeVeque (1979): what the distance between two parts' means adds to their scatters.
        difference, total = rows_mean - mean, count + len(rows)
        scatter.addr_(difference, difference, alpha=count * len(rows) / total)
        mean, count = mean + difference * (len(rows) / total), total
    if count < 2:
        raise InputError(f"a covariance of {count} samples was asked for; it needs at least 2")
    return Gaussian(mean, scatter / (count - 1), count)


@dataclass(frozen=True)
class Statistics:
    """What FID and, with `spatial`, sFID need of a set of images. provenance: None for files of other projects."""

    features: Gaussian
    spatial: Gaussian | None = None
    provenance: Provenance | None = None

    def save(self, file: str | Path) -> None:
        """Write an .npz that ADM's evaluator and pytorch-fid read as their own (`mu`, `sigma`, `mu_s`, `sigma_s`)."""
        arrays = {"mu": self.features.mean.numpy(), "sigma": self.features.covariance.numpy()}
        if self.spatial is not None:
            arrays |= {"mu_s": self.spatial.mean.numpy(), "sigma_s": self.spatial.covariance.numpy()}
        if self.features.count is not None:
            arrays["count"] = np.array(self.features.count)
        if self.provenance is not None:
            arrays |= {name: np.array(value) for name, value in dataclasses.asdict(self.provenance).items()}

        def write(path: Path) -> None:
            with path.open("wb") as opened:
                np.savez(opened, allow_pickle=False, **arrays)

        write_atomically(Path(file), write)


def read_statistics(file: str | Path, expected: Provenance | None = None) -> Statistics:
    """Read a file of `Statistics.save`, an ADM reference batch, or any .npz with `mu` and `sigma`; no image is read.

    expected: what the statistics must be made with. Raises InputError if the file names something else.
    """
    with arrays_of(Path(file)) as arrays:
        if "mu" not in arrays or "sigma" not in arrays:
            raise InputError(f"{file} has no mu and sigma; it holds {', '.join(arrays) or 'nothing'}")
        count = _count(file, arrays["count"]) if "count" in arrays else None
        features = _gaussian(file, arrays["mu"], arrays["sigma"], count)
        spatial = None
        if "mu_s" in arrays and "sigma_s" in arrays:
            spatial = _gaussian(file, arrays["mu_s"], arrays["sigma_s"], count)
        made = _provenance(file, arrays) if "fingerprint" in arrays else None
    check_comparable(made, expected, str(file))
    return Statistics(features, spatial, made)


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
