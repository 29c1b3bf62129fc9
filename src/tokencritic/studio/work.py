"""What a run does: the pipeline's calls with a watcher at each step, and what comes of them."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from PIL import Image
from torch import Tensor

from tokencritic.image_forms import to_images, to_pil
from tokencritic.pictures import MOST_IMAGES
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.randomness import as_seeds
from tokencritic.sampling.edit import edit
from tokencritic.sampling.propose import Proposal, evaluating
from tokencritic.sampling.scorers import CriticScorer
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.sampling.trace import Trace
from tokencritic.tokenizers import regions

BATCH_SIZE = 64  # as on the command line, so that both compute the same to the last bit


class Watcher(Protocol):
    """Told of each step; what it raises ends the run."""

    def __call__(self, done: int, total: int, tokens: Tensor | None, /) -> None:
        """done, total: steps. tokens: (b, n), the images as they are now, if they may be shown."""
        ...


@dataclass(frozen=True)
class Part:
    """Images made in one way.

    labels: the class of each image. trace: how the first of them came about, None where that is not known.
    passes: of the networks, for one image. scores: (b, n), the critic's, of the finished images; None without a critic.
    """

    settings: SamplingSettings
    labels: tuple[int, ...]
    images: tuple[Image.Image, ...]
    tokens: Tensor
    trace: Trace | None
    passes: int
    seconds: float
    scores: Tensor | None

    @property
    def mean_score(self) -> float | None:
        """What the critic thinks of all the images together, 0 to 1."""
        return None if self.scores is None else float(self.scores.double().mean())


@dataclass(frozen=True)
class Result:
    """before: the picture that was worked on, as the tokenizer gives it back, with its critic's scores."""

    parts: tuple[Part, ...] = ()
    before: Part | None = None
    region: Tensor | None = field(default=None, compare=False)


class Work(Protocol):
    """Something to do with a pipeline."""

    @property
    def kind(self) -> str: ...

    def carry_out(self, pipe: TokenCriticPipeline, watch: Watcher) -> Result: ...


