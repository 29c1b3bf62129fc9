"""What a job does: the pipeline's calls with a watcher at each step, what comes of them, and the same as a command line."""

import io
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from tokencritic.contracts import Proposal
from tokencritic.image_forms import to_images, to_pil
from tokencritic.pictures.steps import MOST_IMAGES
from tokencritic.pipeline import Given, TokenCriticPipeline
from tokencritic.sampling.settings import REFINEMENT_RATIO, SamplingSettings
from tokencritic.sampling.trace import Trace
from tokencritic.tokenizers import regions

# Called at each step with the steps done, all of them, and the tokens (b, n) of the images as they are now, or None where
# these may not be shown; what it raises ends the job.
Watcher = Callable[[float, int, Tensor | None], None]


@dataclass(frozen=True)
class ImageSet:
    """Images made with one setting.

    labels: the class of each image. trace: how the first of them formed, None where that is not known.
    nfe: network evaluations per image. scores: (b, n), the critic's, of the finished images; None without a critic.
    """

    settings: SamplingSettings
    labels: tuple[int, ...]
    images: tuple[Image.Image, ...]
    tokens: Tensor
    scores: Tensor | None
    trace: Trace | None = None
    nfe: int = 0
    seconds: float = 0.0

    @property
    def mean_score(self) -> float | None:
        """The mean of the critic's scores over all images, 0 to 1."""
        return None if self.scores is None else float(self.scores.double().mean())


@dataclass(frozen=True)
class Result:
    """What a job made. given: the picture that was worked on. before: its reconstruction by the tokenizer."""

    sets: tuple[ImageSet, ...] = ()
    given: Image.Image | None = None
    before: ImageSet | None = None
    region: Tensor | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Work:
    """Something to do with a pipeline. kind: the tab that shows it. seed: of its first image."""

    kind: str
    seed: int

    def carry_out(self, pipe: TokenCriticPipeline, watch: Watcher) -> Result:
        raise NotImplementedError

    def command(self, pipe: TokenCriticPipeline, model: str, made: ImageSet) -> str:
        """The command line that makes the same images, or "" where there is none."""
        return ""


@dataclass(frozen=True)
class Generate(Work):
    """New images, once for each of the settings. labels: (b,). classes: those asked for, None for all in turn."""

    labels: Tensor
    classes: tuple[int, ...] | None
    variants: tuple[SamplingSettings, ...]

    def carry_out(self, pipe: TokenCriticPipeline, watch: Watcher) -> Result:
        steps = _Steps(watch, self.variants, len(self.labels))
        return Result(tuple(_make(pipe, self.labels, self.seed, settings, steps) for settings in self.variants))

    def command(self, pipe: TokenCriticPipeline, model: str, made: ImageSet) -> str:
        words = ["sample", model, "--num", str(len(self.labels)), "--seed", str(self.seed)]
        if self.classes is not None:
            words += ["--classes", *(class_word(label, pipe.class_names) for label in self.classes)]
        return _command(words, pipe, made.settings)


@dataclass(frozen=True)
class Change(Work):
    """A picture to refine, or to edit where there is a region.

    label: its class, None to ask the classifier. settings: None only asks what the critic thinks of the picture.
    ratio: the share of tokens that refinement resamples. region: (n,) bool, the tokens that an edit resamples.
    move: how many tokens the picture is moved right and down before an edit.
    """

    picture: Image.Image
    label: int | None
    settings: SamplingSettings | None = None
    ratio: float = REFINEMENT_RATIO
    region: Tensor | None = None
    move: tuple[int, int] = (0, 0)

    def carry_out(self, pipe: TokenCriticPipeline, watch: Watcher) -> Result:
        watch(0, 1, None)
        picture, region, tokens = self.picture, self.region, pipe.encode(self.picture)
        # The classifier is asked about the picture as it was given, whole.
        labels = pipe.classify(tokens) if self.label is None else torch.tensor([self.label])
        if region is not None:
            picture, bare = moved_picture(pipe, picture, self.move)
            tokens, region = pipe.encode(picture), region | bare
        before = _image_set(pipe, self.settings or pipe.defaults, labels, tokens)
        if self.settings is None:
            return Result((), self.picture, before)
        given = Given(tokens, self.ratio, region)
        after = _make(pipe, labels, self.seed, self.settings, _Steps(watch, [self.settings]), given)
        return Result((after,), self.picture, before, region)

    def command(self, pipe: TokenCriticPipeline, model: str, made: ImageSet) -> str:
        if self.region is not None:
            return ""
        words = ["refine", model, "picture.png", "--classes", class_word(made.labels[0], pipe.class_names)]
        return _command([*words, "--ratio", repr(self.ratio), "--seed", str(self.seed)], pipe, made.settings)


