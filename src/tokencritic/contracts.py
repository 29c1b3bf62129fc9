"""Contracts of the parts of a model: generator, critic, tokenizer and classifier, and the trunk of a network.

The sampling loop, the losses, evaluation and the studio depend only on these classes. Each has defaults, so that a
subclass states only what differs. `adapters.py` converts plain callables and objects to these contracts, once, at the
boundary.
"""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tokencritic.errors import InputError
from tokencritic.fingerprints import network_fingerprint
from tokencritic.masking import take
from tokencritic.plan import Step

_NO_FEATURES = (
    "has no features for an inline critic; subclass MaskedGenerator, override logits_with_features, and set "
    "num_features and feature_width"
)
Features = tuple[Tensor, ...]


class Part:
    """A part of a model, such as its generator or its tokenizer."""

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        """The torch modules of the part, which callers move to a device and switch to evaluation mode."""
        return ()

    @property
    def device(self) -> torch.device:
        """The device of the weights; the CPU for a part without weights."""
        first = next((tensor for network in self.networks for tensor in network.parameters()), None)
        return torch.device("cpu") if first is None else first.device

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights; float32 for a part without weights."""
        floats = (p for network in self.networks for p in network.parameters() if p.is_floating_point())
        first = next(floats, None)
        return torch.float32 if first is None else first.dtype

    def fingerprint(self) -> str:
        """Return a hash of all that determines the part's output: the key of cached results.

        The default hashes `networks`.
        """
        if not self.networks:
            what = f"a {type(self).__name__} has no fingerprint, so its results cannot be cached"
            raise InputError(f"{what}; make it a torch module, or define fingerprint() -> str")
        return network_fingerprint(self.networks, source=True)

    def identity(self) -> str:
        """Return a hash by which an inline critic recognizes its generator.

        It is an overridden fingerprint, else a hash of the networks, else the class name.
        """
        if type(self).fingerprint is not Part.fingerprint:
            return self.fingerprint()
        return network_fingerprint(self.networks, source=False) if self.networks else type(self).__name__


class Trunk(nn.Module):
    """A network from tokens and a class to one vector per token, shared by generators and critics.

    config: the dataclass of sizes, with the fields `layers` and `dropout`.
    width: the size of a token's vector.
    blocks: the repeated layers. Compilation, activation recomputation and sharding work on each block.
    recompute_activations: recompute each block in the backward pass, which saves memory.
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
        """Return one vector per token: (b, n, width), or with positions (b, k, width) or (m, width).

        tokens: (b, n) int64, codes or `mask_id`.
        labels: (b,) int64 or None.
        positions: the tokens whose vectors to compute, see `take`; all by default.
        extra: (b, n, width), added to the embeddings.
        """

    @abstractmethod
    def with_features(self, tokens: Tensor, labels: Tensor | None, positions: Tensor) -> tuple[Tensor, Features]:
        """Return the vectors of `forward` and the input of each block, one (b, n, width) per block."""

    def run_block(self, block: nn.Module, *inputs: Tensor | None) -> Tensor:
        """Evaluate a block, and recompute it in the backward pass if `recompute_activations` is set."""
        if self.recompute_activations and self.training and torch.is_grad_enabled():
            return checkpoint(block, *inputs, use_reentrant=False)
        return block(*inputs)

    def kept_blocks(self, layers: int) -> list[int]:
        """Return the indices of the blocks that a copy with at most `layers` blocks keeps, by default the first."""
        return list(range(layers))

    def first_layers(self, layers: int, dropout: float) -> "Trunk":
        """Return a copy of the trunk with only the first `layers` blocks, to initialize a critic."""
        if not 1 <= layers <= self.config.layers:
            raise InputError(f"layers is {layers}; expected 1 to {self.config.layers}, the layers of the trunk")
        first = next(self.parameters())
        trunk = type(self)(replace(self.config, layers=layers, dropout=dropout)).to(first)
        wanted = trunk.state_dict().keys()
        trunk.load_state_dict({name: value for name, value in self.state_dict().items() if name in wanted})
        return trunk


