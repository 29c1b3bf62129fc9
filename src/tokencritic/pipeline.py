"""The pipeline: sample, refine and edit images with a model, and load and save its folder."""

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from tokencritic.class_labels import ClassLabels
from tokencritic.errors import InputError, as_integers
from tokencritic.guidance import guided
from tokencritic.hub import model_card, push_folder
from tokencritic.model_parts import ModelParts, OutputType
from tokencritic.pipeline_folder import About, read_folder, write_folder
from tokencritic.pretrained import place_of
from tokencritic.randomness import as_seeds, candidate_seeds
from tokencritic.sampling.loop import OnStep
from tokencritic.sampling.model_settings import untuned_critic
from tokencritic.sampling.rejection import Ranker, RankRows, best_of, choose_ranker
from tokencritic.sampling.scorers import Judges, make_scorer
from tokencritic.sampling.settings import REFINEMENT_RATIO, SamplingSettings
from tokencritic.sampling.starts import Seeds, edit, refine, sample
from tokencritic.schedules import SCHEDULES


@dataclass(frozen=True)
class Given:
    """Images to refine or to edit.

    tokens: (b, n) int64.
    ratio: the share of tokens that refinement hides first, in (0, 1].
    region: for an edit, (b, n) or (n,) bool, True = resample; the other tokens are frozen. None for refinement.
    """

    tokens: Tensor
    ratio: float = REFINEMENT_RATIO
    region: Tensor | None = None

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise InputError(f"ratio is {self.ratio}; it must lie in (0, 1]")