@dataclass(frozen=True)
class Generate:
    """New images, once for each of the settings. labels: (b,). classes: those asked for, None for all in turn."""

    labels: Tensor
    classes: tuple[int, ...] | None
    seed: int
    variants: tuple[SamplingSettings, ...]

    @property
    def kind(self) -> str:
        return "generate" if len(self.variants) == 1 else "compare"

    def carry_out(self, pipe: TokenCriticPipeline, watch: Watcher) -> Result:
        totals = [self._draws(settings) * last_step(settings) for settings in self.variants]
        parts = []
        for number, settings in enumerate(self.variants):
            # Images are not decoded on the way where times are compared.
            steps = _Steps(watch, settings, sum(totals[:number]), sum(totals), shown=len(self.variants) == 1)
            parts.append(self._part(pipe, settings, steps))
        return Result(tuple(parts))

    def _part(self, pipe: TokenCriticPipeline, settings: SamplingSettings, steps: "_Steps") -> Part:
        start, tokens, images = time.perf_counter(), [], []
        count = max(1, BATCH_SIZE // settings.candidates)
        seeds = as_seeds(self.seed, len(self.labels))
        for labels, some in zip(self.labels.split(count), seeds.split(count), strict=True):
            tokens.append(pipe.sample_tokens(labels, some, settings, BATCH_SIZE, steps.on_step_end))
            images += pipe.images(tokens[-1], batch_size=BATCH_SIZE)
        seconds = time.perf_counter() - start
        return finished(pipe, settings, self.labels, torch.cat(tokens), images, steps.trace, seconds)

    def _draws(self, settings: SamplingSettings) -> int:
        """How often the loop runs from its first step."""
        count = max(1, BATCH_SIZE // settings.candidates)
        sizes = [len(part) for part in self.labels.split(count)]
        return sum(math.ceil(size * settings.candidates / BATCH_SIZE) for size in sizes)


@dataclass(frozen=True)
class Look:
    """What the critic thinks of a picture. label: its class, None to ask the classifier."""

    picture: Image.Image
    label: int | None
    kind = "look"

    def carry_out(self, pipe: TokenCriticPipeline, watch: Watcher) -> Result:
        watch(0, 1, None)
        return Result(before=_given(pipe, self.picture, self.label))


@dataclass(frozen=True)
class Refine:
    """A picture with the `ratio` of its tokens that the critic distrusts drawn again."""

    picture: Image.Image
    label: int | None
    ratio: float
    seed: int
    settings: SamplingSettings
    kind = "refine"

    def carry_out(self, pipe: TokenCriticPipeline, watch: Watcher) -> Result:
        watch(0, 1, None)
        before = _given(pipe, self.picture, self.label)
        labels, start = torch.tensor(before.labels), time.perf_counter()
        steps = _Steps(
            watch, self.settings, 0, math.ceil(self.settings.candidates / BATCH_SIZE) * last_step(self.settings)
        )
        tokens = pipe.refine_tokens(
            before.tokens, labels, self.seed, self.settings, BATCH_SIZE, steps.on_step_end, ratio=self.ratio
        )
        images = pipe.images(tokens, batch_size=BATCH_SIZE)
        seconds = time.perf_counter() - start
        after = finished(pipe, self.settings, labels, tokens, images, steps.trace, seconds, self.ratio)
        return Result((after,), before)


@dataclass(frozen=True)
class Edit:
    """A picture with a region drawn anew. region: (n,) bool. move: how many tokens it is moved right and down first."""

    picture: Image.Image
    region: Tensor
    move: tuple[int, int]
    label: int | None
    seed: int
    settings: SamplingSettings
    kind = "edit"

    def carry_out(self, pipe: TokenCriticPipeline, watch: Watcher) -> Result:
        watch(0, 1, None)
        moved, bare = moved_picture(pipe, self.picture, self.move)
        label = self.label
        if label is None:  # the classifier is asked about the picture as it was given, whole
            label = int(pipe.classify(pipe.encode(self.picture)))
        before = _given(pipe, moved, label)
        region, labels, start = self.region | bare, torch.tensor(before.labels), time.perf_counter()
        guidance = self.settings.guidance
        generator = pipe.generator if guidance == 1 else pipe.generator.guided(guidance)
        scorer = self.settings.scorer(pipe.critic, pipe.tokenizer.grid)
        steps = _Steps(watch, self.settings, 0, last_step(self.settings))
        arguments = self.settings.loop_arguments()
        tokens = edit(generator, scorer, before.tokens, region, labels, self.seed, on_step=steps.on_step, **arguments)
        tokens = tokens.cpu()
        images = pipe.images(tokens)
        seconds = time.perf_counter() - start
        after = finished(pipe, self.settings, labels, tokens, images, steps.trace, seconds)
        return Result((after,), before, region)


class _Steps:
    """Counts the steps of several draws, one after the other, as one, and records the first images of them."""

    def __init__(
        self, watch: Watcher, settings: SamplingSettings, before: int, total: int, *, shown: bool = True
    ) -> None:
        self.watch, self.before, self.total, self.last = watch, before, total, last_step(settings)
        self.trace = Trace(MOST_IMAGES) if settings.candidates == 1 else None  # of several, the chosen one is not known
        self.shown = shown and self.trace is not None
        self._previous, self._draws = -1, 0

    def on_step_end(self, pipe: Any, index: int, step_time: float, tensors: dict[str, Tensor]) -> None:
        """For a pipeline."""
        if self.trace is not None:
            self.trace.on_step_end(pipe, index, step_time, tensors)
        self._tell(index, tensors["tokens"])

    def on_step(self, proposal: Proposal, scores: Tensor | None, mask: Tensor) -> None:
        """For a sampler."""
        if self.trace is not None:
            self.trace(proposal, scores, mask)
        self._tell(proposal.step.index, proposal.tokens)

    def _tell(self, index: int, tokens: Tensor) -> None:
        if index <= self._previous:
            self._draws += 1
        self._previous = index
        done = self.before + self._draws * self.last + index
        self.watch(min(done, self.total), self.total, tokens if self.shown else None)


def last_step(settings: SamplingSettings) -> int:
    """The number of the loop's last step."""
    return (settings.steps - 1) * settings.passes_per_level + 1


def finished(
    pipe: TokenCriticPipeline,
    settings: SamplingSettings,
    labels: Tensor,
    tokens: Tensor,
    images: Sequence[Image.Image],
    trace: Trace | None,
    seconds: float,
    refine_ratio: float | None = None,
) -> Part:
    """The images with what is to be told of them."""
    passes = settings.passes(tokens.shape[1], pipe.critic is not None, refine_ratio)
    scores = critic_scores(pipe, tokens, labels)
    return Part(settings, tuple(labels.tolist()), tuple(images), tokens, trace, passes, seconds, scores)


@torch.no_grad()
def critic_scores(pipe: TokenCriticPipeline, tokens: Tensor, labels: Tensor) -> Tensor | None:
    """(b, n), the critic's probability that a token is real, without noise; None without a critic."""
    if pipe.critic is None:
        return None
    scores = []
    for some, their in zip(tokens.split(BATCH_SIZE), labels.split(BATCH_SIZE), strict=True):
        some, their = some.to(pipe.device), their.to(pipe.device)
        given = Proposal(some, torch.ones_like(some, dtype=torch.bool), their, torch.zeros_like(their))
        with evaluating(pipe.critic):
            scores.append(CriticScorer(pipe.critic, selection_noise=0.0)(given).cpu())
    return torch.cat(scores)


def fit(pipe: TokenCriticPipeline, picture: Image.Image) -> Image.Image:
    """The middle square of a picture at the model's size, in its colours: all that the model sees of it."""
    floats = to_images(picture, pipe.tokenizer.image_size, pipe.tokenizer.channels)
    return to_pil(floats[0].permute(1, 2, 0).numpy())


def _given(pipe: TokenCriticPipeline, picture: Image.Image, label: int | None) -> Part:
    """A picture as the tokenizer gives it back, with its class and scores."""
    start = time.perf_counter()
    tokens = pipe.encode(picture)
    labels = pipe.classify(tokens) if label is None else torch.tensor([label])
    images = pipe.images(tokens)
    scores = critic_scores(pipe, tokens, labels)
    seconds = time.perf_counter() - start
    return Part(pipe.defaults, tuple(labels.tolist()), tuple(images), tokens, None, 0, seconds, scores)


def moved_picture(pipe: TokenCriticPipeline, picture: Image.Image, move: tuple[int, int]) -> tuple[Image.Image, Tensor]:
    """The picture moved right and down by whole tokens, and which tokens (n,) then show what was not there."""
    tokenizer = pipe.tokenizer
    pixels = to_images(picture, tokenizer.image_size, tokenizer.channels)
    moved, bare = regions.move(pixels, move[0] * tokenizer.factor, move[1] * tokenizer.factor)
    return to_pil(moved[0].permute(1, 2, 0).numpy()), regions.tokens_touched(bare, tokenizer)
