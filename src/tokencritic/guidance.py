"""Classifier-free guidance: a generator seen through a guidance scale."""

import torch
from torch import Tensor, nn

from tokencritic.contracts import Features, MaskedGenerator
from tokencritic.errors import InputError


def guided(generator: MaskedGenerator, guidance: float) -> MaskedGenerator:
    """The generator with classifier-free guidance of a fixed scale; 1 is none."""
    if guidance == 1:
        return generator
    if not generator.null_class:
        raise InputError(f"guidance is {guidance} but the generator was made without null_class; only 1 is possible")
    return _GuidedGenerator(generator, guidance)


class _GuidedGenerator(MaskedGenerator):
    """A generator seen through guidance: null + w (class - null), both evaluations in one batch."""

    def __init__(self, generator: MaskedGenerator, guidance: float) -> None:
        self.generator, self.guidance = generator, guidance
        self.num_tokens, self.codebook_size = generator.num_tokens, generator.codebook_size
        self.mask_id, self.num_classes = generator.mask_id, generator.num_classes
        self.num_features, self.feature_width = generator.num_features, generator.feature_width

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        return self.generator.networks

    def identity(self) -> str:
        return self.generator.identity()

    def __call__(self, masked_tokens: Tensor, labels: Tensor | None, /) -> Tensor:
        everywhere = torch.ones_like(masked_tokens, dtype=torch.bool)
        return self.logits_at(masked_tokens, labels, everywhere).unflatten(0, masked_tokens.shape)

    def logits_at(self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor) -> Tensor:
        return self._combined(self.generator.logits_at(*self._twice(masked_tokens, labels, positions)))

    def logits_with_features(
        self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor
    ) -> tuple[Tensor, Features]:
        """The features are those of the evaluation with the class."""
        twice = self._twice(masked_tokens, labels, positions)
        logits, features = self.generator.logits_with_features(*twice)
        return self._combined(logits), tuple(both[: len(masked_tokens)] for both in features)

    def features(self, masked_tokens: Tensor, labels: Tensor | None) -> Features:
        return self.generator.features(masked_tokens, labels)

    def _twice(self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if labels is None:
            raise InputError(f"guidance is {self.guidance} but labels is None; give one label per image")
        both = torch.cat([labels, torch.full_like(labels, self.num_classes)])
        return torch.cat([masked_tokens, masked_tokens]), both, torch.cat([positions, positions])

    def _combined(self, logits: Tensor) -> Tensor:
        with_class, without = logits.chunk(2)
        return without + self.guidance * (with_class - without)
