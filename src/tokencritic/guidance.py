"""Classifier-free guidance with a scale that may change over the steps."""

import torch
from torch import Tensor, nn

from tokencritic.contracts import Features, MaskedGenerator
from tokencritic.errors import InputError
from tokencritic.plan import Step
from tokencritic.schedules import PAPER, Guidance, Schedule


def guided(generator: MaskedGenerator, guidance: Guidance | float, schedule: Schedule = PAPER) -> MaskedGenerator:
    """Return the generator with classifier-free guidance.

    guidance: a `Guidance`, or a constant scale; 1 disables guidance.
    schedule: defines the progress of guidance at each step.
    """
    guidance = guidance if isinstance(guidance, Guidance) else Guidance(guidance)
    if guidance.scale == 1:
        return generator
    if not generator.null_class:
        raise InputError(f"guidance is {guidance.scale}; expected 1 for a generator without null_class")
    return _GuidedGenerator(generator, guidance, schedule, guidance.scale)


class _GuidedGenerator(MaskedGenerator):
    """A generator with guided logits null + w (class - null), from one batch with and without the class."""

    def __init__(self, generator: MaskedGenerator, guidance: Guidance, schedule: Schedule, scale: float) -> None:
        self.generator, self.guidance, self.schedule, self.scale = generator, guidance, schedule, scale
        self.num_tokens, self.codebook_size = generator.num_tokens, generator.codebook_size
        self.mask_id, self.num_classes = generator.mask_id, generator.num_classes
        self.num_features, self.feature_width = generator.num_features, generator.feature_width
        self.fixed_shapes = generator.fixed_shapes

    def at(self, step: Step) -> MaskedGenerator:
        scale = self.guidance.at(self.schedule.guidance_left(step.done, step.steps))
        return self.generator if scale == 1 else _GuidedGenerator(self.generator, self.guidance, self.schedule, scale)

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        return self.generator.networks

    @property
    def device(self) -> torch.device:
        return self.generator.device

    def __call__(self, masked_tokens: Tensor, labels: Tensor | None, /) -> Tensor:
        return self._combined(self.generator(*self._twice(masked_tokens, labels)))

    def logits_at(self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor) -> Tensor:
        twice = self._twice(masked_tokens, labels)
        return self._combined(self.generator.logits_at(*twice, torch.cat([positions, positions])))

    def logits_with_features(
        self, masked_tokens: Tensor, labels: Tensor | None, positions: Tensor
    ) -> tuple[Tensor, Features]:
        """Return guided logits and the features of the evaluation with the class."""
        twice = self._twice(masked_tokens, labels)
        logits, features = self.generator.logits_with_features(*twice, torch.cat([positions, positions]))
        return self._combined(logits), tuple(both[: len(masked_tokens)] for both in features)

    def features(self, masked_tokens: Tensor, labels: Tensor | None) -> Features:
        return self.generator.features(masked_tokens, labels)

    def _twice(self, masked_tokens: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        if labels is None:
            raise InputError(f"guidance is {self.guidance.scale} but labels is None; give one label per image")
        both = torch.cat([labels, torch.full_like(labels, self.num_classes)])
        return torch.cat([masked_tokens, masked_tokens]), both

    def _combined(self, logits: Tensor) -> Tensor:
        with_class, without = logits.float().chunk(2)
        return without + self.scale * (with_class - without)
