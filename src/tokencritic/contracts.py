"""What the parts of a model are: generator, critic, tokenizer, classifier, and the trunk that a network is built on.

The sampling loop, the losses, evaluation and the studio know these classes and nothing else. Each has defaults, so that a
subclass states only what differs. `as_generator`, `as_critic`, `as_tokenizer`, `as_classifier` and `as_scorer` make whole
parts of plain callables and objects (`adapters.py`); they are called once, at the boundary.
"""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tokencritic.errors import InputError
from tokencritic.fingerprints import network_fingerprint
from tokencritic.masking import take
from tokencritic.plan import Step

_NO_FEATURES = (
    "gives no features for an inline critic; subclass MaskedGenerator, override logits_with_features, and set num_features "
    "and feature_width"
)
Features = tuple[Tensor, ...]


class Part:
    """One of the networks that make up a model."""

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        """The torch modules that are called, to be moved to a device and switched to evaluation."""
        return ()

    @property
    def device(self) -> torch.device:
        """Where the weights are; the CPU for a part without weights."""
        first = next((tensor for network in self.networks for tensor in network.parameters()), None)
        return torch.device("cpu") if first is None else first.device

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights; float32 for a part without weights."""
        floats = (p for network in self.networks for p in network.parameters() if p.is_floating_point())
        first = next(floats, None)
        return torch.float32 if first is None else first.dtype

    def fingerprint(self) -> str:
        """A hash of all that decides the part's output, by which results are cached. By default one of its networks."""
        if not self.networks:
            what = f"a {type(self).__name__} has no fingerprint, by which its results could be kept"
            raise InputError(f"{what}; make it a torch module, or define fingerprint() -> str")
        return network_fingerprint(self.networks, source=True)

    def identity(self) -> str:
        """By which an inline critic knows its generator: its own fingerprint, a hash of the networks, or the class's name."""
        if type(self).fingerprint is not Part.fingerprint:
            return self.fingerprint()
        return network_fingerprint(self.networks, source=False) if self.networks else type(self).__name__


class Trunk(nn.Module):
    """Tokens and a class in, one vector per token out: what a generator and a critic have in common.

    config: the dataclass that it is made from, with `layers` and `dropout` among its fields. width: of a token's vector.
    blocks: the repeated layers, which are compiled, recomputed and sharded one by one.
    recompute_activations: True trains in less memory: the backward pass computes each block once more.
    """

    config: Any
    num_tokens: int
    codebook_size: int
    mask_id: int
    num_classes: int
    null_class: bool
    width: int
    blocks: nn.ModuleList
    recompute_activations: bool = False

    @abstractmethod
    def forward(
        self, tokens: Tensor, labels: Tensor | None, positions: Tensor | None = None, extra: Tensor | None = None
    ) -> Tensor:
        """tokens: (b, n), codes or `mask_id`; labels: (b,) or None; extra: (b, n, width), added to the embeddings.

        positions: compute only these vectors, see `take`. Returns (b, n, width), (b, k, width) or (m, width).
        """

    @abstractmethod
    def with_features(self, tokens: Tensor, labels: Tensor | None, positions: Tensor) -> tuple[Tensor, Features]:
        """The vectors of `forward`, and what enters each block: one (b, n, width) for every block."""

    def first_layers(self, layers: int, dropout: float) -> "Trunk":
        """A copy of this trunk that ends after its first `layers` blocks: what a critic starts from."""
        if not 1 <= layers <= self.config.layers:
            raise InputError(f"layers is {layers}; the trunk has {self.config.layers}, give 1 to {self.config.layers}")
        first = next(self.parameters())
        trunk = type(self)(replace(self.config, layers=layers, dropout=dropout)).to(first)
        wanted = trunk.state_dict().keys()
        trunk.load_state_dict({name: value for name, value in self.state_dict().items() if name in wanted})
        return trunk