class MaskedGenerator(Part):
    """A masked generator: a callable from partly hidden tokens to logits.

    num_tokens: N, tokens per image.
    codebook_size: K, the number of codes.
    mask_id: the id of a hidden token.
    num_classes: the number of classes, 0 for an unconditional generator.
    null_class: True if the label `num_classes` means no class, for classifier-free guidance.
    num_features, feature_width: the sizes of the features for an inline critic, 0 without features.
    fixed_shapes: True evaluates all positions of all images, because a compiled network makes a graph per shape.
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
        """The number of labels: the classes and, last, the null class if there is one."""
        return self.num_classes + self.null_class

    @abstractmethod
    def __call__(self, masked_tokens: Tensor, labels: Tensor | None, /) -> Tensor:
        """Return logits (b, n, K).

        masked_tokens: (b, n) int64, codes or `mask_id`.
        labels: (b,) int64 or None.
        """

    def logits_at(self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor) -> Tensor:
        """Return logits at some positions: (b, k, K) at indices (b, k), or (mask.sum(), K) at a mask (b, n) bool.

        Override this if the generator can skip the other positions.
        """
        return take(self(masked_tokens, labels), positions)

    def logits_with_features(
        self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor
    ) -> tuple[Tensor, Features]:
        """Return the logits of `logits_at` and `num_features` tensors (b, n, feature_width) of the same evaluation."""
        raise InputError(f"the generator, a {type(self).__name__}, {_NO_FEATURES}")

    def at(self, step: Step) -> "MaskedGenerator":
        """Return the generator for a step. It differs between steps if the guidance scale does."""
        return self

    def features(self, masked_tokens: Tensor, labels: Tensor | None) -> Features:
        """Return the features without the logits."""
        nowhere = torch.empty(len(masked_tokens), 0, dtype=torch.int64, device=masked_tokens.device)
        return self.logits_with_features(masked_tokens, labels, nowhere)[1]

    def start_critic(self, layers: int | None = None, **options: Any) -> "TokenCritic | None":
        """Return a critic whose trunk is a copy of the generator's first layers, or None without a trunk.

        layers: the number of layers to copy; all by default.
        options: `reads_mask`, `ratio_conditioned` and `dropout` of the critic.
        """
        return None


class TokenCritic(Part):
    """A critic: a callable from complete tokens to one logit per token, higher = more likely an original.

    num_tokens, codebook_size, num_classes: as those of `MaskedGenerator`, None if unknown.
    reads_mask: the critic also reads which tokens were just sampled.
    ratio_conditioned: the critic was trained with the ratio-conditioned loss (log-odds offset).
    """

    num_tokens: int | None = None
    codebook_size: int | None = None
    num_classes: int | None = None
    reads_mask: bool = False
    ratio_conditioned: bool = False

    @abstractmethod
    def __call__(self, tokens: Tensor, labels: Tensor | None, mask: Tensor | None = None, /) -> Tensor:
        """Return logits (b, n).

        tokens: (b, n) int64, codes only.
        labels: (b,) int64 or None.
        mask: (b, n) bool, True where the token was just sampled; only if `reads_mask`.
        """


class FeatureCritic(Part):
    """An inline critic: a callable from the generator's features to one logit per token.

    A higher logit means that the token is more likely an original.

    num_features, feature_width: the number and the width of the features.
    generator_identity: `identity()` of the generator that the critic was trained for; None for any generator.
    """

    num_features: int
    feature_width: int
    generator_identity: str | None = None

    @abstractmethod
    def __call__(self, features: Features, /) -> Tensor:
        """Return logits (b, n). features: `num_features` tensors (b, n, feature_width) of a partly hidden image."""

    def check(self, generator: MaskedGenerator, weights: bool = False) -> None:
        """Raise InputError unless the generator has the features that the critic reads.

        weights: also require the generator that the critic was trained for. Use it when a model is put together; later
        the weights may have another precision.
        """
        if not generator.num_features:
            raise InputError(f"the generator, a {type(generator).__name__}, {_NO_FEATURES}")
        read, given = (self.num_features, self.feature_width), (generator.num_features, generator.feature_width)
        if read != given:
            expected = f"{read[0]} features of width {read[1]}, which the inline critic reads"
            raise InputError(f"the generator has {given[0]} features of width {given[1]}; expected {expected}")
        if weights and self.generator_identity not in (None, theirs := generator.identity()):
            expected = f"{self.generator_identity[:16]}, for which the inline critic was trained"
            raise InputError(f"the generator is {theirs[:16]}; expected {expected}")


class ImageTokenizer(Part):
    """A tokenizer between images and tokens.

    num_tokens: N, tokens per image.
    codebook_size: K, the number of codes.
    image_size: pixels along each side.
    channels: 1 or 3.
    grid: (height, width) of the tokens in row-major order; None for tokens without a grid.
    splits: the number of adjacent tokens in a row of the grid that encode one patch of the image.
    margin: pixels around the image that the tokens also cover.
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
        """The grid (height, width) of the tokens, or one row for tokens without a grid."""
        return self.grid or (1, self.num_tokens)

    @abstractmethod
    def encode(self, images: Tensor) -> Tensor:
        """Encode images (b, c, h, w) float in [0, 1] to tokens (b, n) int64."""

    @abstractmethod
    def decode(self, tokens: Tensor) -> Tensor:
        """Decode tokens (b, n) int64 to images (b, c, h, w) float in [0, 1]."""


class ImageClassifier(Part):
    """An image classifier: a callable from images (b, c, h, w) in [0, 1] to logits (b, num_classes)."""

    @abstractmethod
    def __call__(self, images: Tensor, /) -> Tensor: ...

    @torch.no_grad()
    def classify(self, images: Tensor) -> Tensor:
        """Return logits in evaluation mode. Images are moved to the classifier's device and precision."""
        with evaluating(*self.networks):
            return self(images.to(self.device, self.dtype))


@contextmanager
def evaluating(*networks: nn.Module) -> Iterator[None]:
    """Switch networks to evaluation mode, and restore the mode of each module on exit."""
    parts = [part for network in networks for part in network.modules() if part.training]
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part in parts:
            part.training = True