class _Steps:
    """Given to a pipeline as `on_step=`: the steps are told to a watcher, and those of the first images recorded.

    variants: the settings of the whole job, each of which is begun with `begin`. num: how many images each of them makes.
    A step of a batch counts by the batch's share of all images and candidates.
    """

    def __init__(self, watch: Watcher, variants: Sequence[SamplingSettings], num: int = 1) -> None:
        self.watch, self.num, self.alone = watch, num, len(variants) == 1
        self.total, self.done = sum(settings.steps for settings in variants), 0.0

    def begin(self, settings: SamplingSettings) -> None:
        self.trace = Trace(MOST_IMAGES) if settings.candidates == 1 else None  # of several, the chosen one is not known
        self._rows, self._index = self.num * settings.candidates, 0

    def __call__(self, proposal: Proposal, scores: Tensor | None, mask: Tensor) -> None:
        if self.trace is not None:
            self.trace(proposal, scores, mask)
        index = proposal.step.index
        since = self._index if index > self._index else 0  # a step that is not later belongs to the next batch
        self.done, self._index = self.done + (index - since) * len(proposal.tokens) / self._rows, index
        # Images are not decoded on the way where times are compared.
        shown = self.alone and self.trace is not None
        self.watch(round(self.done, 6), self.total, proposal.tokens if shown else None)


def _make(
    pipe: TokenCriticPipeline,
    labels: Tensor,
    seed: int,
    settings: SamplingSettings,
    steps: _Steps,
    given: Given | None = None,
) -> ImageSet:
    """New images, or given ones refined or edited, with their cost."""
    steps.begin(settings)
    start = time.perf_counter()
    tokens = pipe.sample_tokens(labels, seed, settings, given, on_step=steps)
    seconds = time.perf_counter() - start
    refine_ratio = given.ratio if given is not None and given.region is None else None
    trace = steps.trace if pipe.tokenizer.grid else None
    return _image_set(pipe, settings, labels, tokens, trace, pipe.nfe(settings, refine_ratio), seconds)


def _image_set(
    pipe: TokenCriticPipeline, settings: SamplingSettings, labels: Tensor, tokens: Tensor, *cost: Any
) -> ImageSet:
    """Tokens (b, n) with their images, and the critic's scores of them. cost: the fields of `ImageSet` after the scores."""
    scores = None if pipe.critic is None else pipe.critic_scores(tokens, labels)
    return ImageSet(settings, tuple(labels.tolist()), tuple(pipe.images(tokens)), tokens, scores, *cost)


def png(image: Image.Image) -> bytes:
    """The bytes of a PNG file."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def fit(pipe: TokenCriticPipeline, picture: Image.Image) -> Image.Image:
    """The middle square of a picture at the model's size, in its colours: all that the model sees of it."""
    pixels = to_images(picture, pipe.tokenizer.image_size, pipe.tokenizer.channels)
    return to_pil(pixels[0].permute(1, 2, 0).numpy())


def moved_picture(pipe: TokenCriticPipeline, picture: Image.Image, move: tuple[int, int]) -> tuple[Image.Image, Tensor]:
    """The picture moved right and down by whole tokens, and which tokens (n,) then show what was not there."""
    tokenizer, side = pipe.tokenizer, regions.token_side(pipe.tokenizer)
    pixels = to_images(picture, tokenizer.image_size, tokenizer.channels)
    moved, bare = regions.move(pixels, move[0] * side, move[1] * side)
    return to_pil(moved[0].permute(1, 2, 0).numpy()), regions.tokens_touched(bare, tokenizer)


def class_word(label: int, class_names: Sequence[str]) -> str:
    """A class by its name, or by its number where the name could be taken for something else."""
    name = class_names[label] if class_names else ""
    same = sum(other.lower() == name.lower() for other in class_names)
    return str(label) if not name or name.isdecimal() or name.startswith("-") or same > 1 else name


def _command(words: list[str], pipe: TokenCriticPipeline, settings: SamplingSettings) -> str:
    """A command line with all settings in effect, so that it does not depend on the defaults of the model's folder."""
    for name, value in settings.in_effect(pipe.critic is not None).items():
        if value is not None:
            values = value if isinstance(value, list) else [value]
            words = [*words, f"--{name}", *(str(part) for part in values)]
    return shlex.join(["token-critic", *words])
