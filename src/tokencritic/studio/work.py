"""What a run does: the pipeline's calls with a watcher at each step, what comes of them, and the same as a command line."""

import io
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from PIL import Image
from torch import Tensor

from tokencritic.image_forms import to_images
from tokencritic.pictures.grids import png_note
from tokencritic.pipeline import Given, TokenCriticPipeline
from tokencritic.sampling.settings import REFINEMENT_RATIO, SamplingSettings
from tokencritic.sampling.trace import Trace
from tokencritic.scoring import Proposal
from tokencritic.tokenizers import regions

# Called at each step with the steps done, all of them, and the tokens (b, n) of the images as they are now, or None where
# these may not be shown; it raises `Stopped` to end the run.
Watcher = Callable[[float, int, Tensor | None], None]
_BYTES_OF_A_TOKEN = 8 + 1 + 4 + 1  # in a step of a trace: code, sampled, score, hidden


class Stopped(Exception):
    """The run ends before it is finished; the message says why."""


@dataclass(frozen=True)
class ImageSet:
    """Images made with one setting.

    labels: the class of each image, 0 for a model without classes. trace: how they formed, None where that is not known.
    nfe: network evaluations per image; cost: their FLOPs in generator evaluations. scores: (b, n), the critic's, of the
    finished images; None without a critic. recognised: whether the classifier finds the class of each; None without a
    classifier or without classes.
    """

    settings: SamplingSettings
    labels: tuple[int, ...]
    images: tuple[Image.Image, ...]
    tokens: Tensor
    scores: Tensor | None
    recognised: tuple[bool, ...] | None
    trace: Trace | None = None
    nfe: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    @classmethod
    def of(
        cls, pipe: TokenCriticPipeline, settings: SamplingSettings, labels: Tensor, tokens: Tensor, **cost: Any
    ) -> Self:
        """Tokens (b, n) with their images, and what critic and classifier say of them."""
        known = known_labels(pipe, labels)
        scores = None if pipe.critic is None else pipe.critic_scores(tokens, known)
        asked = pipe.classifier is not None and known is not None
        found = tuple((pipe.classify(tokens) == labels).tolist()) if asked else None
        return cls(settings, tuple(labels.tolist()), tuple(pipe.images(tokens)), tokens, scores, found, **cost)

    @property
    def mean_score(self) -> float | None:
        """The mean of the critic's scores over all images, 0 to 1."""
        return None if self.scores is None else float(self.scores.double().mean())

    @property
    def num_bytes(self) -> int:
        """About how much memory it takes."""
        pixels = sum(image.width * image.height * len(image.getbands()) for image in self.images)
        steps = 0 if self.trace is None else sum(step.proposal.numel() for step in self.trace.steps)
        return pixels + 16 * self.tokens.numel() + _BYTES_OF_A_TOKEN * steps


@dataclass(frozen=True)
class Result:
    """What a run made. before: the reconstruction of the picture by the tokenizer. region: (n,) bool, the tokens resampled.

    stopped: why the images are not finished, "" if they are.
    """

    sets: tuple[ImageSet, ...] = ()
    before: ImageSet | None = None
    region: Tensor | None = None
    stopped: str = ""

    @property
    def num_bytes(self) -> int:
        return sum(made.num_bytes for made in (*self.sets, self.before) if made is not None)


