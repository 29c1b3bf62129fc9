"""Sets of images and a reference to metrics with their standard deviations."""

import math
import platform
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from tokencritic import __version__
from tokencritic.distribution import ALONE, Ranks
from tokencritic.errors import InputError
from tokencritic.evaluation.cache import CHUNK_ROWS
from tokencritic.evaluation.features import CachedFeatures, FeatureKind, Features, extract
from tokencritic.evaluation.image_sets import ImageSet
from tokencritic.evaluation.manifold import Hits, precision_recall
from tokencritic.evaluation.metrics import (
    MetricValue,
    bootstrap,
    correctly_classified,
    fid,
    fit_gaussian,
    inception_score,
    kid,
    mean_over_images,
    over_seed_sets,
)
from tokencritic.evaluation.reference import Reference, check_comparable

MetricName = Literal["fid", "sfid", "kid", "is", "precision", "recall", "accuracy"]
METRICS: tuple[MetricName, ...] = get_args(MetricName)

_GAUSSIAN: Mapping[MetricName, FeatureKind] = {"fid": "features", "sfid": "spatial"}
_OF_REFERENCE_IMAGES: tuple[MetricName, ...] = ("kid", "precision", "recall")
_OF_PROBABILITIES: tuple[MetricName, ...] = ("is", "accuracy")
_KID_SUBSET = 1000


@dataclass(frozen=True)
class Evaluation:
    """The metrics of a set of images, or their means over several, with all that they were made with."""

    metrics: dict[MetricName, MetricValue]
    facts: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """For `json.dumps`; a standard deviation that is not known is null."""
        values = {name: found._asdict() for name, found in self.metrics.items()}
        for found in values.values():
            found["std"] = None if math.isnan(found["std"]) else found["std"]
        return {"metrics": values, **self.facts}


