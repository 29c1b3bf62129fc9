"""The parts of a model with their checks, device, cost, and conversions between images, tokens and classes."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor

from tokencritic.adapters import as_classifier, as_critic, as_generator, as_tokenizer
from tokencritic.class_labels import Classes, ClassLabels
from tokencritic.contracts import FeatureCritic, evaluating
from tokencritic.cost import relative_costs
from tokencritic.devices import compile_blocks
from tokencritic.errors import InputError, check_at_least
from tokencritic.image_forms import to_images, to_pil
from tokencritic.pipeline_folder import KINDS
from tokencritic.sampling.model_settings import ModelSettings
from tokencritic.sampling.scorers import CriticScorer, InlineScorer
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.scoring import Proposal

OutputType = Literal["pil", "pt", "np"]


class ModelParts:
    """A tokenizer and a generator with optional critics and classifier.

    The parts implement the contracts of `contracts.py`, or are plain objects that `adapters.py` accepts.

    class_names: one name per class, or none.
    defaults: the default sampling settings.
    folder: the model folder, which also holds tuned settings.
    published: the authors' sampling settings of an imported generator.
    """

    def __init__(
        self,
        tokenizer: Any,
        generator: Any,
        critic: Any | None = None,
        classifier: Any | None = None,
        class_names: Sequence[str] = (),
        defaults: SamplingSettings | None = None,
        folder: Path | None = None,
        inline_critic: Any | None = None,
        published: SamplingSettings | None = None,
    ) -> None:
        self.tokenizer, self.generator = as_tokenizer(tokenizer), as_generator(generator)
        self.critic = None if critic is None else as_critic(critic)
        self.classifier = None if classifier is None else as_classifier(classifier)
        self.inline_critic: FeatureCritic | None = inline_critic
        if inline_critic is not None:
            InlineScorer(inline_critic).critic.check(self.generator, weights=True)
        self.class_names = tuple(class_names)
        sampler = "inline" if critic is None and inline_critic is not None else None
        self.defaults, self.folder, self.published = defaults or SamplingSettings(sampler), folder, published
        for name, part in (("generator", self.generator), ("critic", self.critic)):
            if part is not None:
                _check_size(name, "num_tokens", part.num_tokens, self.tokenizer.num_tokens)
                _check_size(name, "codebook_size", part.codebook_size, self.tokenizer.codebook_size)
        Classes(self.generator.num_classes, self.class_names)  # checks the names

    @property
    def classes(self) -> Classes:
        """The classes and their names."""
        return Classes(self.generator.num_classes, self.class_names)

    @property
    def parts(self) -> dict[str, Any]:
        """The parts that are not None, by name."""
        return {name: part for name in KINDS if (part := vars(self)[name]) is not None}

    @property
    def device(self) -> torch.device:
        return self.generator.device

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Move the parts in place. In half precision, scores, softmax and sampling stay float32."""
        for part in self.parts.values():
            for network in part.networks:
                network.to(device=device, dtype=dtype)
        return self

    def cast(self, dtype: torch.dtype) -> Self:
        """Cast generator and critics in place. Scores, softmax and sampling stay float32.

        Tokenizer and classifier keep their precision, because their pixels and features are compared between runs.
        """
        for name in ("generator", "critic", "inline_critic"):
            for network in self.parts[name].networks if name in self.parts else ():
                network.to(dtype)
        return self

    def compile(self, **options: Any) -> Self:
        """Compile the blocks of the transformers in place.

        Each step then evaluates all tokens, and smaller batches are padded, so that few graphs are compiled.

        options: arguments of `torch.compile`.
        """
        compile_blocks(*(network for part in self.parts.values() for network in part.networks), **options)
        self.generator.fixed_shapes = True
        return self

    @property
    def sampling(self) -> ModelSettings:
        """The sampling settings of the model: its defaults, tuned settings, and changes to them."""
        parts = self.critic is not None, self.folder, self.inline_critic is not None
        return ModelSettings(self.defaults, self.tokenizer.num_tokens, *parts, self.published)

    def nfe(self, settings: SamplingSettings, refine_ratio: float | None = None) -> int:
        """Return the network evaluations per image, see `SamplingSettings.nfe`."""
        return settings.nfe(self.tokenizer.num_tokens, self.critic is not None, refine_ratio)

    def cost(self, settings: SamplingSettings, refine_ratio: float | None = None) -> float:
        """Return the FLOPs per image in units of one generator evaluation.

        Every network evaluation counts as an evaluation of all tokens. Decoding is not counted.
        """
        found = settings.evaluations(self.tokenizer.num_tokens, self.critic is not None, refine_ratio)
        return sum(count * self.relative_costs.get(name, 0.0) for name, count in found._asdict().items())

    @cached_property
    def relative_costs(self) -> dict[str, float]:
        """The FLOPs of one evaluation of each network in units of the generator's, by name, without the tokenizer."""
        return relative_costs(self.tokenizer, self.generator, self.critic, self.inline_critic, self.classifier)

    def labels(self, class_labels: ClassLabels | None, num_images_per_label: int = 1) -> Tensor | None:
        """Return the labels (b,) int64 of classes; None for a model without classes.

        class_labels: numbers or names of classes.
        num_images_per_label: how often each label is repeated, at least 1.
        """
        check_at_least(1, num_images_per_label=num_images_per_label)
        labels = self.classes.labels(class_labels)
        return None if labels is None else labels.repeat_interleave(num_images_per_label)

    def labels_of(
        self, tokens: Tensor, class_labels: ClassLabels | None, batch_size: int = 64, called: str = "class_labels"
    ) -> Tensor | None:
        """Return the labels (b,) int64 of given images; None for a model without classes.

        tokens: (b, n) int64.
        class_labels: one per image, or one for all. None uses the model's classifier if there are several classes.
        called: the name of the argument in error messages.
        """
        if class_labels is None and self.generator.num_classes > 1:
            return self.classify(tokens, batch_size)
        labels = self.classes.labels(class_labels, called)
        if labels is not None and len(labels) not in (1, len(tokens)):
            raise InputError(f"{called} has {len(labels)} entries for {len(tokens)} images; give one, or one per image")
        return labels if labels is None or len(labels) > 1 else labels.expand(len(tokens))

    def names(self, labels: Iterable[int] | Tensor | None) -> list[str]:
        """Return the names of classes, see `Classes.names_of`."""
        return self.classes.names_of(labels)

    def classify(self, tokens: Tensor, batch_size: int = 64) -> Tensor:
        """Return the most likely class of each image by the model's classifier: (b,) int64 on the CPU.

        tokens: (b, n) int64.
        """
        if self.classifier is None:
            raise InputError("no classes are given and the model has no classifier; give the images' classes")
        images = self.images(tokens, "pt", batch_size)
        logits = [self.classifier.classify(part) for part in images.split(batch_size)]
        whole = torch.cat(logits).cpu()
        if whole.isnan().any():
            raise InputError("the classifier's logits are not finite; its weights are broken")
        return whole.argmax(dim=1)

    @torch.no_grad()
    def critic_scores(self, tokens: Tensor, labels: Tensor | None, batch_size: int = 64) -> Tensor:
        """Return the critic's probability that each token is an original, without noise: (b, n) float on the CPU.

        tokens: (b, n) int64.
        labels: (b,) int64 or None.
        """
        if self.critic is None:
            raise InputError("the model has no critic; expected one to compute scores")
        scorer, scores = CriticScorer(self.critic), []
        for rows in torch.arange(len(tokens)).split(batch_size):
            their = None if labels is None else labels[rows].to(self.device)
            with evaluating(*scorer.networks):
                scores.append(scorer.score(Proposal.given(tokens[rows].to(self.device), their)).cpu())
        return torch.cat(scores)

    @torch.no_grad()
    def encode(self, images: Any, batch_size: int = 64) -> Tensor:
        """Encode images to tokens (b, n) int64 on the CPU.

        images: PIL images in mode L or RGB, one or a list, or an array uint8 (b, h, w, c). Their centre square is
        resized. Floats in [0, 1] must have the tokenizer's size: an array (b, h, w, c) or a tensor (b, c, h, w).
        """
        check_at_least(1, batch_size=batch_size)
        parts = to_images(images, self.tokenizer.image_size, self.tokenizer.channels).split(batch_size)
        return torch.cat([self.tokenizer.encode(part.to(self.device)).cpu() for part in parts])

    @torch.no_grad()
    def images(self, tokens: Tensor, output_type: OutputType = "pil", batch_size: int = 64) -> Any:
        """Decode tokens (b, n) int64 to images.

        output_type: as in `TokenCriticPipeline.__call__`.
        """
        if output_type not in ("pil", "pt", "np"):
            raise InputError(f"output_type is {output_type!r}; choose pil, pt or np")
        images = torch.cat(
            [self.tokenizer.decode(part.to(self.device)).float().cpu() for part in tokens.split(batch_size)]
        )
        if not images.isfinite().all():
            raise InputError("the tokenizer decodes to values that are not finite; its weights are broken")
        if output_type == "pt":
            return images
        arrays = images.permute(0, 2, 3, 1).numpy()
        return arrays if output_type == "np" else [to_pil(array) for array in arrays]


def _check_size(part: str, name: str, theirs: int | None, ours: int) -> None:
    if theirs not in (None, ours):
        raise InputError(f"the {part}'s {name} is {theirs} but the tokenizer's is {ours}; they must be equal")
