"""Sets of images and a reference to numbers with their spread."""

import math
import platform
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from tokencritic import __version__
from tokencritic.distribution import ALONE, Ranks
from tokencritic.errors import InputError
from tokencritic.evaluation.extraction import FeatureRows, Part, extract, head_of, widths_of
from tokencritic.evaluation.features import Features
from tokencritic.evaluation.image_sets import ImageSet
from tokencritic.evaluation.manifold import density_coverage_rows, precision_recall_rows
from tokencritic.evaluation.measures import bootstrap, check_count, fid, inception_score, kid, statistics_fid
from tokencritic.evaluation.moments import Statistics
from tokencritic.evaluation.reference import Reference

Measure = Literal["fid", "sfid", "kid", "is", "precision", "recall", "density", "coverage", "accuracy"]
MEASURES: tuple[Measure, ...] = get_args(Measure)

_OF_ROWS: frozenset[Measure] = frozenset({"kid", "precision", "recall", "density", "coverage"})
_OF_PROBABILITIES: frozenset[Measure] = frozenset({"is", "accuracy"})
_UNASKED: frozenset[Measure] = frozenset({"sfid", "density", "coverage"})
_PART_OF: Mapping[Measure, Part] = {"fid": "features", "sfid": "spatial"}
_KID_SUBSET = 1000
_DENSITY_K = 5


class Measured(NamedTuple):
    """A number and its spread, a standard deviation over what `over` says."""

    value: float
    spread: float
    over: str


@dataclass(frozen=True)
class Evaluation:
    """The numbers of a set of images, or the means over several, with all that they were made with."""

    measures: dict[Measure, Measured]
    facts: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """For `json.dumps`; a spread that is not known is null."""
        numbers = {
            name: {"value": value, "spread": None if math.isnan(spread) else spread, "spread_over": over}
            for name, (value, spread, over) in self.measures.items()
        }
        return {"measures": numbers, **self.facts}