class MaskedGenerator(Part):
    """A masked generator: a callable from partly hidden tokens to logits.

    num_tokens, codebook_size: N and K. mask_id: the token that means hidden. num_classes: 0 without classes.
    null_class: whether the label `num_classes` stands for no class, for classifier-free guidance.
    num_features, feature_width: of what `logits_with_features` gives to an inline critic; 0 without.
    fixed_shapes: always evaluate all positions of all images, as compiled networks want: a new shape is a new graph.
    """

    num_tokens: int
    codebook_size: int
    mask_id: int
    fixed_shapes: bool = False
    num_classes: int = 0
    null_class: bool = False
    num_features: int = 0
    feature_width: int = 0

    @property
    def num_labels(self) -> int:
        """How many labels there are: the classes and, last, the null class if there is one."""
        return self.num_classes + self.null_class

    @abstractmethod
    def __call__(self, masked_tokens: Tensor, labels: Tensor | None, /) -> Tensor:
        """masked_tokens: (b, n) int64 with `mask_id` where hidden; labels: (b,) int64 or None. Returns (b, n, K) logits."""

    def logits_at(self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor) -> Tensor:
        """Logits at (b, k) indices -> (b, k, K), or at a (b, n) bool mask -> (mask.sum(), K).

        Overridden by generators that can leave out the positions nobody asked for.
        """
        return take(self(masked_tokens, labels), positions)

    def logits_with_features(
        self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor
    ) -> tuple[Tensor, Features]:
        """The logits of `logits_at` and, from the same evaluation, `num_features` tensors (b, n, feature_width)."""
        raise InputError(f"the generator, a {type(self).__name__}, {_NO_FEATURES}")

    def at(self, step: Step) -> "MaskedGenerator":
        """The generator that the loop evaluates at a step: another one where guidance changes from step to step."""
        return self

    def features(self, masked_tokens: Tensor, labels: Tensor | None) -> Features:
        """The features alone, without logits."""
        nowhere = torch.empty(len(masked_tokens), 0, dtype=torch.int64, device=masked_tokens.device)
        return self.logits_with_features(masked_tokens, labels, nowhere)[1]

    def start_critic(self, layers: int | None = None, **options: Any) -> "TokenCritic | None":
        """A critic whose trunk starts as a copy of the first `layers` layers of this generator's, all of them by default.

        options: `reads_mask`, `ratio_conditioned`, `dropout`. None for a generator that has no trunk to give.
        """
        return None


class TokenCritic(Part):
    """A critic: a callable from complete tokens to one logit per token, higher = more likely an original.

    num_tokens, codebook_size, num_classes: None where they are not known. reads_mask: it is also given the mask that the
    tokens were sampled under. ratio_conditioned: trained with the log-odds of the mask ratio as an offset.
    """

    num_tokens: int | None = None
    codebook_size: int | None = None
    num_classes: int | None = None
    reads_mask: bool = False
    ratio_conditioned: bool = False

    @abstractmethod
    def __call__(self, tokens: Tensor, labels: Tensor | None, mask: Tensor | None = None, /) -> Tensor:
        """tokens: (b, n) int64; labels: (b,) int64 or None; mask: (b, n) bool, if `reads_mask`. Returns (b, n) logits."""


class FeatureCritic(Part):
    """An inline critic: a callable from the generator's features to one logit per token, higher = more likely an original.

    num_features, feature_width: of the features that it reads. generator_identity: of the generator that it was trained for;
    None if it works with any.
    """

    num_features: int
    feature_width: int
    generator_identity: str | None = None

    @abstractmethod
    def __call__(self, features: Features, /) -> Tensor:
        """features: `num_features` tensors (b, n, feature_width) of a partly hidden image. Returns (b, n) logits."""

    def check(self, generator: MaskedGenerator, weights: bool = False) -> None:
        """Raises InputError unless the generator has the features; weights: and is the one that the critic was trained for.

        Weights are compared where parts come together; later they may have another precision.
        """
        if not generator.num_features:
            raise InputError(f"the generator, a {type(generator).__name__}, {_NO_FEATURES}")
        read, given = (self.num_features, self.feature_width), (generator.num_features, generator.feature_width)
        if read != given:
            raise InputError(f"the inline critic reads {read[0]} features of width {read[1]}; the generator's: {given}")
        if weights and self.generator_identity not in (None, theirs := generator.identity()):
            pair = f"generator {self.generator_identity[:16]}, and this one is {theirs[:16]}"
            raise InputError(f"the inline critic was trained for {pair}; train one for it")


class ImageTokenizer(Part):
    """A tokenizer: images to tokens and back.

    image_size: pixels along each side. channels: 1 or 3. grid: (height, width) of the tokens in row-major order, None for
    tokens without a grid. splits: how many tokens, side by side in a row of the grid, stand for one square of the image.
    margin: pixels around the image that the tokens cover too.
    """

    num_tokens: int
    codebook_size: int
    image_size: int
    channels: int
    grid: tuple[int, int] | None = None
    splits: int = 1
    margin: int = 0

    @property
    def layout(self) -> tuple[int, int]:
        """(height, width) of the tokens: their grid; tokens without a grid are one row."""
        return self.grid or (1, self.num_tokens)

    @abstractmethod
    def encode(self, images: Tensor) -> Tensor:
        """(b, c, h, w) float in [0, 1] -> (b, n) int64."""

    @abstractmethod
    def decode(self, tokens: Tensor) -> Tensor:
        """(b, n) int64 -> (b, c, h, w) float in [0, 1]."""


class ImageClassifier(Part):
    """A classifier of images: a callable from images (b, c, h, w) in [0, 1] to logits (b, num_classes)."""

    @abstractmethod
    def __call__(self, images: Tensor, /) -> Tensor: ...

    @torch.no_grad()
    def classify(self, images: Tensor) -> Tensor:
        """Logits of images from anywhere: moved to the classifier's device and precision, in evaluation mode."""
        with evaluating(*self.networks):
            return self(images.to(self.device, self.dtype))


@contextmanager
def evaluating(*networks: nn.Module) -> Iterator[None]:
    """Switch dropout off, and restore the mode that each module came in."""
    parts = [part for network in networks for part in network.modules() if part.training]
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part in parts:
            part.training = True
