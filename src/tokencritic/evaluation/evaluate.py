"""Evaluation of image sets against a reference: metrics with their standard deviations."""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
import torch

from tokencritic import __version__
from tokencritic.distribution import ALONE, Ranks
from tokencritic.errors import InputError
from tokencritic.evaluation.cache import CHUNK_ROWS, Chunks
from tokencritic.evaluation.features import Features, extract
from tokencritic.evaluation.image_sets import ImageSet
from tokencritic.evaluation.metrics import (
    Hits,
    MetricValue,
    bootstrap,
    correctly_classified,
    fid,
    fit_gaussian,
    inception_score,
    kid,
    mean_over_images,
    over_seed_sets,
    precision_recall,
)
from tokencritic.evaluation.reference import Reference
from tokencritic.randomness import torch_rng

_KID_SUBSET = 1000


@dataclass(frozen=True)
class Evaluation:
    """The metrics of one image set, or their means over several seed sets.

    facts: JSON values that determine the metrics: images, features, reference, versions.
    """

    metrics: dict[str, MetricValue]
    facts: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return metrics and facts for `files.write_json`, which writes unknown standard deviations as null."""
        return {"metrics": {name: found._asdict() for name, found in self.metrics.items()}, **self.facts}


@dataclass(frozen=True)
class Meter:
    """A callable that computes the metrics of image sets.

    cache: the folder in which features are kept.
    metrics: names of `METRICS`; None for all that the features and the reference allow.
    resamples: bootstrap resamples for the standard deviation with one seed set; 0 for none.
    few_samples: allow FID of fewer images than the features have dimensions.
    """

    features: Features
    reference: Reference
    cache: Path
    metrics: tuple[str, ...] | None = None
    resamples: int = 20
    few_samples: bool = False
    ranks: Ranks = ALONE

    def __post_init__(self) -> None:
        count = self.reference.gaussian.count
        check_plan(self.features, self.metrics, self.resamples, self.few_samples, count, "images of the reference")

    def __call__(self, sets: Sequence[ImageSet], what: str = "images") -> Evaluation:
        """Compute the metrics of image sets that differ only in their seeds.

        what: the title of the progress bar.

        Several sets give the mean and the standard deviation over the sets. One set gives a bootstrap standard
        deviation with the reference held fixed. Recall has none in this case, because an image that is resampled twice
        would shrink the neighbourhoods that recall is computed from.
        """
        check_plan(self.features, self.metrics, self.resamples, self.few_samples, min(map(len, sets)))
        names = choose_metrics(self.metrics, self.features, sets[0].labels is not None, self.reference)
        resamples, compared = self.resamples if len(sets) == 1 else 0, []
        for number, images in enumerate(sets):
            named = what if len(sets) == 1 else f"{what}, set {number + 1} of {len(sets)}"
            features = extract(images, self.features, self.cache, self.ranks, named)
            compared.append(_Compared(features, images.labels, self.reference, resamples))
        found = self.ranks.spread(len(sets), lambda number: compared[number].metrics(names))
        together = {name: over_seed_sets([one[name] for one in found]) for name in names}
        return Evaluation(found[0] if len(found) == 1 else together, self.facts(sets))

    def facts(self, sets: Sequence[ImageSet]) -> dict[str, Any]:
        """Return the JSON values that determine the metrics."""
        first, features = sets[0], self.features
        costs = first.costs
        if costs:  # the sets differ only in time
            costs["seconds_per_image"] = fmean(one.costs["seconds_per_image"] for one in sets)
        return {
            "images": first.facts | {"num": len(first), "seed_sets": len(sets)},
            **costs,
            "features": features.facts | {"dimension": features.dimension, "image_size": list(first.image_size)},
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
    """The features of one image set and of the reference. Each is read once for all metrics.

    labels: the labels of the images, (n,) int64, or None.
    """

    fake: Chunks
    labels: np.ndarray | None
    reference: Reference
    resamples: int

    def metrics(self, names: Sequence[str]) -> dict[str, MetricValue]:
        return {name: METRICS[name].measure(self) for name in names}

    @cached_property
    def both(self) -> tuple[torch.Tensor, torch.Tensor]:
        assert self.reference.features is not None
        return self.reference.features.whole("features"), self.fake.whole("features")

    @cached_property
    def hits(self) -> Hits:
        return precision_recall(*self.both, real_radii=self.reference.radii)

    def fid(self) -> MetricValue:
        chunks = list(self.fake.stream("features"))

        def of(numbers: torch.Tensor) -> float:
            often = numbers.bincount(minlength=len(self.fake)).split(CHUNK_ROWS)
            repeated = (rows.repeat_interleave(times, dim=0) for rows, times in zip(chunks, often, strict=True))
            return fid(self.reference.gaussian, fit_gaussian(repeated))

        return bootstrap(of, len(self.fake), self.resamples)

    def kid(self) -> MetricValue:
        # Subsets of more than half the images overlap too much to give a standard deviation.
        return kid(*self.both, subset_size=max(2, min(_KID_SUBSET, min(map(len, self.both)) // 2)))

    def inception_score(self) -> MetricValue:
        probabilities = self.fake.whole("probabilities")
        # Shuffled, because a folder is sorted by class and a split with few classes has a low score.
        order = torch.randperm(len(probabilities), generator=torch_rng(0))
        return bootstrap(lambda numbers: inception_score(probabilities[numbers][order]), len(order), self.resamples)

    def accuracy(self) -> MetricValue:
        assert self.labels is not None
        return mean_over_images(correctly_classified(self.fake.whole("probabilities"), self.labels), self.resamples)


@dataclass(frozen=True)
class Metric:
    """A row of the table of metrics.

    title, decimals: how tables show the metric.
    needs: what the metric needs besides the features of the images.
    """

    title: str
    decimals: int
    measure: Callable[[_Compared], MetricValue]
    needs: Literal["statistics", "images", "probabilities", "labels"]


METRICS: dict[str, Metric] = {
    "fid": Metric("FID", 2, _Compared.fid, "statistics"),
    "kid": Metric("KID", 5, _Compared.kid, "images"),
    "is": Metric("IS", 2, _Compared.inception_score, "probabilities"),
    "precision": Metric("precision", 3, lambda one: mean_over_images(one.hits.fake, one.resamples), "images"),
    "recall": Metric("recall", 3, lambda one: mean_over_images(one.hits.real, 0), "images"),
    "accuracy": Metric("accuracy", 3, _Compared.accuracy, "labels"),
}


def check_plan(
    features: Features,
    metrics: Sequence[str] | None,
    resamples: int,
    few_samples: bool,
    count: int | None,
    what: str = "images",
) -> None:
    """Raise InputError for an impossible metric, a single resample or too few images for FID.

    Called before anything is sampled or extracted.

    metrics: None for all possible metrics.
    count: the number of images, None if unknown.
    what: which images are counted, for the error message.

    A covariance of d dimensions from d samples or fewer is singular, and FID then depends mostly on their number.
    """
    if metrics is not None and not (metrics and METRICS.keys() >= set(metrics)):
        unknown = next((repr(name) for name in metrics if name not in METRICS), None)
        got = "is empty" if unknown is None else f"holds {unknown}"
        raise InputError(f"metrics {got}; choose from {', '.join(METRICS)}")
    if resamples < 0 or resamples == 1:
        raise InputError(f"resamples is {resamples}; expected 0 for no standard deviation, or at least 2")
    chosen = choose_metrics(metrics, features, True, None)
    if "fid" in chosen and not few_samples and count is not None and count <= features.dimension:
        raise InputError(
            f"{count} {what} are too few for FID with features of {features.dimension} dimensions; "
            "expected more images than dimensions, or few_samples=True (--few_samples)"
        )


def choose_metrics(
    asked: Sequence[str] | None, features: Features, labelled: bool, reference: Reference | None
) -> tuple[str, ...]:
    """Return the names of the metrics to compute.

    asked: the requested metrics; None for all possible ones. Raises InputError if one is impossible.
    labelled: whether the images have labels.
    reference: None if it is not open yet.
    """
    lacking: dict[str, str] = {}
    if reference is not None and reference.features is None:
        lacking["images"] = "needs reference images; the reference has only statistics"
    if not features.gives_probabilities:
        why = f"needs class probabilities; the weights of {features.name} have no head"
        lacking |= {"probabilities": why, "labels": why}
    elif features.name.startswith("inception"):
        lacking["labels"] = "needs a classifier of the data set as features"
    elif not labelled:
        lacking["labels"] = "needs the images' labels"
    possible = tuple(name for name, metric in METRICS.items() if metric.needs not in lacking)
    for name in asked or ():
        if name not in possible:
            raise InputError(f"metrics holds {name}, which {lacking[METRICS[name].needs]}")
    return possible if asked is None else tuple(asked)
