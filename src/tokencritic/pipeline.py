"""Tokenizer, generator, critic and classifier as one thing: a folder on disk, a call that makes images."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from tokencritic.errors import InputError, as_integers
from tokencritic.image_forms import to_images, to_pil
from tokencritic.models.classifier import Classifier
from tokencritic.models.critic import Critic
from tokencritic.models.generator import Generator
from tokencritic.pipeline_folder import KINDS, read_folder, write_folder
from tokencritic.randomness import as_seeds
from tokencritic.sampling.edit import edit
from tokencritic.sampling.inputs import device_of
from tokencritic.sampling.loop import sample
from tokencritic.sampling.propose import Proposal, evaluating
from tokencritic.sampling.refine import refine
from tokencritic.sampling.rejection import best_among, best_of, choose_ranker, fitting
from tokencritic.sampling.settings import REFINING, SamplingSettings
from tokencritic.tokenizers.tokenizer import Tokenizer

OutputType = Literal["pil", "pt", "np"]
Seeds = int | Sequence[int] | Tensor
ClassLabels = int | str | Sequence[int | str]
Callback = Callable[["TokenCriticPipeline", int, float, dict[str, Tensor]], Any]


class TokenCriticPipeline:
    """`pipe(class_labels=[...])` makes images.

    tokenizer: `encode(images) -> tokens`, `decode(tokens) -> images`; images (b, c, h, w) float in [0, 1], tokens (b, n).
    generator: `(masked_tokens, labels) -> logits (b, n, codebook_size)`, with `mask_id`.
    critic: `(tokens, labels) -> logits (b, n)`, or None. classifier: `images -> logits`, or None.
    class_names: one per class, or none at all. defaults: how to sample unless a call says otherwise.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | Any,
        generator: Generator | Any,
        critic: Critic | Any | None = None,
        classifier: Classifier | Any | None = None,
        class_names: Sequence[str] = (),
        defaults: SamplingSettings | None = None,
    ) -> None:
        self.tokenizer, self.generator, self.critic, self.classifier = tokenizer, generator, critic, classifier
        self.class_names = tuple(class_names)
        self.defaults = defaults or SamplingSettings()
        for name, part in (("generator", generator), ("critic", critic)):
            for size in ("num_tokens", "codebook_size"):
                ours, theirs = getattr(tokenizer, size, None), getattr(part, size, None)
                if ours is not None and theirs is not None and theirs != ours:
                    raise InputError(
                        f"the {name}'s {size} is {theirs} but the tokenizer's is {ours}; they must be equal"
                    )
        classes = getattr(generator, "num_classes", None)
        if classes == 0:
            raise InputError("the generator has no classes; a pipeline needs some, `tokencritic.sample` does not")
        if self.class_names and classes is not None and len(self.class_names) != classes:
            raise InputError(f"class_names has {len(self.class_names)} entries for {classes} classes")

    @property
    def parts(self) -> dict[str, Any]:
        """The parts that are there, by name."""
        named = {name: getattr(self, name) for name in KINDS}
        return {name: part for name, part in named.items() if part is not None}

    @property
    def device(self) -> torch.device:
        return device_of(self.generator)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Move the parts, in place; in half precision scores, softmax and draws stay float32."""
        for part in self.parts.values():
            if isinstance(part, nn.Module):
                part.to(device=device, dtype=dtype)
        return self

    def __call__(
        self,
        class_labels: ClassLabels,
        num_images_per_label: int = 1,
        *,
        num_inference_steps: int | None = None,
        seed: Seeds = 0,
        output_type: OutputType = "pil",
        callback_on_step_end: Callback | None = None,
        batch_size: int = 64,
        reject_with: Callable[[Tensor], Tensor] | None = None,
        **settings: Any,
    ) -> Any:
        """Images of the classes, `num_images_per_label` of each in turn.

        class_labels: numbers or names. seed: image i has seed + i, or one seed per image is given; an image depends on its
        own seed and label alone. num_inference_steps and settings (`sampler`, `temperature`, `selection_noise`, ...): see
        `SamplingSettings`; what is not given is the model's default.
        callback_on_step_end: called as (pipeline, step, time, tensors) with `tokens`, `hidden` and, but for the last
        step, `scores`. batch_size: how many images, or candidates for them, are worked on at a time.
        reject_with: with `candidates` of 2 or more, a classifier to choose by instead of the pipeline's: images (b, c, h, w)
        in [0, 1] -> logits (b, classes).
        Returns a list of PIL images, or a float tensor (b, c, h, w) for "pt", or an array (b, h, w, c) for "np", in [0, 1].
        """
        tokens = self.sample_tokens(
            self.labels(class_labels, num_images_per_label),
            seed,
            self.settings(num_inference_steps, **settings),
            batch_size,
            callback_on_step_end,
            reject_with,
        )
        return self.images(tokens, output_type, batch_size)

    def settings(self, num_inference_steps: int | None = None, **changes: Any) -> SamplingSettings:
        """The model's defaults with some changed.

        Another sampler than the default one has its own temperature, noise, passes per level and guidance, not those of the
        defaults: what suits one harms another. Chance in place of the critic keeps them: it is the control.
        """
        known = {field.name for field in dataclasses.fields(SamplingSettings)}
        if not changes.keys() <= known:
            raise InputError(
                f"unknown setting {sorted(changes.keys() - known)[0]!r}; choose from {', '.join(sorted(known))}"
            )
        if num_inference_steps is not None:
            changes["steps"] = num_inference_steps
        has_critic = self.critic is not None
        changed = dataclasses.replace(self.defaults, **changes)
        chosen, usual = (settings.chosen_sampler(has_critic) for settings in (changed, self.defaults))
        if chosen == usual:
            return changed
        if (chosen, usual) == ("chance", "critic"):
            return dataclasses.replace(self.defaults.by_chance(), **changes)
        kept = {name: getattr(self.defaults, name) for name in ("steps", "schedule", "candidates", "reject_by")}
        return SamplingSettings(**kept | changes)

    def refinement_settings(self, **changes: Any) -> SamplingSettings:
        """The model's defaults for refining: 9 steps, and the critic chooses, all the time unless told otherwise."""
        if changes.get("sampler") == "confidence":
            raise InputError(
                "sampler is confidence, which knows only tokens it drew itself; refine with critic or chance"
            )
        if self.critic is None and changes.get("sampler") is None:
            raise InputError("the model has no critic to say which tokens to refine")
        if changes.get("critic_from", 1) != 1:
            raise InputError(
                f"critic_from is {changes['critic_from']}; refining begins with the critic's choice: leave it out"
            )
        return self.settings(**{"sampler": "critic", **REFINING, **changes})

    def labels(self, class_labels: ClassLabels, num_images_per_label: int = 1, called: str = "class_labels") -> Tensor:
        """Numbers or names -> (b,) int64, each repeated. called: what an error calls them."""
        if num_images_per_label < 1:
            raise InputError(f"num_images_per_label is {num_images_per_label}; it must be at least 1")
        wanted = [class_labels] if isinstance(class_labels, int | Integral | str) else list(class_labels)
        if not wanted:
            raise InputError(f"{called} is empty; give at least one class")
        numbers = [self._label(label, called) for label in wanted]
        return torch.tensor(numbers, dtype=torch.int64).repeat_interleave(num_images_per_label)

    def _label(self, label: int | str, called: str) -> int:
        classes = getattr(self.generator, "num_classes", len(self.class_names))
        if isinstance(label, str) and not label.isdecimal():
            matches = [i for i, name in enumerate(self.class_names) if name.lower() == label.lower()]
            if not matches:
                some = ", ".join(self.class_names[:10]) or "none: give numbers"
                raise InputError(f"{called} holds {label!r}; the model's class names are {some}")
            return matches[0]
        if not isinstance(label, Integral | str) or not 0 <= int(label) < classes:
            raise InputError(f"{called} holds {label}; expected 0 to {classes - 1}, or a class name")
        return int(label)

    def _guided(self, guidance: float) -> Any:
        if guidance == 1:
            return self.generator
        if not hasattr(self.generator, "guided"):
            kind = type(self.generator).__name__
            raise InputError(
                f"guidance is {guidance} but the generator, a {kind}, has no method `guided`; only 1 is possible"
            )
        return self.generator.guided(guidance)

    def sample_tokens(
        self,
        labels: Tensor,
        seed: Seeds = 0,
        settings: SamplingSettings | None = None,
        batch_size: int = 64,
        callback_on_step_end: Callback | None = None,
        reject_with: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """labels: (b,); the other arguments are those of a call. Returns tokens (b, n) on the CPU."""
        seeds, settings = as_seeds(seed, len(labels)), settings or self.defaults
        settings.check_critic_chooses(self.tokenizer.num_tokens, self.critic is not None)
        return self._draw(sample, (), labels, seeds, settings, batch_size, callback_on_step_end, reject_with)

    def refine_tokens(
        self,
        tokens: Tensor,
        labels: Tensor,
        seed: Seeds = 0,
        settings: SamplingSettings | None = None,
        batch_size: int = 64,
        callback_on_step_end: Callback | None = None,
        reject_with: Callable[[Tensor], Tensor] | None = None,
        *,
        ratio: float = 0.6,
    ) -> Tensor:
        """tokens: (b, n); the rest is as in `sample_tokens`, with `refinement_settings()` where none are given."""
        seeds, settings = as_seeds(seed, len(labels)), settings or self.refinement_settings()
        method = partial(refine, ratio=ratio)
        return self._draw(method, (tokens,), labels, seeds, settings, batch_size, callback_on_step_end, reject_with)

    def choose_tokens(
        self, candidates: Sequence[Tensor], labels: Tensor, settings: SamplingSettings, batch_size: int = 64
    ) -> Tensor:
        """The best of candidates drawn before, by the ranker that the settings name: what `sample_tokens` would have kept.

        candidates: tokens (b, n) each, those of number 0, of number 1, and so on. Returns tokens (b, n) on the CPU.
        """
        settings = dataclasses.replace(settings, candidates=len(candidates))
        ranker = choose_ranker(settings, self.critic, self.classifier, self.tokenizer.decode)
        if ranker is None:
            return candidates[0]
        here = [tokens.to(self.device) for tokens in candidates]
        return best_among(here, ranker, labels.to(self.device), batch_size).cpu()

    def _draw(
        self,
        method: Callable[..., Tensor],
        given: tuple[Tensor, ...],
        labels: Tensor,
        seeds: Tensor,
        settings: SamplingSettings,
        batch_size: int,
        callback: Callback | None,
        reject_with: Callable[[Tensor], Tensor] | None,
    ) -> Tensor:
        """The best candidates that `method` (sample, refine or edit) draws. given: what it starts from, one row per image."""
        if len(labels) == 0 or any(len(values) != len(labels) for values in given):
            counts = " and ".join(str(len(values)) for values in given) or "no"
            raise InputError(f"there are {len(labels)} labels for {counts} images; give one per image, at least one")
        if reject_with is not None and settings.reject_by != "classifier":
            raise InputError(f"reject_with is given but reject_by is {settings.reject_by}; it is for classifier")
        generator = self._guided(settings.guidance)
        scorer = settings.scorer(self.critic, getattr(self.tokenizer, "grid", None))
        classifier = self.classifier if reject_with is None else reject_with
        ranker = choose_ranker(settings, self.critic, classifier, self.tokenizer.decode)

        def on_step(proposal: Proposal, scores: Tensor | None, mask: Tensor) -> None:
            tensors = {"tokens": proposal.tokens, "hidden": mask} | ({} if scores is None else {"scores": scores})
            callback(self, proposal.step.index, proposal.step.time, tensors)  # pyright: ignore[reportOptionalCall]

        def draw(rows: Tensor, seeds: Tensor) -> Tensor:
            start = [values[rows] for values in given]
            listener = None if callback is None else on_step
            return method(generator, scorer, *start, labels[rows], seeds, on_step=listener, **settings.loop_arguments())

        return best_of(draw, ranker, labels, seeds, settings.candidates, batch_size)

    def refine(
        self,
        images_or_tokens: Any,
        class_labels: ClassLabels | None = None,
        *,
        ratio: float = 0.6,
        num_inference_steps: int = 9,
        seed: Seeds = 0,
        output_type: OutputType = "pil",
        batch_size: int = 64,
        reject_with: Callable[[Tensor], Tensor] | None = None,
        **settings: Any,
    ) -> Any:
        """The images with the `ratio` of their tokens that the critic trusts least drawn again (the paper's refinement).

        images_or_tokens: images as `encode` takes them, or integers (b, n). class_labels: one per image, or one for all;
        None asks the pipeline's classifier. The other arguments and what comes back are those of a call.
        """
        chosen = self.refinement_settings(**{"steps": num_inference_steps, **settings})
        tokens, labels = self._given(images_or_tokens, class_labels, batch_size)
        refined = self.refine_tokens(tokens, labels, seed, chosen, batch_size, reject_with=reject_with, ratio=ratio)
        return self.images(refined, output_type, batch_size)

    def edit(
        self,
        images_or_tokens: Any,
        region: Tensor | np.ndarray,
        class_labels: ClassLabels | None = None,
        *,
        num_inference_steps: int | None = None,
        seed: Seeds = 0,
        output_type: OutputType = "pil",
        batch_size: int = 64,
        reject_with: Callable[[Tensor], Tensor] | None = None,
        **settings: Any,
    ) -> Any:
        """The images with a region drawn anew and every token outside it left alone: inpainting, or a class inside a box.

        region: (b, n) or (n,) bool over the tokens in row-major order, True = draw anew. The rest is as in `refine`.
        """
        chosen = self.settings(num_inference_steps, **settings)
        chosen.check_critic_chooses(self.tokenizer.num_tokens, self.critic is not None)
        tokens, labels = self._given(images_or_tokens, class_labels, batch_size)
        region = torch.as_tensor(region)
        start = tokens, region.expand(len(tokens), -1) if region.ndim == 1 else region
        seeds = as_seeds(seed, len(tokens))
        edited = self._draw(edit, start, labels, seeds, chosen, batch_size, None, reject_with)
        return self.images(edited, output_type, batch_size)

    def _given(self, images_or_tokens: Any, class_labels: ClassLabels | None, batch_size: int) -> tuple[Tensor, Tensor]:
        """Tokens (b, n) and labels (b,) of images or tokens."""
        if isinstance(images_or_tokens, Tensor | np.ndarray) and images_or_tokens.ndim == 2:
            tokens = as_integers("tokens", torch.as_tensor(images_or_tokens))
        else:
            tokens = self.encode(images_or_tokens, batch_size)
        if class_labels is None:
            return tokens, self.classify(tokens, batch_size)
        labels = self.labels(class_labels)
        return tokens, labels.expand(len(tokens)) if len(labels) == 1 else labels

    @torch.no_grad()
    def classify(self, tokens: Tensor, batch_size: int = 64) -> Tensor:
        """tokens: (b, n). The classes that the pipeline's classifier finds likeliest: (b,) int64 on the CPU."""
        if self.classifier is None:
            raise InputError("class_labels is None and the model has no classifier to ask; give the images' classes")
        images = self.images(tokens, "pt", batch_size)
        with evaluating(self.classifier):
            logits = [self.classifier(fitting(part, self.classifier)) for part in images.split(batch_size)]
        return torch.cat(logits).argmax(dim=1).cpu()

    @torch.no_grad()
    def encode(self, images: Any, batch_size: int = 64) -> Tensor:
        """Images to tokens (b, n) on the CPU.

        images: a picture in mode L or RGB, a list of them, or an array uint8 (b, h, w, c), whose middle square is resized; or
        floats in [0, 1] of the tokenizer's size, an array (b, h, w, c) or a tensor (b, c, h, w).
        """
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; it must be at least 1")
        sizes = (getattr(self.tokenizer, name, None) for name in ("image_size", "channels"))
        parts = to_images(images, *sizes).split(batch_size)
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
        write_folder(Path(folder), self.parts, self.class_names, self.defaults)

    @classmethod
    def from_pretrained(cls, folder_or_hub_id: str | Path, **hub_arguments: Any) -> Self:
        """Load a folder written by `save_pretrained`, or the same from the Hub, in float32 and eval mode."""
        parts, class_names, defaults = read_folder(folder_or_hub_id, **hub_arguments)
        return cls(**parts, class_names=class_names, defaults=defaults)