@dataclass(frozen=True)
class Work:
    """Images to make with a pipeline: new ones, or those of a picture to refine, or to edit where there is a region.

    kind: the tab that shows it. seed: of its first image. labels: (b,), None to ask the classifier about the picture.
    variants: the settings, each for all images; with none the critic is asked about the picture, and that is all.
    classes: those asked for in turn, None for all. ratio: the share of tokens that refinement resamples. region: (n,) bool, the
    tokens that an edit resamples. move: how many places the picture is moved right and down before an edit.
    trace_bytes: bounds the memory of the recorded steps.
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
    trace_bytes: int = 2**26

    def carry_out(self, pipe: TokenCriticPipeline, watch: Watcher) -> Result:
        """Raises `Stopped` if the watcher does so before there is any image."""
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
        maker, sets = _Maker(pipe, watch, labels, self), []
        for settings in self.variants:
            sets.append(maker.make(settings, given))
            if maker.stopped:
                break
        return Result(tuple(sets), before, region, maker.stopped)

    def facts(self, pipe: TokenCriticPipeline, model: str, made: ImageSet, index: int) -> dict[str, Any]:
        """What decides an image, as its PNG file tells it."""
        in_effect = made.settings.in_effect(pipe.critic is not None)
        settings = {name: value for name, value in in_effect.items() if value is not None}
        facts: dict[str, Any] = {"command": "sample", "model": model, "seed": self.seed + index}
        if pipe.generator.num_classes:
            facts["class"] = made.labels[index]
        if self.picture is not None:
            facts["command"] = "refine" if self.region is None else "edit"
        return facts | {"settings": settings}

    def command(self, pipe: TokenCriticPipeline, model: str, made: ImageSet) -> str:
        """The command line that makes the same images with any defaults of the model's folder."""
        words, classes = ["sample", model, "--num", str(len(made.labels))], self.classes
        if self.picture is not None:
            words, classes = ["refine", model, "picture.png", "--ratio", repr(self.ratio)], made.labels
        if self.region is not None:
            words = ["edit", model, "picture.png", "--num", "1", *self._region_flags(pipe)]
        words += ["--seed", str(self.seed)]
        if classes is not None and pipe.generator.num_classes:
            words += ["--classes", *map(str, classes)]
        for name, value in made.settings.in_effect(pipe.critic is not None).items():
            if value is not None:
                words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
        return shlex.join(["token-critic", *words])

    def _region_flags(self, pipe: TokenCriticPipeline) -> list[str]:
        """The region and the move as `token-critic edit` takes them, in pixels: one box for each row of adjacent places."""
        assert self.region is not None
        tokenizer, side = pipe.tokenizer, regions.place_side(pipe.tokenizer)
        places = self.region.view(*regions.place_grid(tokenizer), tokenizer.splits).any(2)
        words = [f"--shift={self.move[0] * side},{self.move[1] * side}"] if any(self.move) else []
        for row, cells in enumerate(places.tolist()):
            starts = [x for x, on in enumerate(cells) if on and not (x and cells[x - 1])]
            ends = [x + 1 for x, on in enumerate(cells) if on and not (x + 1 < len(cells) and cells[x + 1])]
            for start, end in zip(starts, ends, strict=True):
                edges = (start * side, row * side, end * side, (row + 1) * side)
                box = (min(max(edge - tokenizer.margin, 0), tokenizer.image_size) for edge in edges)
                words += ["--region", ",".join(map(str, box))]
        return words


class _Maker:
    """Makes images of the labels (b,) for one run: tells a watcher of each step, records the steps, and keeps what there is
    when it is stopped.
    """

    def __init__(self, pipe: TokenCriticPipeline, watch: Watcher, labels: Tensor, work: Work) -> None:
        self.pipe, self.watch, self.labels, self.work = pipe, watch, labels, work
        self.total, self.done = sum(settings.steps for settings in work.variants), 0.0
        self.stopped = ""

    def make(self, settings: SamplingSettings, given: Given | None = None) -> ImageSet:
        """New images, or given ones refined or edited, with their cost."""
        per_image = settings.steps * self.pipe.tokenizer.num_tokens * _BYTES_OF_A_TOKEN
        most = max(1, self.work.trace_bytes // (per_image * len(self.work.variants)))
        self.trace = Trace(most) if settings.candidates == 1 else None  # of several, the chosen one is not known
        self._batches: list[Tensor] = []  # the tokens of each batch as they are now
        self._rows, self._index = len(self.labels) * settings.candidates, 0
        start, labels, first = time.perf_counter(), self.labels, self.work.seed
        known, seeds = known_labels(self.pipe, labels), range(first, first + len(labels))
        try:
            tokens = self.pipe.sample_tokens(known, seeds, settings, given, on_step=self._watch_step)
        except Stopped as stop:
            if not self._batches or settings.candidates > 1:
                raise
            self.stopped, self.trace = str(stop), self.trace if len(self._batches) == 1 else None
            tokens = torch.cat(self._batches)
            labels = labels[: len(tokens)]
        seconds = time.perf_counter() - start
        ratio = given.ratio if given is not None and given.region is None else None
        cost = {"nfe": self.pipe.nfe(settings, ratio), "cost": self.pipe.cost(settings, ratio), "seconds": seconds}
        return ImageSet.of(self.pipe, settings, labels, tokens, trace=self.trace, **cost)

    def _watch_step(self, proposal: Proposal, scores: Tensor | None, mask: Tensor) -> None:
        if self.trace is not None:
            self.trace(proposal, scores, mask)
        index, tokens = proposal.step.index, proposal.tokens.cpu()
        same_batch = bool(self._batches) and index > self._index  # a step that is not later belongs to the next batch
        since = self._index if same_batch else 0
        self._batches[len(self._batches) - same_batch :] = [tokens]
        # A step of a batch counts by the batch's share of all images and candidates.
        self.done, self._index = self.done + (index - since) * len(tokens) / self._rows, index
        # Images are not decoded on the way where times are compared.
        shown = len(self.work.variants) == 1 and self.trace is not None
        self.watch(round(self.done, 6), self.total, torch.cat(self._batches) if shown else None)


def known_labels(pipe: TokenCriticPipeline, labels: Tensor) -> Tensor | None:
    """The labels as the pipeline takes them: None for a model without classes, where they are all 0."""
    return labels if pipe.generator.num_classes else None


def png(image: Image.Image, facts: dict[str, Any] | None = None) -> bytes:
    """The bytes of a PNG file. facts: what to write into it, as `token-critic sample` does."""
    file = io.BytesIO()
    image.save(file, "PNG", pnginfo=png_note(facts))
    return file.getvalue()
