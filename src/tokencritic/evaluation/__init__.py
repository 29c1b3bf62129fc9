"""Features, moments and measures: how good generated images are."""

from tokencritic.evaluation.features import Extracted, Features, InceptionFeatures, Provenance
from tokencritic.evaluation.manifold import density_coverage, precision_recall
from tokencritic.evaluation.measures import (
    Estimate,
    bootstrap,
    class_accuracy,
    fid,
    inception_score,
    kid,
    statistics_fid,
)
from tokencritic.evaluation.moments import (
    Gaussian,
    Moments,
    Statistics,
    image_statistics,
    read_statistics,
)

__all__ = [
    "Estimate",
    "Extracted",
    "Features",
    "Gaussian",
    "InceptionFeatures",
    "Moments",
    "Provenance",
    "Statistics",
    "bootstrap",
    "class_accuracy",
    "density_coverage",
    "fid",
    "image_statistics",
    "inception_score",
    "kid",
    "precision_recall",
    "read_statistics",
    "statistics_fid",
]