@dataclass(frozen=True)
class Meter:
    """What images are measured with.

    measures: which; None for those that the features and the reference allow, but for sFID, density and coverage.
    cache: the folder for features. resamples: of the bootstrap that gives the spread of one set; 0 for no spread.
    few_samples: allow FID of fewer images than the features have dimensions.
    """

    features: Features
    reference: Reference
    cache: Path
    measures: tuple[Measure, ...] | None = None
    resamples: int = 20
    few_samples: bool = False
    ranks: Ranks = ALONE

    def __post_init__(self) -> None:
        check_measures(self.measures, self.resamples)
        real = self.reference.statistics
        widths: dict[Part, int] = {"features": len(real.features.mean)}
        if real.spatial is not None:
            widths["spatial"] = len(real.spatial.mean)
        what = "images of the reference"
        check_counts(what, real.features.count, widths, self.measures, self.few_samples)

    def __call__(self, sets: Sequence[ImageSet], what: str = "images") -> Evaluation:
        """The measures of sets of images that differ in their seeds alone. what: what the progress is called.

        Of several sets: mean and standard deviation over them. Of one: the spread of drawing its images again from
        themselves; the reference is held fixed. Recall and coverage, means over the reference, have none then: images drawn
        twice would change the neighbourhoods that they are made of.
        """
        widths = widths_of(self.features, sets[0].image_size)
        check_counts("images", min(map(len, sets)), widths, self.measures, self.few_samples)
        found = []
        for number, images in enumerate(sets):
            named = what if len(sets) == 1 else f"{what}, set {number + 1} of {len(sets)}"
            labelled = images.labels is not None
            names = choose_measures(self.measures, self.features.name, widths, labelled, self.reference)
            rows = extract(images, self.features, self.cache, self.ranks, named)
            resamples = self.resamples if len(sets) == 1 else 0
            found.append(self.ranks.told_by_first(partial(self._measure, rows, images.labels, names, resamples)))
        if len(found) == 1:
            return Evaluation(found[0], self.facts(sets))
        return Evaluation({name: _over_sets([one[name] for one in found]) for name in found[0]}, self.facts(sets))

    def facts(self, sets: Sequence[ImageSet]) -> dict[str, Any]:
        """All that decides the numbers, for a JSON."""
        first = sets[0]
        costs = {name: getattr(first, name) for name in ("passes", "seconds") if hasattr(first, name)}
        return {
            "images": first.facts | {"num": len(first), "sets": len(sets)},
            **{f"{name}_per_image": cost for name, cost in costs.items()},
            "features": {
                "name": self.features.name,
                "resize": self.features.resize,
                "fingerprint": self.features.fingerprint,
                **head_of(self.features),
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

    def _measure(
        self, rows: FeatureRows, labels: np.ndarray | None, names: Sequence[Measure], resamples: int
    ) -> dict[Measure, Measured]:
        found: dict[Measure, Measured] = {}
        if "fid" in names:
            found["fid"] = self._fid(rows, "features", resamples)
        if "sfid" in names:
            found["sfid"] = self._fid(rows, "spatial", resamples)
        if self.reference.rows is not None and _OF_ROWS & set(names):
            found |= _of_rows(self.reference.rows.whole("features"), rows.whole("features"), names, resamples)
        if _OF_PROBABILITIES & set(names):
            found |= _of_probabilities(rows.whole("probabilities"), labels, names, resamples)
        return {name: found[name] for name in names}

    def _fid(self, rows: FeatureRows, part: Part, resamples: int) -> Measured:
        real, spatial = self.reference.statistics, part == "spatial"
        pooled = rows.gaussian(part)
        fake = Statistics(pooled, pooled if spatial else None, rows.provenance)
        value = statistics_fid(real, fake, spatial=spatial, few_samples=self.few_samples)
        target = real.spatial if spatial else real.features
        assert target is not None
        rng = torch.Generator().manual_seed(0)
        values = []
        for _ in range(resamples):
            often = torch.randint(len(rows), (len(rows),), generator=rng).bincount(minlength=len(rows))
            again = rows.gaussian(part, often)
            values.append(fid(target.mean, target.covariance, again.mean, again.covariance))
        return Measured(value, _deviation(values), _bootstrap(resamples))


def choose_measures(
    asked: Sequence[Measure] | None, features: str, parts: Container[str], labelled: bool, reference: Reference | None
) -> tuple[Measure, ...]:
    """The measures to take: those asked for, which must be possible; or the usual ones that are, without any asked for.

    features: their name. parts: what they give. labelled: whether labels are known. reference: None if not opened yet.
    """
    lacking: dict[Measure, str] = {}
    if reference is not None and reference.rows is None:
        lacking |= dict.fromkeys(_OF_ROWS, "needs the reference's images, and it is a file of statistics alone")
    if "spatial" not in parts or (reference is not None and reference.statistics.spatial is None):
        lacking["sfid"] = "needs spatial features of the images and the reference"
    if "probabilities" not in parts:
        why = f"needs class probabilities, and {features} as it was loaded gives none"
        lacking |= dict.fromkeys(_OF_PROBABILITIES, why)
    elif features.startswith("inception"):
        lacking["accuracy"] = "needs a classifier of the data set as features"
    elif not labelled:
        lacking["accuracy"] = "needs the images' labels"
    for name in asked or ():
        if name in lacking:
            raise InputError(f"measures holds {name}, which {lacking[name]}")
    if asked is not None:
        return tuple(asked)
    return tuple(name for name in MEASURES if name not in lacking and name not in _UNASKED)


def check_measures(measures: Sequence[str] | None, resamples: int = 0) -> None:
    """Only measures that are known; and no spread from a single resample."""
    for name in measures or ():
        if name not in MEASURES:
            raise InputError(f"measures holds {name!r}; choose from {', '.join(MEASURES)}")
    if measures is not None and not measures:
        raise InputError(f"measures is empty; choose from {', '.join(MEASURES)}")
    if resamples < 0 or resamples == 1:
        raise InputError(f"resamples is {resamples}; it must be 0 for no spread, or at least 2")


def check_counts(
    what: str, count: int | None, widths: Mapping[Part, int], measures: Sequence[str] | None, few_samples: bool
) -> None:
    """Too few images for FID or sFID are refused before hours are spent on them. widths: of the features, by part."""
    for measure, part in _PART_OF.items():
        asked = measure == "fid" if measures is None else measure in measures
        if asked and not few_samples and part in widths:
            check_count(what, count, widths[part])


def _of_rows(real: Tensor, fake: Tensor, names: Sequence[Measure], resamples: int) -> dict[Measure, Measured]:
    found: dict[Measure, Measured] = {}
    if "kid" in names:
        fewest = min(len(real), len(fake))
        size = max(2, min(_KID_SUBSET, fewest // 2))  # subsets must differ to have a spread
        found["kid"] = Measured(*kid(real, fake, subset_size=size), over=f"100 subsets of {size}")
    if {"precision", "recall"} & set(names):
        hits = precision_recall_rows(real, fake)
        found |= {"precision": _mean(hits.fake, resamples), "recall": _mean(hits.real, 0)}
    if {"density", "coverage"} & set(names):
        hits = density_coverage_rows(real, fake, _DENSITY_K)
        found |= {"density": _mean(hits.fake / _DENSITY_K, resamples), "coverage": _mean(hits.real, 0)}
    return found


def _of_probabilities(
    probabilities: Tensor, labels: np.ndarray | None, names: Sequence[Measure], resamples: int
) -> dict[Measure, Measured]:
    found: dict[Measure, Measured] = {}
    if "is" in names:
        both = bootstrap(_score, probabilities, resamples=resamples) if resamples else (_score(probabilities), math.nan)
        found["is"] = Measured(*both, over=_bootstrap(resamples))
    if "accuracy" in names:
        assert labels is not None
        classes = probabilities.shape[1]
        if labels.min() < 0 or labels.max() >= classes:
            raise InputError(f"labels go from {labels.min()} to {labels.max()}; the classifier has {classes} classes")
        right = probabilities.argmax(1) == torch.from_numpy(labels)
        found["accuracy"] = _mean(right.double(), resamples)
    return found


def _score(probabilities: Tensor) -> float:
    """In an order of its own: a folder is sorted by class, and a split of a few classes would score low."""
    order = torch.randperm(len(probabilities), generator=torch.Generator().manual_seed(0))
    return inception_score(probabilities[order]).value


def _mean(values: Tensor, resamples: int) -> Measured:
    """A mean over images; drawn again and again, it has the deviation sigma / sqrt(n), whatever the number of draws."""
    value = float(values.mean())
    if not resamples:
        return Measured(value, math.nan, "")
    return Measured(value, float(values.std(correction=0)) / math.sqrt(len(values)), "bootstrap, in closed form")


def _bootstrap(resamples: int) -> str:
    return f"{resamples} bootstrap resamples" if resamples else ""


def _over_sets(found: Sequence[Measured]) -> Measured:
    values = [one.value for one in found]
    return Measured(math.fsum(values) / len(values), _deviation(values), f"{len(values)} seed sets")


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
