"""What a job does: the pipeline's calls with a watcher at each step, what comes of them, and the same as a command line."""

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

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


# Called at each step with the steps done, all of them, and the tokens (b, n) of the images as they are now, or None where
# these may not be shown; what it raises ends the job.
Watcher = Callable[[int, int, Tensor | None], None]


@dataclass(frozen=True)
class ImageSet:
    """Images made with one setting.

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
        """The mean of the critic's scores over all images, 0 to 1."""
        return None if self.scores is None else float(self.scores.double().mean())


@dataclass(frozen=True)
class Result:
    """What a job made. given: the picture that was worked on. before: the same as the tokenizer gives it back."""

    sets: tuple[ImageSet, ...] = ()
    given: Image.Image | None = None
    before: ImageSet | None = None
    region: Tensor | None = field(default=None, compare=False)


class Work:
    """Something to do with a pipeline. kind: the tab that shows it. seed: of its first image."""

    kind: ClassVar[str]
    seed: int

    def carry_out(self, pipe: TokenCriticPipeline, watch: Watcher) -> Result:
        raise NotImplementedError

    def command(self, model: str, class_names: Sequence[str], made: ImageSet) -> str:
        """The command line that makes the same images, or "" where there is none."""
        return ""


@dataclass(frozen=True)
class Generate(Work):
    """New images, once for each of the settings. labels: (b,). classes: those asked for, None for all in turn."""

    labels: Tensor
    classes: tuple[int, ...] | None
    seed: int
    variants: tuple[SamplingSettings, ...]
    kind = "generate"

    def carry_out(self, pipe: TokenCriticPipeline, watch: Watcher) -> Result:
        seeds, sets = as_seeds(self.seed, len(self.labels)), []
        counts = [max(1, BATCH_SIZE // settings.candidates) for settings in self.variants]
        totals = [len(seeds.split(count)) * one.steps for count, one in zip(counts, self.variants, strict=True)]
        for number, (settings, count) in enumerate(zip(self.variants, counts, strict=True)):
            # Images are not decoded on the way where times are compared.
            making = _Making(pipe, watch, settings, sum(totals[:number]), sum(totals), shown=len(self.variants) == 1)
            tokens, images = [], []
            for labels, some in zip(self.labels.split(count), seeds.split(count), strict=True):
                tokens.append(pipe.sample_tokens(labels, some, settings, BATCH_SIZE, making.on_step_end))
                images += pipe.images(tokens[-1], batch_size=BATCH_SIZE)
            sets.append(making.finish(self.labels, torch.cat(tokens), images))
        return Result(tuple(sets))

    def command(self, model: str, class_names: Sequence[str], made: ImageSet) -> str:
        words = ["sample", model, "--num", str(len(self.labels)), "--seed", str(self.seed)]
        if self.classes is not None:
            words += ["--classes", *(class_word(label, class_names) for label in self.classes)]
        return _command(words, made.settings)


class Compare(Generate):
    """The same images in several ways."""

    kind = "compare"


@dataclass(frozen=True)
class Look(Work):
    """What the critic thinks of a picture. label: its class, None to ask the classifier."""

    picture: Image.Image
    label: int | None
    kind = "look"

    def carry_out(self, pipe: TokenCriticPipeline, watch: Watcher) -> Result:
        watch(0, 1, None)
        return Result(given=self.picture, before=_reconstructed(pipe, self.picture, self.label))


@dataclass(frozen=True)
class Refine(Work):
    """A picture with the `ratio` of its tokens that the critic distrusts drawn again. label: as for `Look`."""

    picture: Image.Image
    label: int | None
    ratio: float
    seed: int
    settings: SamplingSettings
    kind = "refine"

    def carry_out(self, pipe: TokenCriticPipeline, watch: Watcher) -> Result:
        watch(0, 1, None)
        before = _reconstructed(pipe, self.picture, self.label)
        labels, making = torch.tensor(before.labels), _Making(pipe, watch, self.settings)
        given = before.tokens, labels, self.seed, self.settings
        tokens = pipe.refine_tokens(*given, BATCH_SIZE, making.on_step_end, ratio=self.ratio)
        after = making.finish(labels, tokens, pipe.images(tokens, batch_size=BATCH_SIZE), self.ratio)
        return Result((after,), self.picture, before)

    def command(self, model: str, class_names: Sequence[str], made: ImageSet) -> str:
        words = ["refine", model, "picture.png", "--classes", class_word(made.labels[0], class_names)]
        return _command([*words, "--ratio", repr(self.ratio), "--seed", str(self.seed)], self.settings)


@dataclass(frozen=True)
class Edit(Work):
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
        before = _reconstructed(pipe, moved, label)
        region, labels = self.region | bare, torch.tensor(before.labels)
        making, guidance = _Making(pipe, watch, self.settings), self.settings.guidance
        generator = pipe.generator if guidance == 1 else pipe.generator.guided(guidance)
        scorer = self.settings.scorer(pipe.critic, pipe.tokenizer.grid)
        loop = self.settings.loop_arguments()
        given = before.tokens, region, labels, self.seed
        tokens = edit(generator, scorer, *given, on_step=making.on_step, **loop).cpu()
        return Result((making.finish(labels, tokens, pipe.images(tokens)),), self.picture, before, region)


class _Making:
    """The making of one image set: its steps are counted, timed and told, and the first images of them recorded.

    before, total: steps of the whole job before this one, and in all. shown: whether images may be shown as they form.
    """

    def __init__(
        self,
        pipe: TokenCriticPipeline,
        watch: Watcher,
        settings: SamplingSettings,
        before: int = 0,
        total: int | None = None,
        *,
        shown: bool = True,
    ) -> None:
        self.pipe, self.watch, self.settings, self.before = pipe, watch, settings, before
        self.total = settings.steps if total is None else total
        self.trace = Trace(MOST_IMAGES) if settings.candidates == 1 else None  # of several, the chosen one is not known
        self.shown = shown and self.trace is not None
        self._start, self._previous, self._loops = time.perf_counter(), -1, 0

    def on_step_end(self, pipe: Any, index: int, step_time: float, tensors: dict[str, Tensor]) -> None:
        """For a pipeline, which may run its loop several times, one batch after the other."""
        if self.trace is not None:
            self.trace.on_step_end(pipe, index, step_time, tensors)
        self._loops += index <= self._previous
        self._previous = index
        done = self.before + self._loops * self.settings.steps + index
        self.watch(min(done, self.total), self.total, tensors["tokens"] if self.shown else None)

    def on_step(self, proposal: Proposal, scores: Tensor | None, mask: Tensor) -> None:
        """For a sampler."""
        tensors = {"tokens": proposal.tokens, "hidden": mask} | ({} if scores is None else {"scores": scores})
        self.on_step_end(self.pipe, proposal.step.index, proposal.step.time, tensors)

    def finish(
        self, labels: Tensor, tokens: Tensor, images: Sequence[Image.Image], refine_ratio: float | None = None
    ) -> ImageSet:
        """The images with what is to be told of them."""
        seconds, has_critic = time.perf_counter() - self._start, self.pipe.critic is not None
        passes = self.settings.passes(tokens.shape[1], has_critic, refine_ratio)
        scores = _critic_scores(self.pipe, tokens, labels)
        classes = tuple(labels.tolist())
        return ImageSet(self.settings, classes, tuple(images), tokens, self.trace, passes, seconds, scores)


def _reconstructed(pipe: TokenCriticPipeline, picture: Image.Image, label: int | None) -> ImageSet:
    """A picture as the tokenizer gives it back, with its class and scores."""
    tokens = pipe.encode(picture)
    labels = pipe.classify(tokens) if label is None else torch.tensor([label])
    images, scores = tuple(pipe.images(tokens)), _critic_scores(pipe, tokens, labels)
    return ImageSet(pipe.defaults, tuple(labels.tolist()), images, tokens, None, 0, 0.0, scores)


@torch.no_grad()
def _critic_scores(pipe: TokenCriticPipeline, tokens: Tensor, labels: Tensor) -> Tensor | None:
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
    return moved_picture(pipe, picture, (0, 0))[0]


def moved_picture(pipe: TokenCriticPipeline, picture: Image.Image, move: tuple[int, int]) -> tuple[Image.Image, Tensor]:
    """The picture moved right and down by whole tokens, and which tokens (n,) then show what was not there."""
    tokenizer = pipe.tokenizer
    pixels = to_images(picture, tokenizer.image_size, tokenizer.channels)
    moved, bare = regions.move(pixels, move[0] * tokenizer.factor, move[1] * tokenizer.factor)
    return to_pil(moved[0].permute(1, 2, 0).numpy()), regions.tokens_touched(bare, tokenizer)


def class_word(label: int, class_names: Sequence[str]) -> str:
    """A class by its name, or by its number where the name could be taken for something else."""
    name = class_names[label] if class_names else ""
    same = sum(other.lower() == name.lower() for other in class_names)
    return str(label) if not name or name.isdecimal() or name.startswith("-") or same > 1 else name


def _command(words: list[str], settings: SamplingSettings) -> str:
    """A command line with all the settings, so that it does not depend on the defaults of the model's folder."""
    for name, value in vars(settings).items():
        if value is not None:
            values = value if isinstance(value, tuple) else (value,)
            words = [*words, f"--{name}", *(str(part) for part in values)]
    return shlex.join(["token-critic", *words])
