"""Images to features: what every measure is computed from. Every number names its features and their resize."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.evaluation.inception import INPUT_SIZE, SPATIAL_DIMENSION, TAPS, Inception
from tokencritic.evaluation.resize import Resize, check_resize, resize
from tokencritic.evaluation.weights import Weights, find_weights, read_weights
from tokencritic.image_forms import check_images, to_pixels
from tokencritic.models.classifier import Classifier
from tokencritic.sampling.propose import evaluating


class Extracted(NamedTuple):
    """What is known of b images: features (b, d) float32; class probabilities (b, k) and spatial features (b, s) or None."""

    features: Tensor
    probabilities: Tensor | None = None
    spatial: Tensor | None = None


@dataclass(frozen=True)
class Provenance:
    """What features were made with. Two sets of them are comparable only if all of it is the same.

    image_size: height and width of the images before any resize. fingerprint: of the network's weights.
    """

    features: str
    resize: str
    fingerprint: str
    image_size: tuple[int, int]


class Features(Protocol):
    """The interface: a callable from images to `Extracted` that says what it is.

    Images come as uint8 (b, h, w, c), arrays or tensors, or as float (b, c, h, w) in [0, 1]; c is 1 or 3.
    dimension: the d of its features. resize: how it brings images to its size; "none" if it takes them as they are.
    Where class probabilities depend on weights that `fingerprint` does not cover, `head_fingerprint` tells of those.
    """

    @property
    def name(self) -> str: ...
    @property
    def resize(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    def __call__(self, images: Tensor | np.ndarray) -> Extracted: ...


class InceptionFeatures:
    """The features of FID, from the Inception-v3 of 2015. Class probabilities come with them if the weights have a head."""

    def __init__(
        self,
        weights: Weights,
        *,
        dimension: int = 2048,
        resize: Resize = "tf1",
        spatial: bool = False,
        batch_size: int = 32,
        device: torch.device | str = "cpu",
    ) -> None:
        """dimension: 2048, or 64, 192 or 768 for features of an earlier depth. spatial: also those of sFID.

        batch_size: how many images are worked on at a time, however many come.
        """
        if dimension not in TAPS:
            raise InputError(f"dimension is {dimension}; choose one of {', '.join(map(str, TAPS))}")
        if spatial and TAPS[dimension] < TAPS[768]:
            raise InputError(f"spatial features lie deeper than dimension {dimension}; use 768 or 2048")
        check_resize(resize)
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; it must be at least 1")
        self.name = "inception-v3" if dimension == 2048 else f"inception-v3-{dimension}"
        self.dimension = dimension
        self.resize: Resize = resize
        self.spatial = spatial
        self.fingerprint = weights.fingerprint
        self.batch_size = batch_size
        self.device = torch.device(device)
        self._head = self.head_fingerprint = None
        if dimension == 2048 and weights.head is not None:
            self._head = weights.head.to(self.device)
            # Apart from the fingerprint: features are comparable whatever head the weights have, or none.
            self.head_fingerprint = hashlib.sha256(weights.head.contiguous().cpu().numpy().tobytes()).hexdigest()
        with torch.device("meta"):
            self._network = Inception(dimension)
        for layer, (weight, bias) in zip(self._network.convolutions(), weights.convolutions, strict=False):
            weight = weight.contiguous(memory_format=torch.channels_last)
            state = {"weight": weight.to(self.device), "bias": bias.to(self.device)}
            layer.load_state_dict(state, assign=True)

    @classmethod
    def load(
        cls,
        file: str | Path | None = None,
        *,
        dimension: int = 2048,
        resize: Resize = "tf1",
        spatial: bool = False,
        batch_size: int = 32,
        device: torch.device | str = "cpu",
        download: bool = True,
    ) -> Self:
        """With the weights of `file`, else of the installed package that carries them, else downloaded once if allowed."""
        weights = read_weights(find_weights(file, download))
        return cls(weights, dimension=dimension, resize=resize, spatial=spatial, batch_size=batch_size, device=device)

    @torch.inference_mode()
    def __call__(self, images: Tensor | np.ndarray) -> Extracted:
        """Images as `Features` says -> features (b, dimension), probabilities (b, 1008) and spatial features (b, 2023)."""
        images = check_images(images)
        parts = [self._extract(part) for part in images.split(self.batch_size)]
        if not parts:
            spatial = torch.empty(0, SPATIAL_DIMENSION) if self.spatial else None
            probabilities = None if self._head is None else torch.empty(0, len(self._head))
            return Extracted(torch.empty(0, self.dimension), probabilities, spatial)
        features, probabilities, spatial = zip(*parts, strict=True)
        return Extracted(torch.cat(features), _cat(probabilities), _cat(spatial))

    def _extract(self, images: Tensor) -> Extracted:
        # fmt: off
        x = to_pixels(images.to(self.device))                                # b 3 h w
        x = resize(x, INPUT_SIZE, self.resize)                               # b 3 299 299
        features, spatial = self._network((x - 128) / 128, self.spatial)     # b d, b s
        # fmt: on
        probabilities = None if self._head is None else (features @ self._head.T).softmax(dim=1).cpu()
        return Extracted(features.cpu(), probabilities, None if spatial is None else spatial.cpu())


class ClassifierFeatures:
    """The features of the data set's own small classifier: a thousandth of Inception's cost, and class probabilities.

    Its name carries the classifier's fingerprint: numbers of two classifiers are not comparable.
    """

    resize = "none"

    def __init__(self, classifier: Classifier, *, batch_size: int = 256) -> None:
        """classifier: such as that of a pipeline. batch_size: how many images are worked on at a time, however many come."""
        if not isinstance(classifier, Classifier):
            raise InputError(f"classifier is a {type(classifier).__name__}; expected the Classifier of a model folder")
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; it must be at least 1")
        self.fingerprint = classifier.fingerprint()
        self.name = f"classifier:{self.fingerprint[:12]}"
        self.dimension = classifier.feature_width
        self.batch_size = batch_size
        self._classifier = classifier

    @torch.no_grad()
    def __call__(self, images: Tensor | np.ndarray) -> Extracted:
        """Images as `Features` says, of the classifier's size -> features (b, d) and probabilities (b, classes)."""
        images = check_images(images)
        size = self._classifier.config.image_size
        height, width = images.shape[1:3] if images.dtype == torch.uint8 else images.shape[2:]
        if (height, width) != (size, size):
            raise InputError(f"images are {height} x {width}; the classifier takes {size} x {size}")
        with evaluating(self._classifier):
            parts = [self._extract(part) for part in images.split(self.batch_size)]
        if not parts:
            return Extracted(torch.empty(0, self.dimension), torch.empty(0, self._classifier.num_classes))
        features, probabilities = zip(*parts, strict=True)
        return Extracted(torch.cat(features), torch.cat(probabilities))

    def _extract(self, images: Tensor) -> tuple[Tensor, Tensor]:
        weight = self._classifier.head.weight
        # fmt: off
        x = self._in_its_channels(to_pixels(images.to(weight.device)))                # b c h w
        features = self._classifier.features((x / 255).to(weight.dtype))              # b d
        probabilities = self._classifier.head(features).float().softmax(dim=1)        # b k
        # fmt: on
        return features.float().cpu(), probabilities.cpu()

    def _in_its_channels(self, pixels: Tensor) -> Tensor:
        """Grey images are often kept in three equal channels; colour is not turned into grey unasked."""
        if self._classifier.config.channels == 1:
            if not (pixels == pixels[:, :1]).all():
                raise InputError("images are in colour; the classifier takes grey ones")
            pixels = pixels[:, :1]
        # Always laid out alike, so that the network rounds alike whatever form the images came in.
        return pixels.clone(memory_format=torch.contiguous_format)


def provenance(features: Features, images: Tensor | np.ndarray) -> Provenance:
    """What the features of these images are made with."""
    height, width = images.shape[1:3] if images.dtype in (torch.uint8, np.uint8) else images.shape[2:]
    return Provenance(features.name, features.resize, features.fingerprint, (int(height), int(width)))


def _cat(parts: tuple[Tensor | None, ...]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present) if present else None
