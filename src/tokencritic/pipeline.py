"""Tokenizer, generator, critic and classifier as one thing: a folder on disk, a call that makes images."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from tokencritic.adapters import as_classifier, as_critic, as_generator, as_tokenizer
from tokencritic.class_labels import ClassLabels, label_names, label_numbers
from tokencritic.contracts import FeatureCritic, Proposal, evaluating
from tokencritic.cost import relative_costs
from tokencritic.devices import compile_blocks
from tokencritic.errors import InputError, as_integers
from tokencritic.guidance import guided
from tokencritic.image_forms import to_images, to_pil
from tokencritic.pipeline_folder import KINDS, About, read_folder, write_folder
from tokencritic.pretrained import place_of
from tokencritic.randomness import as_seeds, candidate_seeds
from tokencritic.sampling.loop import OnStep
from tokencritic.sampling.rejection import best_of, choose_ranker
from tokencritic.sampling.scorers import CriticScorer, InlineScorer, Judges, make_scorer
from tokencritic.sampling.settings import REFINEMENT_RATIO, ModelSettings, SamplingSettings
from tokencritic.sampling.starts import Seeds, edit, refine, sample
from tokencritic.schedules import SCHEDULES

OutputType = Literal["pil", "pt", "np"]


@dataclass(frozen=True)
class Given:
    """Images to start from, tokens (b, n). ratio: the share of tokens that refinement hides first.

    region: (b, n) or (n,) bool, for an edit instead: resample these tokens and freeze the others.
    """

    tokens: Tensor
    ratio: float = REFINEMENT_RATIO
    region: Tensor | None = None


class TokenCriticPipeline:
    """`pipe(class_labels=[...])` makes images.

    tokenizer, generator, and critic, classifier, inline_critic or None: by the contracts of `contracts.py`, or plain objects
    that `adapters.py` makes whole. class_names: one per class, or none at all. defaults: how to sample unless a call says
    otherwise. folder: where the model lies, with what tuning found for it. published: the authors' sampling settings of an
    imported generator.
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
        classes = self.generator.num_classes
        if classes == 0:
            raise InputError("the generator has no classes; a pipeline needs some, `tokencritic.sample` does not")
        if self.class_names and len(self.class_names) != classes:
            raise InputError(f"class_names has {len(self.class_names)} entries for {classes} classes")

    @property
    def parts(self) -> dict[str, Any]:
        """The parts that are there, by name."""
        return {name: part for name in KINDS if (part := vars(self)[name]) is not None}

    @property
    def device(self) -> torch.device:
        return self.generator.device

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Move the parts, in place; in half precision scores, softmax and samples stay float32."""
        for part in self.parts.values():
            for network in part.networks:
                network.to(device=device, dtype=dtype)
        return self

    def cast(self, dtype: torch.dtype) -> Self:
        """Move generator and critics to a precision, in place; scores, softmax and samples stay float32.

        Tokenizer and classifier keep theirs: their results are pixels and features, which are compared between runs.
        """
        for name in ("generator", "critic", "inline_critic"):
            for network in self.parts[name].networks if name in self.parts else ():
                network.to(dtype)
        return self

    def compile(self, **options: Any) -> Self:
        """Compile the blocks of the transformers, in place. options: of `torch.compile`.

        Each step then evaluates all tokens, and a batch that is not full is filled up, so that few graphs are made.
        """
        compile_blocks(*(network for part in self.parts.values() for network in part.networks), **options)
        self.generator.fixed_shapes = True
        return self

    @property
    def sampling(self) -> ModelSettings:
        """The model's settings: its defaults, what tuning found, and how changes join them."""
        parts = self.critic is not None, self.folder, self.inline_critic is not None
        return ModelSettings(self.defaults, self.tokenizer.num_tokens, *parts, self.published)

    def nfe(self, settings: SamplingSettings, refine_ratio: float | None = None) -> int:
        """Network evaluations per image, see `SamplingSettings.nfe`."""
        return settings.nfe(self.tokenizer.num_tokens, self.critic is not None, refine_ratio)

    def cost(self, settings: SamplingSettings, refine_ratio: float | None = None) -> float:
        """FLOPs per image in units of one generator evaluation: the evaluations of all networks, each by its size.

        A network counts as if it were evaluated at all tokens. Decoding is not counted.
        """
        found = settings.evaluations(self.tokenizer.num_tokens, self.critic is not None, refine_ratio)
        return sum(count * self.relative_costs.get(name, 0.0) for name, count in found._asdict().items())

    @cached_property
    def relative_costs(self) -> dict[str, float]:
        """The FLOPs of one evaluation of each network but the tokenizer, by name, in units of the generator's."""
        return relative_costs(self.tokenizer, self.generator, self.critic, self.inline_critic, self.classifier)

    def __call__(
        self,
        class_labels: ClassLabels,
        num_images_per_label: int = 1,
        *,
        given: Given | None = None,
        num_inference_steps: int | None = None,
        seed: Seeds = 0,
        output_type: OutputType = "pil",
        on_step: OnStep | None = None,
        batch_size: int = 64,
        reject_with: Callable[[Tensor], Tensor] | None = None,
        **settings: Any,
    ) -> Any:
        """Images of the classes, `num_images_per_label` of each in turn.

        class_labels: numbers or names. given: tokens to start from, as `refine` and `edit` give them.
        seed: image i has seed + i, or one seed per image is given; an image depends on its own seed and label alone.
        num_inference_steps and settings (`sampler`, `temperature`, `selection_noise`, ...): see `SamplingSettings`; what is not
        given is the model's default.
        on_step: called after each step as (proposal, scores, mask), for instance a `Trace`.
        batch_size: how many images, or candidates for them, are worked on at a time.
        reject_with: with `candidates` of 2 or more, a classifier to choose by instead of the pipeline's: images (b, c, h, w)
        in [0, 1] -> logits (b, classes).
        Returns a list of PIL images, or a float tensor (b, c, h, w) for "pt", or an array (b, h, w, c) for "np", in [0, 1].
        """
        steps = {} if num_inference_steps is None else {"steps": num_inference_steps}
        refining = given is not None and given.region is None
        chosen = (self.sampling.for_refinement if refining else self.sampling.changed)(**settings, **steps)
        labels = self.labels(class_labels, num_images_per_label)
        hooks: dict[str, Any] = {"batch_size": batch_size, "on_step": on_step, "reject_with": reject_with}
        return self.images(self.sample_tokens(labels, seed, chosen, given, **hooks), output_type, batch_size)

    def refine(
        self,
        images_or_tokens: Any,
        class_labels: ClassLabels | None = None,
        *,
        ratio: float = REFINEMENT_RATIO,
        **options: Any,
    ) -> Any:
        """The images with the `ratio` of their tokens that the critic trusts least resampled (the paper's refinement).

        images_or_tokens: images as `encode` takes them, or integers (b, n). class_labels: one per image, or one for all;
        None asks the pipeline's classifier. options: those of a call. Returns what a call returns.
        """
        tokens, labels = self._given(images_or_tokens, class_labels, options.get("batch_size", 64))
        return self(labels, given=Given(tokens, ratio=ratio), **options)

    def edit(
        self,
        images_or_tokens: Any,
        region: Tensor | np.ndarray,
        class_labels: ClassLabels | None = None,
        **options: Any,
    ) -> Any:
        """The images with a region resampled and every token outside it frozen: inpainting, or a class inside a box.

        region: (b, n) or (n,) bool over the tokens in row-major order, True = resample. The rest is as in `refine`.
        """
        tokens, labels = self._given(images_or_tokens, class_labels, options.get("batch_size", 64))
        return self(labels, given=Given(tokens, region=torch.as_tensor(region)), **options)

    def settings(self, **changes: Any) -> SamplingSettings:
        """The model's defaults with some changed, see `ModelSettings.changed`."""
        return self.sampling.changed(**changes)

    def labels(self, class_labels: ClassLabels, num_images_per_label: int = 1, called: str = "class_labels") -> Tensor:
        """Numbers or names -> (b,) int64, each repeated. called: what an error calls them."""
        if num_images_per_label < 1:
            raise InputError(f"num_images_per_label is {num_images_per_label}; it must be at least 1")
        numbers = label_numbers(class_labels, self.class_names, self.generator.num_classes, called)
        return torch.tensor(numbers, dtype=torch.int64).repeat_interleave(num_images_per_label)

    def names(self, labels: Iterable[int]) -> list[str]:
        """The classes by name, with their number where two have the same; by number alone where the model has no names."""
        return label_names(labels, self.class_names)

    def token_batches(
        self,
        labels: Tensor,
        seeds: Seeds,
        settings: SamplingSettings,
        given: Given | None = None,
        *,
        batch_size: int = 64,
        on_step: OnStep | None = None,
        reject_with: Callable[[Tensor], Tensor] | None = None,
    ) -> Iterator[Tensor]:
        """The one place where a pipeline samples: tokens (b, n) on the CPU, batch by batch, the best of the candidates.

        labels: (b,). given: images to refine or edit; None for new ones. The other arguments are those of a call. What is
        wrong is raised before the first batch.
        """
        seeds = as_seeds(seeds, len(labels))
        if len(labels) == 0 or (given is not None and len(given.tokens) != len(labels)):
            count = "no" if given is None else len(given.tokens)
            raise InputError(f"there are {len(labels)} labels for {count} images; give one per image, at least one")
        if given is None or given.region is not None:
            settings.check_critic_window(self.tokenizer.num_tokens, self.critic is not None)
        if reject_with is not None and settings.reject_by != "classifier":
            raise InputError(f"reject_with is given but reject_by is {settings.reject_by}; it is for classifier")
        classifier = self.classifier if reject_with is None else as_classifier(reject_with)
        ranker = choose_ranker(settings, self.critic, classifier, self.tokenizer.decode)
        judges = Judges(self.critic, self.inline_critic, self.tokenizer.grid)
        guidance, schedule = settings.guidance_over_steps(), SCHEDULES[settings.schedule]
        parts = guided(self.generator, guidance, schedule), make_scorer(settings, judges)
        options: dict[str, Any] = {name: vars(settings)[name] for name in ("steps", "temperature", "schedule")}
        options["on_step"] = on_step

        all_seeds = torch.stack([candidate_seeds(seeds, number) for number in range(settings.candidates)])

        full = min(batch_size, len(labels) * settings.candidates)

        def sample_rows(rows: Tensor, numbers: Tensor) -> Tensor:
            if self.generator.fixed_shapes and on_step is None and (missing := full - len(rows)) > 0:
                rows, numbers = (torch.cat([some, some[:1].expand(missing)]) for some in (rows, numbers))
                return sample_full(rows, numbers)[:-missing]
            return sample_full(rows, numbers)

        def sample_full(rows: Tensor, numbers: Tensor) -> Tensor:
            own = labels[rows], all_seeds[numbers, rows]
            if given is None:
                return sample(*parts, *own, **options)
            if given.region is None:
                return refine(*parts, given.tokens[rows], *own, ratio=given.ratio, **options)
            region = given.region if given.region.ndim == 1 else given.region[rows]
            return edit(*parts, given.tokens[rows], region, *own, **options)

        return best_of(sample_rows, ranker, labels, settings.candidates, batch_size)

    def sample_tokens(
        self,
        labels: Tensor,
        seeds: Seeds = 0,
        settings: SamplingSettings | None = None,
        given: Given | None = None,
        **hooks: Any,
    ) -> Tensor:
        """All of `token_batches` at once, (b, n). settings: the model's defaults, or those for refinement, if not given."""
        if settings is None:
            refining = given is not None and given.region is None
            settings = self.sampling.for_refinement() if refining else self.defaults
        return torch.cat(list(self.token_batches(labels, seeds, settings, given, **hooks)))

    def choose_tokens(
        self, candidates: Sequence[Tensor], labels: Tensor, settings: SamplingSettings, batch_size: int = 64
    ) -> Tensor:
        """The best of candidates sampled before, by the ranker that the settings name: what `sample_tokens` would keep.

        candidates: tokens (b, n) each, those of number 0, of number 1, and so on. Returns tokens (b, n) on the CPU.
        """
        settings = dataclasses.replace(settings, candidates=len(candidates))
        ranker = choose_ranker(settings, self.critic, self.classifier, self.tokenizer.decode)
        if ranker is None:
            return candidates[0]
        tokens = torch.stack(list(candidates))

        def sampled(rows: Tensor, numbers: Tensor) -> Tensor:
            return tokens[numbers, rows].to(self.device)

        return torch.cat(list(best_of(sampled, ranker, labels, len(candidates), batch_size)))

    def _given(
        self, images_or_tokens: Any, class_labels: ClassLabels | None, batch_size: int
    ) -> tuple[Tensor, list[int]]:
        """Tokens (b, n) and labels of images or tokens."""
        if isinstance(images_or_tokens, Tensor | np.ndarray) and images_or_tokens.ndim == 2:
            tokens = as_integers("tokens", torch.as_tensor(images_or_tokens))
        else:
            tokens = self.encode(images_or_tokens, batch_size)
        if class_labels is None:
            return tokens, self.classify(tokens, batch_size).tolist()
        labels = self.labels(class_labels).tolist()
        return tokens, labels * len(tokens) if len(labels) == 1 else labels

    def classify(self, tokens: Tensor, batch_size: int = 64) -> Tensor:
        """tokens: (b, n). The classes that the pipeline's classifier finds likeliest: (b,) int64 on the CPU."""
        if self.classifier is None:
            raise InputError("no classes are given and the model has no classifier to ask; give the images' classes")
        images = self.images(tokens, "pt", batch_size)
        logits = [self.classifier.classify(part) for part in images.split(batch_size)]
        return torch.cat(logits).argmax(dim=1).cpu()

    @torch.no_grad()
    def critic_scores(self, tokens: Tensor, labels: Tensor, batch_size: int = 64) -> Tensor:
        """The critic's probability that each token is an original, without noise: (b, n) float on the CPU."""
        if self.critic is None:
            raise InputError("the model has no critic")
        scorer, scores = CriticScorer(self.critic), []
        for some, their in zip(tokens.split(batch_size), labels.split(batch_size), strict=True):
            with evaluating(*scorer.networks):
                scores.append(scorer.score(Proposal.given(some.to(self.device), their.to(self.device))).cpu())
        return torch.cat(scores)

    @torch.no_grad()
    def encode(self, images: Any, batch_size: int = 64) -> Tensor:
        """Images to tokens (b, n) on the CPU.

        images: a picture in mode L or RGB, a list of them, or an array uint8 (b, h, w, c), whose middle square is resized; or
        floats in [0, 1] of the tokenizer's size, an array (b, h, w, c) or a tensor (b, c, h, w).
        """
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; it must be at least 1")
        parts = to_images(images, self.tokenizer.image_size, self.tokenizer.channels).split(batch_size)
        return torch.cat([self.tokenizer.encode(part.to(self.device)).cpu() for part in parts])

    @torch.no_grad()
    def images(self, tokens: Tensor, output_type: OutputType = "pil", batch_size: int = 64) -> Any:
        """tokens: (b, n). Returns images as `__call__` does."""
        if output_type not in ("pil", "pt", "np"):
            raise InputError(f"output_type is {output_type!r}; choose pil, pt or np")
        images = torch.cat(
            [self.tokenizer.decode(part.to(self.device)).float().cpu() for part in tokens.split(batch_size)]
        )
        if output_type == "pt":
            return images
        arrays = images.permute(0, 2, 3, 1).numpy()
        return arrays if output_type == "np" else [to_pil(array) for array in arrays]

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the folder; `pipeline.json` comes last, so a folder without it is not whole."""
        if self.inline_critic is not None:  # which does not fit weights in another precision
            self.inline_critic.check(self.generator, weights=True)
        write_folder(Path(folder), self.parts, About(self.class_names, self.defaults, self.published))

    @classmethod
    def from_pretrained(cls, folder_or_hub_id: str | Path, **hub_arguments: Any) -> Self:
        """Load a folder written by `save_pretrained`, or the same from the Hub, in float32 and eval mode."""
        parts, about = read_folder(folder_or_hub_id, **hub_arguments)
        return cls(**parts, **vars(about), folder=Path(place_of(folder_or_hub_id)))


def _check_size(part: str, name: str, theirs: int | None, ours: int) -> None:
    if theirs not in (None, ours):
        raise InputError(f"the {part}'s {name} is {theirs} but the tokenizer's is {ours}; they must be equal")
