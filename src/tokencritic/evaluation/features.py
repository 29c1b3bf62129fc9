"""Feature extraction: the networks whose features the metrics are computed from, and the cache of features.

Rank r of n computes the chunks r, r + n, ... of an image set. Then every rank reads all chunks in the same order, so
that the metrics do not depend on the number of ranks.
"""

import hashlib
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from tokencritic.contracts import evaluating
from tokencritic.distribution import ALONE, Ranks
from tokencritic.errors import InputError
from tokencritic.evaluation.cache import ChunkArrays, Chunks, chunk_ranges, num_rows
from tokencritic.evaluation.image_sets import ImageSet
from tokencritic.evaluation.inception import DIMENSION, INPUT_SIZE, Weights, find_weights, read_weights, resize_tf1
from tokencritic.image_forms import check_images, to_pixels
from tokencritic.models.classifier import Classifier
from tokencritic.progress import Progress

# Values of b images, float32: features (b, d) and, if available, class probabilities (b, k).
FeatureKind = Literal["features", "probabilities"]
FeaturesByKind = dict[FeatureKind, Tensor]


class Features:
    """The base class of feature extractors: callables from images to `FeaturesByKind`.

    name: identifies the features in results.
    fingerprint: a hash of the weights.
    dimension: the number of features per image.
    resize: the name of the resize to the network's input size; "none" without a resize.
    gives_probabilities: whether class probabilities are available.
    batch_size: the number of images in one forward pass.
    head_fingerprint: a hash of the classification head, if `fingerprint` does not include it.
    """

    name: str
    fingerprint: str
    dimension: int
    resize: str = "none"
    gives_probabilities: bool = False
    batch_size: int = 256
    head_fingerprint: str | None = None

    def __call__(self, images: Tensor | np.ndarray) -> FeaturesByKind:
        """Compute the features of images.

        images: uint8 (b, h, w, c) or float (b, c, h, w) in [0, 1], an array or a tensor; c is 1 or 3.
        """
        parts = [self.extract(part) for part in check_images(images).split(self.batch_size)]
        return {kind: torch.cat([part[kind] for part in parts]) for kind in parts[0]}

    def check_size(self, height: int, width: int) -> None:
        """Raise InputError for images of a size that the features are not defined for. The default accepts any size."""

    def extract(self, images: Tensor) -> FeaturesByKind:
        """Compute the features of one batch, which may be empty, and return them on the CPU.

        images: as in `__call__`.
        """
        raise NotImplementedError

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that identify the features. Metrics are comparable only if name, resize and fingerprint agree."""
        head = {} if self.head_fingerprint is None else {"head": self.head_fingerprint}
        return {"name": self.name, "resize": self.resize, "fingerprint": self.fingerprint, **head}


class InceptionFeatures(Features):
    """Features of the Inception-v3 that defines FID, with class probabilities if the weights include the head."""

    name, dimension, resize, batch_size = "inception-v3", DIMENSION, "tf1", 32

    def __init__(self, weights: Weights, *, device: torch.device | str = "cpu") -> None:
        self.device, self.fingerprint = torch.device(device), weights.fingerprint
        self._network = weights.network.to(self.device)
        self._head = None if weights.head is None else weights.head.to(self.device)
        self.gives_probabilities = weights.head is not None
        if weights.head is not None:
            # The head is not part of the fingerprint, because it does not change the features.
            self.head_fingerprint = hashlib.sha256(weights.head.contiguous().numpy().tobytes()).hexdigest()

    @classmethod
    def load(cls, file: str | Path | None = None, **options: Any) -> Self:
        """Load the weights of `file`; None finds or downloads them, see `find_weights`."""
        return cls(read_weights(find_weights(file)), **options)

    @torch.inference_mode()
    def extract(self, images: Tensor) -> FeaturesByKind:
        pixels = resize_tf1(to_pixels(images.to(self.device)), INPUT_SIZE)  # (b, 3, 299, 299)
        features = self._network((pixels - 128) / 128)  # (b, d)
        if self._head is None:
            return {"features": features.cpu()}
        return {"features": features.cpu(), "probabilities": (features @ self._head.T).softmax(dim=1).cpu()}


class ClassifierFeatures(Features):
    """Features and class probabilities of a small classifier, at a thousandth of Inception's cost.

    The name includes the classifier's fingerprint, because metrics of two classifiers are not comparable.
    """

    gives_probabilities = True

    def __init__(self, classifier: Classifier) -> None:
        """Initialize the extractor. classifier: for example that of a pipeline."""
        if not isinstance(classifier, Classifier):
            raise InputError(f"classifier is a {type(classifier).__name__}; expected the Classifier of a model folder")
        self.fingerprint = classifier.fingerprint()
        self.name = f"classifier:{self.fingerprint[:12]}"
        self.dimension = classifier.feature_width
        self._classifier = classifier

    def check_size(self, height: int, width: int) -> None:
        size = self._classifier.config.image_size
        if (height, width) != (size, size):
            raise InputError(f"images are {height} x {width}; the classifier expects {size} x {size}")

    @torch.no_grad()
    def extract(self, images: Tensor) -> FeaturesByKind:
        self.check_size(*(images.shape[1:3] if images.dtype == torch.uint8 else images.shape[2:]))
        with evaluating(self._classifier):
            pixels = to_pixels(images.to(self._classifier.device))  # (b, 3, h, w)
            if self._classifier.config.channels == 1:  # grey images are often stored with three equal channels
                if not (pixels == pixels[:, :1]).all():
                    raise InputError("images are in colour; the classifier expects grey images")
                pixels = pixels[:, :1]
            # One memory layout for all forms of images, because rounding depends on the layout.
            pixels = pixels.clone(memory_format=torch.contiguous_format)
            features = self._classifier.features((pixels / 255).to(self._classifier.dtype))  # (b, d)
            probabilities = self._classifier.head(features).float().softmax(dim=1)  # (b, k)
        return {"features": features.float().cpu(), "probabilities": probabilities.cpu()}


def extract(images: ImageSet, features: Features, cache: Path, ranks: Ranks = ALONE, what: str = "features") -> Chunks:
    """Compute the features of all images that are not in the cache, in parallel over ranks, and open the cache.

    what: the title of the progress bar.

    Returns when all ranks have finished.
    """
    facts = {"images": images.facts, "features": features.facts, "image_size": images.image_size}
    chunks = Chunks.open(cache, "features", facts, len(images))

    def make(rows: range) -> ChunkArrays:
        found = features(images.batch(rows.start, rows.stop))
        for kind, values in found.items():
            if not bool(values.isfinite().all()):
                raise InputError(f"{kind} of some images contain NaN or infinity; expected finite values")
        return {kind: values.numpy().astype(np.float32) for kind, values in found.items()}

    mine = chunk_ranges(len(images))[ranks.rank :: ranks.size]
    missing = {rows: some for rows in mine if (some := len(rows) - num_rows(chunks.read(rows)))}
    total = sum(map(len, mine))
    with Progress(total, what, "images", done=total - sum(missing.values()), shown=ranks.first) as progress:
        for rows, some in missing.items():
            chunks.complete(rows, make)
            progress.advance(some)
    ranks.wait()
    return chunks