@dataclass(frozen=True)
class Meter:
    """What images are measured with.

    metrics: which; None for those that the features and the reference allow, except sFID. cache: the folder for features.
    resamples: of the bootstrap for the standard deviation of one set; 0 for none.
    few_samples: allow FID of fewer images than the features have dimensions.
    """

    features: Features
    reference: Reference
    cache: Path
    metrics: tuple[MetricName, ...] | None = None
    resamples: int = 20
    few_samples: bool = False
    ranks: Ranks = ALONE

    def __post_init__(self) -> None:
        check_metrics(self.metrics, self.resamples)
        if not self.few_samples:
            real = self.reference.statistics
            widths: dict[FeatureKind, int] = {kind: len(one.mean) for kind, one in real.gaussians.items()}
            check_count("images of the reference", real.count, widths, self.metrics)

    def __call__(self, sets: Sequence[ImageSet], what: str = "images") -> Evaluation:
        """The metrics of sets of images that differ in their seeds alone. what: the name of the progress.

        Several sets give the mean and the standard deviation over them. One gives its bootstrap; the reference is held
        fixed. Recall, a mean over the reference, has none then: images that are drawn twice would change the
        neighbourhoods that it is made of.
        """
        widths = self.features.widths(sets[0].image_size)
        if not self.few_samples:
            check_count("images", min(map(len, sets)), widths, self.metrics)
        found = []
        for number, images in enumerate(sets):
            named = what if len(sets) == 1 else f"{what}, set {number + 1} of {len(sets)}"
            labelled = images.labels is not None
            names = choose_metrics(self.metrics, self.features.name, widths, labelled, self.reference)
            features = extract(images, self.features, self.cache, self.ranks, named)
            resamples = self.resamples if len(sets) == 1 else 0
            compared = _Compared(features, images.labels, self.reference, resamples)
            found.append(self.ranks.told_by_first(lambda compared=compared, names=names: compared.metrics(names)))
        together = {name: over_seed_sets([one[name] for one in found]) for name in found[0]}
        return Evaluation(found[0] if len(found) == 1 else together, self.facts(sets))

    def facts(self, sets: Sequence[ImageSet]) -> dict[str, Any]:
        """All that decides the numbers, for a JSON."""
        first = sets[0]
        return {
            "images": first.facts | {"num": len(first), "seed_sets": len(sets)},
            **first.costs,
            "features": {
                "name": self.features.name,
                "resize": self.features.resize,
                "fingerprint": self.features.fingerprint,
                **self.features.head_facts,
                "dimension": self.features.dimension,
                "image_size": list(first.image_size),
            },
            "reference": self.reference.facts,
            "resamples": self.resamples if len(sets) == 1 else None,
            "versions": {
                "token-critic": __version__,
                "torch": str(torch.__version__),
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        }


@dataclass(frozen=True)
class _Compared:
    """The features of one set of images beside those of the reference, each read once. labels: of the images."""

    fake: CachedFeatures
    labels: np.ndarray | None
    reference: Reference
    resamples: int

    def metrics(self, names: Sequence[MetricName]) -> dict[MetricName, MetricValue]:
        found: dict[MetricName, Callable[[], MetricValue]] = {
            "fid": lambda: self._fid("features"),
            "sfid": lambda: self._fid("spatial"),
            "kid": self._kid,
            "is": self._inception_score,
            "precision": lambda: mean_over_images(self._hits.fake, self.resamples),
            "recall": lambda: mean_over_images(self._hits.real, 0),
            "accuracy": self._accuracy,
        }
        return {name: found[name]() for name in names}

    @cached_property
    def _both(self) -> tuple[torch.Tensor, torch.Tensor]:
        assert self.reference.features is not None
        return self.reference.features.read("features"), self.fake.read("features")

    @cached_property
    def _hits(self) -> Hits:
        return precision_recall(*self._both)

    def _fid(self, kind: FeatureKind) -> MetricValue:
        real = self.reference.statistics.gaussians[kind]
        check_comparable(self.fake.provenance, self.reference.statistics.provenance, "fake")
        chunks = list(self.fake.stream(kind))

        def of(numbers: torch.Tensor) -> float:
            often = numbers.bincount(minlength=len(self.fake)).split(CHUNK_ROWS)
            return fid(real, fit_gaussian(map(_repeated, chunks, often)))

        return bootstrap(of, len(self.fake), self.resamples)

    def _kid(self) -> MetricValue:
        # Subsets of more than half the images would hardly differ, and their deviation would say nothing.
        return kid(*self._both, subset_size=max(2, min(_KID_SUBSET, min(map(len, self._both)) // 2)))

    def _inception_score(self) -> MetricValue:
        probabilities = self.fake.read("probabilities")
        # In an order of its own: a folder is sorted by class, and a split of a few classes would score low.
        order = torch.randperm(len(probabilities), generator=torch.Generator().manual_seed(0))
        return bootstrap(lambda numbers: inception_score(probabilities[numbers][order]), len(order), self.resamples)

    def _accuracy(self) -> MetricValue:
        assert self.labels is not None
        return mean_over_images(correctly_classified(self.fake.read("probabilities"), self.labels), self.resamples)


def _repeated(rows: torch.Tensor, often: torch.Tensor) -> torch.Tensor:
    return rows.repeat_interleave(often, dim=0)


def choose_metrics(
    asked: Sequence[MetricName] | None,
    features: str,
    kinds: Container[str],
    labelled: bool,
    reference: Reference | None,
) -> tuple[MetricName, ...]:
    """The metrics to compute: those asked for, which must be possible, or else all possible ones except sFID.

    features: their name. kinds: what they give. labelled: whether labels are known. reference: None if not opened yet.
    """
    lacking: dict[MetricName, str] = {}
    if reference is not None and reference.features is None:
        why = "needs the reference's images, and it is a file of statistics alone"
        lacking |= dict.fromkeys(_OF_REFERENCE_IMAGES, why)
    if "spatial" not in kinds or (reference is not None and "spatial" not in reference.statistics.gaussians):
        lacking["sfid"] = "needs spatial features of the images and the reference"
    if "probabilities" not in kinds:
        why = f"needs class probabilities, and {features} as it was loaded gives none"
        lacking |= dict.fromkeys(_OF_PROBABILITIES, why)
    elif features.startswith("inception"):
        lacking["accuracy"] = "needs a classifier of the data set as features"
    elif not labelled:
        lacking["accuracy"] = "needs the images' labels"
    if asked is None:
        return tuple(name for name in METRICS if name not in lacking and name != "sfid")
    for name in asked:
        if name in lacking:
            raise InputError(f"metrics holds {name}, which {lacking[name]}")
    return tuple(asked)


def check_metrics(metrics: Sequence[str] | None, resamples: int = 0) -> None:
    """Raise InputError for an unknown metric, or for a standard deviation of one resample."""
    for name in metrics or ():
        if name not in METRICS:
            raise InputError(f"metrics holds {name!r}; choose from {', '.join(METRICS)}")
    if metrics is not None and not metrics:
        raise InputError(f"metrics is empty; choose from {', '.join(METRICS)}")
    if resamples < 0 or resamples == 1:
        raise InputError(f"resamples is {resamples}; it must be 0 for no standard deviation, or at least 2")


def check_count(what: str, count: int | None, widths: Mapping[FeatureKind, int], metrics: Sequence[str] | None) -> None:
    """Raise InputError if there are too few images for FID or sFID, before hours are spent on them.

    A covariance of d dimensions from d samples or fewer is singular: its FID says more of the count than of the images.
    what: of what there are so many. count: None if it is not known. widths: dimensions of the features, by kind.
    """
    for metric, kind in _GAUSSIAN.items():
        asked = metric == "fid" if metrics is None else metric in metrics
        if asked and count is not None and count <= widths.get(kind, 0):
            raise InputError(
                f"{count} {what} are too few for FID with features of {widths[kind]} dimensions: it needs more of them "
                "than dimensions; few_samples=True (--few_samples true) allows it all the same"
            )
