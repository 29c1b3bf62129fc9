"""What a job does: the pipeline's calls with a watcher at each step, what comes of them, and the same as a command line."""

import io
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from PIL import Image
from torch import Tensor

from tokencritic.image_forms import to_images
from tokencritic.pictures.steps import MOST_IMAGES
from tokencritic.pipeline import Given, TokenCriticPipeline
from tokencritic.sampling.settings import REFINEMENT_RATIO, SamplingSettings
from tokencritic.sampling.trace import Trace
from tokencritic.scoring import Proposal
from tokencritic.tokenizers import regions

# Called at each step with the steps done, all of them, and the tokens (b, n) of the images as they are now, or None where
# these may not be shown; what it raises ends the job.
Watcher = Callable[[float, int, Tensor | None], None]


@dataclass(frozen=True)
class ImageSet:
    """Images made with one setting.

    labels: the class of each image, 0 for a model without classes. trace: how the first of them formed, None where that is
    not known.
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

    @classmethod
    def of(
        cls, pipe: TokenCriticPipeline, settings: SamplingSettings, labels: Tensor, tokens: Tensor, **cost: Any
    ) -> Self:
        """Tokens (b, n) with their images, and the critic's scores of them."""
        scores = None if pipe.critic is None else pipe.critic_scores(tokens, known_labels(pipe, labels))
        return cls(settings, tuple(labels.tolist()), tuple(pipe.images(tokens)), tokens, scores, **cost)

    @property
    def mean_score(self) -> float | None:
        """The mean of the critic's scores over all images, 0 to 1."""
        return None if self.scores is None else float(self.scores.double().mean())


@dataclass(frozen=True)
class Result:
    """What a job made. before: the reconstruction of the picture by the tokenizer. region: (n,) bool, the tokens resampled."""

    sets: tuple[ImageSet, ...] = ()
    before: ImageSet | None = None
    region: Tensor | None = None


@dataclass(frozen=True)
class Work:
    """Images to make with a pipeline: new ones, or those of a picture to refine, or to edit where there is a region.

    kind: the tab that shows it. seed: of its first image. labels: (b,), None to ask the classifier about the picture.
    variants: the settings, each for all images; with none the critic is asked about the picture, and that is all.
    classes: those asked for in turn, None for all. ratio: the share of tokens that refinement resamples. region: (n,) bool, the
    tokens that an edit resamples. move: how many tokens the picture is moved right and down before an edit.
    """

    kind: str
    seed: int
    labels: Tensor | None
    variants: tuple[SamplingSettings, ...] = ()
    classes: tuple[int, ...] | None = None
    picture: Image.Image | None = None
    ratio: float = REFINEMENT_RATIO
    region: Tensor | None = None
    move: tuple[int, int] = (0, 0)

    def carry_out(self, pipe: TokenCriticPipeline, watch: Watcher) -> Result:
        labels, given, before, region = self.labels, None, None, self.region
        if self.picture is not None:
            watch(0, 1, None)
            tokenizer, tokens = pipe.tokenizer, pipe.encode(self.picture)
            # The classifier is asked about the picture as it was given, whole.
            labels = pipe.classify(tokens) if labels is None else labels
            if region is not None:
                pixels = to_images(self.picture, tokenizer.image_size, tokenizer.channels)
                right, down = (regions.place_side(tokenizer) * far for far in self.move)
                moved, bare = regions.move(pixels, right, down)
                tokens, region = pipe.encode(moved), region | regions.tokens_touched(bare, tokenizer)
            given, before = Given(tokens, self.ratio, region), ImageSet.of(pipe, pipe.defaults, labels, tokens)
        assert labels is not None
        maker = _Maker(pipe, watch, labels, *self.variants)
        return Result(tuple(maker.make(self.seed, settings, given) for settings in self.variants), before, region)

    def command(self, pipe: TokenCriticPipeline, model: str, made: ImageSet) -> str:
        """The command line that makes the same images with any defaults of the model's folder, or "" where there is none."""
        if self.region is not None:
            return ""
        words, classes = ["sample", model, "--num", str(len(made.labels))], self.classes
        if self.picture is not None:
            words, classes = ["refine", model, "picture.png", "--ratio", repr(self.ratio)], made.labels
        words += ["--seed", str(self.seed)]
        if classes is not None and pipe.generator.num_classes:
            words += ["--classes", *map(str, classes)]
        for name, value in made.settings.in_effect(pipe.critic is not None).items():
            if value is not None:
                words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
        return shlex.join(["token-critic", *words])


class _Maker:
    """Makes images of the labels (b,) for one job: tells a watcher of each step, and records those of the first images.

    variants: all settings that `make` will be called with.
    """

    def __init__(self, pipe: TokenCriticPipeline, watch: Watcher, labels: Tensor, *variants: SamplingSettings) -> None:
        self.pipe, self.watch, self.labels, self.alone = pipe, watch, labels, len(variants) == 1
        self.total, self.done = sum(settings.steps for settings in variants), 0.0

    def make(self, seed: int, settings: SamplingSettings, given: Given | None = None) -> ImageSet:
        """New images, or given ones refined or edited, with their cost."""
        self.trace = Trace(MOST_IMAGES) if settings.candidates == 1 else None  # of several, the chosen one is not known
        self._rows, self._index = len(self.labels) * settings.candidates, 0
        start = time.perf_counter()
        labels, seeds = known_labels(self.pipe, self.labels), range(seed, seed + len(self.labels))
        tokens = self.pipe.sample_tokens(labels, seeds, settings, given, on_step=self._watch_step)
        seconds = time.perf_counter() - start
        nfe = self.pipe.nfe(settings, given.ratio if given is not None and given.region is None else None)
        return ImageSet.of(self.pipe, settings, self.labels, tokens, trace=self.trace, nfe=nfe, seconds=seconds)

    def _watch_step(self, proposal: Proposal, scores: Tensor | None, mask: Tensor) -> None:
        if self.trace is not None:
            self.trace(proposal, scores, mask)
        index = proposal.step.index
        since = self._index if index > self._index else 0  # a step that is not later belongs to the next batch
        # A step of a batch counts by the batch's share of all images and candidates.
        self.done, self._index = self.done + (index - since) * len(proposal.tokens) / self._rows, index
        # Images are not decoded on the way where times are compared.
        shown = self.alone and self.trace is not None
        self.watch(round(self.done, 6), self.total, proposal.tokens if shown else None)


def known_labels(pipe: TokenCriticPipeline, labels: Tensor) -> Tensor | None:
    """The labels as the pipeline takes them: None for a model without classes, where they are all 0."""
    return labels if pipe.generator.num_classes else None


def png(image: Image.Image) -> bytes:
    """The bytes of a PNG file."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
