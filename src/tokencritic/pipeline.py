"""Tokenizer, generator, critic and classifier as one thing: a folder on disk, a call that makes images.

folder/pipeline.json          which parts there are, class names, default sampling settings
folder/tokenizer/  generator/  critic/  classifier/      config.json and model.safetensors each
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from tokencritic.errors import InputError
from tokencritic.files import write_atomically
from tokencritic.models.classifier import Classifier
from tokencritic.models.critic import Critic
from tokencritic.models.generator import Generator
from tokencritic.models.saved import SavedModel, find_file, read_json
from tokencritic.sampling.inputs import device_of
from tokencritic.sampling.loop import sample
from tokencritic.sampling.noise import as_seeds
from tokencritic.sampling.propose import Proposal
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.tokenizers import loading
from tokencritic.tokenizers.tokenizer import Tokenizer

PIPELINE = "pipeline.json"
FORMAT = 1

# part -> kind as the JSON names it -> class
KINDS: Mapping[str, Mapping[str, type[SavedModel]]] = {
    "tokenizer": loading.KINDS,
    "generator": {"transformer": Generator},
    "critic": {"transformer": Critic},
    "classifier": {"convolutional": Classifier},
}

OutputType = Literal["pil", "pt", "np"]


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
        class_labels: int | str | Sequence[int | str],
        num_images_per_label: int = 1,
        *,
        num_inference_steps: int | None = None,
        seed: int | Sequence[int] = 0,
        output_type: OutputType = "pil",
        callback_on_step_end: Callable[["TokenCriticPipeline", int, float, dict[str, Tensor]], Any] | None = None,
        batch_size: int = 64,
        **settings: Any,
    ) -> Any:
        """Images of the classes, `num_images_per_label` of each in turn.

        class_labels: numbers or names. seed: image i has seed + i, or one seed per image is given; an image depends on its
        own seed and label alone. num_inference_steps and settings (`sampler`, `temperature`, `selection_noise`, ...): see
        `SamplingSettings`; what is not given is the model's default.
        callback_on_step_end: called as (pipeline, step, time, tensors) with `tokens`, `hidden` and, but for the last
        step, `scores`.
        Returns a list of PIL images, or a float tensor (b, c, h, w) for "pt", or an array (b, h, w, c) for "np", in [0, 1].
        """
        tokens = self.sample_tokens(
            self.labels(class_labels, num_images_per_label),
            seed,
            self.settings(num_inference_steps, **settings),
            batch_size,
            callback_on_step_end,
        )
        return self.images(tokens, output_type, batch_size)

    def settings(self, num_inference_steps: int | None = None, **changes: Any) -> SamplingSettings:
        """The model's defaults with some changed."""
        known = {field.name for field in dataclasses.fields(SamplingSettings)}
        if not changes.keys() <= known:
            raise InputError(
                f"unknown setting {sorted(changes.keys() - known)[0]!r}; choose from {', '.join(sorted(known))}"
            )
        if num_inference_steps is not None:
            changes["steps"] = num_inference_steps
        return dataclasses.replace(self.defaults, **changes)

    def labels(self, class_labels: int | str | Sequence[int | str], num_images_per_label: int = 1) -> Tensor:
        """Numbers or names -> (b,) int64, each repeated."""
        if num_images_per_label < 1:
            raise InputError(f"num_images_per_label is {num_images_per_label}; it must be at least 1")
        wanted = [class_labels] if isinstance(class_labels, int | Integral | str) else list(class_labels)
        if not wanted:
            raise InputError("class_labels is empty; give at least one class")
        numbers = [self._label(label) for label in wanted]
        return torch.tensor(numbers, dtype=torch.int64).repeat_interleave(num_images_per_label)

    def _label(self, label: int | str) -> int:
        classes = getattr(self.generator, "num_classes", len(self.class_names))
        if isinstance(label, str) and not label.isdecimal():
            matches = [i for i, name in enumerate(self.class_names) if name.lower() == label.lower()]
            if not matches:
                some = ", ".join(self.class_names[:10]) or "none: give numbers"
                raise InputError(f"class_labels holds {label!r}; the model's class names are {some}")
            return matches[0]
        if not isinstance(label, Integral | str) or not 0 <= int(label) < classes:
            raise InputError(f"class_labels holds {label}; expected 0 to {classes - 1}, or a class name")
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

    @torch.no_grad()
    def sample_tokens(
        self,
        labels: Tensor,
        seed: int | Sequence[int] = 0,
        settings: SamplingSettings | None = None,
        batch_size: int = 64,
        callback_on_step_end: Callable[..., Any] | None = None,
    ) -> Tensor:
        """labels: (b,). Returns tokens (b, n) on the CPU."""
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; it must be at least 1")
        settings = settings or self.defaults
        generator = self._guided(settings.guidance)
        scorer = settings.scorer(self.critic, getattr(self.tokenizer, "grid", None))

        def on_step(proposal: Proposal, scores: Tensor | None, mask: Tensor) -> None:
            tensors = {"tokens": proposal.tokens, "hidden": mask} | ({} if scores is None else {"scores": scores})
            callback_on_step_end(self, proposal.step.index, proposal.step.time, tensors)  # pyright: ignore[reportOptionalCall]

        seeds = as_seeds(seed, len(labels))
        return torch.cat(
            [
                sample(
                    generator,
                    scorer,
                    labels[start : start + batch_size],
                    seeds[start : start + batch_size],
                    on_step=None if callback_on_step_end is None else on_step,
                    **settings.loop_arguments(),
                ).cpu()
                for start in range(0, len(labels), batch_size)
            ]
        )

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
        folder = Path(folder)
        kinds = {}
        for name, part in self.parts.items():
            kinds[name] = next((kind for kind, cls in KINDS[name].items() if type(part) is cls), None)
            if kinds[name] is None:
                raise InputError(
                    f"the {name} is a {type(part).__name__}, which cannot be saved as a part of a pipeline"
                )
        (folder / PIPELINE).unlink(
            missing_ok=True
        )  # cut off in the middle, old and new parts must not pass for one model
        for name, part in self.parts.items():
            part.save_pretrained(folder / name)
        facts = {
            "format": FORMAT,
            "parts": kinds,
            "class_names": self.class_names,
            "sampling": dataclasses.asdict(self.defaults),
        }
        text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
        write_atomically(folder / PIPELINE, lambda path: path.write_text(text, encoding="utf-8"))

    @classmethod
    def from_pretrained(cls, folder_or_hub_id: str | Path, **hub_arguments: Any) -> Self:
        """Load a folder written by `save_pretrained`, or the same from the Hub, in float32 and eval mode."""
        file = find_file(folder_or_hub_id, PIPELINE, **hub_arguments)
        facts = read_json(file)
        if facts.get("format") != FORMAT:
            raise InputError(f"{file} has format {facts.get('format')!r}; this version reads format {FORMAT}")
        kinds, names = facts.get("parts"), facts.get("class_names", [])
        if not isinstance(kinds, dict) or not all(isinstance(kind, str) for kind in kinds.values()):
            raise InputError(f"{file} has parts {kinds!r}; expected the kind of each part by its name")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(f"{file} has class_names {names!r}; expected a list of names")
        parts = {}
        for name, kind in kinds.items():
            if kind not in KINDS.get(name, {}):
                raise InputError(
                    f"{file} has a {name} of kind {kind!r}; known are {KINDS.get(name, {}) and list(KINDS[name])}"
                )
            parts[name] = KINDS[name][kind].from_pretrained(folder_or_hub_id, subfolder=name, **hub_arguments)
        if missing := {"tokenizer", "generator"} - parts.keys():
            raise InputError(f"{file} names no {' and no '.join(sorted(missing))}")
        try:
            defaults = SamplingSettings(**facts.get("sampling", {}))
        except (TypeError, ValueError) as error:
            raise InputError(f"{file}: sampling: {error}") from error
        return cls(**parts, class_names=names, defaults=defaults)


def to_pil(image: np.ndarray) -> Image.Image:
    """(h, w, c) in [0, 1] -> a picture in mode L for one channel, RGB for three."""
    pixels = (image * 255).round().astype(np.uint8)
    return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