class TokenCriticPipeline(ModelParts):
    """A model that samples, refines and edits images. `pipe(class_labels=[...])` samples images.

    The arguments are the parts of the model, see `ModelParts`.
    """

    def __call__(
        self,
        class_labels: ClassLabels | None = None,
        num_images_per_label: int = 1,
        *,
        given: Given | None = None,
        num_inference_steps: int | None = None,
        seed: Seeds = 0,
        output_type: OutputType = "pil",
        on_step: OnStep | None = None,
        batch_size: int = 64,
        **settings: Any,
    ) -> Any:
        """Sample images of classes, or refine or edit given images.

        class_labels: numbers or names of classes; may be None for a model with one class or without classes.
        num_images_per_label: images per class, or in total if class_labels is None.
        given: images to refine or edit, see `refine` and `edit`; None for new images.
        num_inference_steps: T, the number of steps; None for the model's default.
        seed: one seed per image, or an integer s for s, s + 1, ... An image depends only on its own seed and label.
        output_type: "pil", "pt" or "np".
        on_step: called after each step as (proposal, scores, mask), for instance a `Trace`.
        batch_size: images, or candidates of images, that are sampled in parallel.
        settings: changes to the model's settings, such as `sampler` and `temperature`, see `SamplingSettings`.

        Returns a list of PIL images for "pil". For "pt" it returns a float tensor (b, c, h, w), and for "np" an array
        (b, h, w, c), both in [0, 1].
        """
        steps = {} if num_inference_steps is None else {"steps": num_inference_steps}
        refining = given is not None and given.region is None
        chosen = (self.sampling.for_refinement if refining else self.sampling.changed)(**settings, **steps)
        labels = self.labels(class_labels, num_images_per_label)
        if labels is None:
            seed = as_seeds(seed, num_images_per_label if given is None else len(given.tokens))
        hooks: dict[str, Any] = {"batch_size": batch_size, "on_step": on_step}
        return self.images(self.sample_tokens(labels, seed, chosen, given, **hooks), output_type, batch_size)

    def refine(
        self,
        images_or_tokens: Any,
        class_labels: ClassLabels | None = None,
        *,
        ratio: float = REFINEMENT_RATIO,
        **options: Any,
    ) -> Any:
        """Refine images as in the paper: resample the tokens with the lowest scores of the critic.

        images_or_tokens: images as in `encode`, or integer tokens (b, n).
        class_labels: one per image, or one for all; None uses the pipeline's classifier if there are several classes.
        ratio: the share of tokens that are hidden first, in (0, 1].
        options: further arguments of `__call__`.

        Returns images as `__call__` does.
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
        """Resample a region of images and freeze all other tokens: inpainting, or another class inside a box.

        region: (b, n) or (n,) bool over the tokens in row-major order, True = resample.

        The other arguments and the result are as in `refine`.
        """
        tokens, labels = self._given(images_or_tokens, class_labels, options.get("batch_size", 64))
        return self(labels, given=Given(tokens, region=torch.as_tensor(region)), **options)

    def with_critic(self, **critic: Any) -> Self:
        """Return the same model with another critic, which its default settings use.

        critic: the keyword `critic` or `inline_critic`.
        """
        if "critic" in critic and self.critic is None:
            defaults = untuned_critic(self.defaults)
        else:
            defaults = self.sampling.changed(sampler="critic" if "critic" in critic else "inline")
        return type(self)(
            **self.parts | critic,
            class_names=self.class_names,
            defaults=defaults,
            folder=self.folder,
            published=self.published,
        )

    def settings(self, **changes: Any) -> SamplingSettings:
        """Return the model's default settings with changes, see `ModelSettings.changed`."""
        return self.sampling.changed(**changes)

    def token_batches(
        self,
        labels: Tensor | None,
        seeds: Seeds,
        settings: SamplingSettings,
        given: Given | None = None,
        *,
        batch_size: int = 64,
        on_step: OnStep | None = None,
    ) -> Iterator[Tensor]:
        """Return an iterator over batches of tokens (b, n) on the CPU, the best candidate of each image.

        All sampling of a pipeline is done here. Invalid arguments raise InputError before the first batch.

        labels: (b,) int64; None for a model without classes.
        seeds: as in `__call__`, but one per image if labels and given are None.
        given: images to refine or edit; None for new images.

        The other arguments are as in `__call__`.
        """
        count = self._count(labels, seeds, given)
        seeds = as_seeds(seeds, count)
        if given is None or given.region is not None:
            settings.check_critic_window(self.tokenizer.num_tokens, self.critic is not None)
        ranker = choose_ranker(settings, self.critic, self.classifier, self.tokenizer.decode)
        judges = Judges(self.critic, self.inline_critic, self.tokenizer.layout)
        guidance, schedule = settings.guidance_over_steps(), SCHEDULES[settings.schedule]
        parts = guided(self.generator, guidance, schedule), (scorer := make_scorer(settings, judges))
        scorer.check(self.generator)
        options: dict[str, Any] = {name: vars(settings)[name] for name in ("steps", "temperature", "schedule")}
        options["on_step"] = on_step

        full = min(batch_size, count * settings.candidates)

        def sample_rows(rows: Tensor, numbers: Tensor) -> Tensor:
            if self.generator.fixed_shapes and on_step is None and (missing := full - len(rows)) > 0:
                rows, numbers = (torch.cat([some, some[:1].expand(missing)]) for some in (rows, numbers))
                return sample_full(rows, numbers)[:-missing]
            return sample_full(rows, numbers)

        def sample_full(rows: Tensor, numbers: Tensor) -> Tensor:
            own = None if labels is None else labels[rows], candidate_seeds(seeds[rows], numbers)
            if given is None:
                return sample(*parts, *own, **options)
            if given.region is None:
                return refine(*parts, given.tokens[rows], *own, ratio=given.ratio, **options)
            region = given.region if given.region.ndim == 1 else given.region[rows]
            return edit(*parts, given.tokens[rows], region, *own, **options)

        return best_of(sample_rows, _rank_rows(ranker, labels), count, settings.candidates, batch_size)

    def _count(self, labels: Tensor | None, seeds: Seeds, given: Given | None) -> int:
        """Return the number of images. Raises InputError if labels, seeds and given tokens do not agree."""
        if labels is None and self.generator.num_classes:
            raise InputError(
                f"labels is None and the model has {self.generator.num_classes} classes; give one per image"
            )
        if labels is not None and not self.generator.num_classes:
            raise InputError("labels are given and the model has no classes; give None")
        if labels is None and given is None and isinstance(seeds, Integral):
            raise InputError("labels is None and seeds is one integer; give one seed per image to say how many")
        told = labels if labels is not None else seeds if given is None else given.tokens
        count: int = len(told)  # pyright: ignore[reportArgumentType]
        if count == 0 or (given is not None and len(given.tokens) != count):
            images = "no" if given is None else len(given.tokens)
            raise InputError(f"there are {count} labels for {images} images; give one per image, at least one")
        return count

    def sample_tokens(
        self,
        labels: Tensor | None,
        seeds: Seeds = 0,
        settings: SamplingSettings | None = None,
        given: Given | None = None,
        **hooks: Any,
    ) -> Tensor:
        """Return all batches of `token_batches` as one tensor, (b, n).

        settings: None for the model's defaults, or for its defaults for refinement.
        hooks: `batch_size` and `on_step` of `token_batches`.
        """
        if settings is None:
            refining = given is not None and given.region is None
            settings = self.sampling.for_refinement() if refining else self.defaults
        return torch.cat(list(self.token_batches(labels, seeds, settings, given, **hooks)))

    def choose_tokens(
        self, candidates: Sequence[Tensor], labels: Tensor | None, settings: SamplingSettings, batch_size: int = 64
    ) -> Tensor:
        """Return the candidates that `sample_tokens` would keep, by the ranker of the settings: (b, n) on the CPU.

        candidates: tokens (b, n) for each candidate number, in order.
        """
        settings = dataclasses.replace(settings, candidates=len(candidates))
        ranker = choose_ranker(settings, self.critic, self.classifier, self.tokenizer.decode)
        if ranker is None:
            return candidates[0]
        tokens = torch.stack(list(candidates))

        def sampled(rows: Tensor, numbers: Tensor) -> Tensor:
            return tokens[numbers, rows].to(self.device)

        ranks = _rank_rows(ranker, labels)
        return torch.cat(list(best_of(sampled, ranks, tokens.shape[1], len(candidates), batch_size)))

    def _given(
        self, images_or_tokens: Any, class_labels: ClassLabels | None, batch_size: int
    ) -> tuple[Tensor, list[int] | None]:
        """Return the tokens (b, n) and the labels of images or tokens."""
        if isinstance(images_or_tokens, Tensor | np.ndarray) and images_or_tokens.ndim == 2:
            tokens = as_integers("tokens", torch.as_tensor(images_or_tokens))
        else:
            tokens = self.encode(images_or_tokens, batch_size)
        labels = self.labels_of(tokens, class_labels, batch_size)
        return tokens, None if labels is None else labels.tolist()

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model folder. `pipeline.json` is written last, so a folder without it is incomplete."""
        if self.inline_critic is not None:  # it does not fit weights in another precision
            self.inline_critic.check(self.generator, weights=True)
        write_folder(Path(folder), self.parts, About(self.class_names, self.defaults, self.published))

    def push_to_hub(
        self, repo_id: str, *, licence: str = "unknown", private: bool = False, token: str | None = None
    ) -> str:
        """Upload the model folder and a model card to the Hub, and return the address of the page.

        licence: the Hub's name for the licence of the weights, such as "mit".
        private: create a private repository.
        token: a Hub token; None for the token stored by `hf auth login`.
        """
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return push_folder(Path(folder), repo_id, model_card(self, repo_id, licence), private, token)

    @classmethod
    def from_pretrained(cls, folder_or_hub_id: str | Path, **hub_arguments: Any) -> Self:
        """Load a model folder, a bundled model or a model on the Hub, in float32 and evaluation mode.

        hub_arguments: `revision`, `token`, `cache_dir` and `local_files_only` of `huggingface_hub`.
        """
        parts, about = read_folder(folder_or_hub_id, **hub_arguments)
        return cls(**parts, **vars(about), folder=Path(place_of(folder_or_hub_id)))


def _rank_rows(ranker: Ranker | None, labels: Tensor | None) -> RankRows | None:
    """Return the ranker as a function of tokens and image numbers; None without a ranker."""
    if ranker is None:
        return None
    return lambda tokens, rows: ranker(tokens, None if labels is None else labels[rows].to(tokens.device))
