"""The work of a run: calls of the pipeline with a watcher of each step, the results, and the equivalent command."""

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

# A callable for each step: (finished steps, all steps, tokens (b, n) of the current images). The tokens are None if the
# images must not be shown. The callable raises `Stopped` to end the run.
Watcher = Callable[[float, int, Tensor | None], None]
_BYTES_OF_A_TOKEN = 8 + 1 + 4 + 1  # in a step of a trace: code, sampled, score, hidden


class Stopped(Exception):
    """The exception that ends a run early. The message gives the reason."""


@dataclass(frozen=True)
class ImageSet:
    """Images made with one setting.

    labels: the class of each image; 0 for a model without classes.
    tokens: (b, n) int64.
    scores: (b, n), the critic's scores of the finished images; None without a critic.
    recognised: True for each image in which the classifier finds its class; None without a classifier or classes.
    trace: the recorded steps, of the first images if memory is short; None if the steps are unknown.
    nfe: the network evaluations per image.
    cost: their FLOPs in units of one generator evaluation.
    seconds: the sampling time of all images.
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
        """Decode tokens (b, n), and return their images with the critic's scores and the classifier's results.

        cost: the other fields.
        """
        known = known_labels(pipe, labels)
        scores = None if pipe.critic is None else pipe.critic_scores(tokens, known)
        asked = pipe.classifier is not None and known is not None
        found = tuple((pipe.classify(tokens) == labels).tolist()) if asked else None
        return cls(settings, tuple(labels.tolist()), tuple(pipe.images(tokens)), tokens, scores, found, **cost)

    @property
    def mean_score(self) -> float | None:
        """The mean of the critic's scores over all images, in [0, 1]; None without a critic."""
        return None if self.scores is None else float(self.scores.double().mean())

    @property
    def num_bytes(self) -> int:
        """The approximate memory in bytes."""
        pixels = sum(image.width * image.height * len(image.getbands()) for image in self.images)
        steps = 0 if self.trace is None else sum(step.proposal.numel() for step in self.trace.steps)
        return pixels + 16 * self.tokens.numel() + _BYTES_OF_A_TOKEN * steps


@dataclass(frozen=True)
class Result:
    """The result of a run.

    sets: the images of each variant; fewer if the run is stopped.
    before: the tokenizer's reconstruction of the picture, after the move of an edit; None without a picture.
    region: (n,) bool, the tokens that an edit resamples; None for other work.
    stopped: the reason why the images are not finished; "" if they are.
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
    """The work of one run: new images, or the refinement of a picture, or its edit if there is a region.

    kind: the kind of the request, such as "generate".
    seed: the seed of the first image.
    labels: (b,) int64; None for the classifier's prediction for the picture.
    variants: the settings, each for all images; empty if the critic only scores the picture.
    classes: the requested classes, which take turns; None for all.
    picture: the picture to score, refine or edit; None for new images.
    ratio: the share of tokens that refinement resamples.
    region: (n,) bool, the tokens that an edit resamples.
    move: the shift of the picture before an edit, (right, down) in places.
    trace_bytes: the memory limit of the recorded steps.
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
        """Make the images. If the watcher raises `Stopped`, return the images as they are.

        Raises `Stopped` if there are no images yet, or if they are chosen among candidates.
        """
        labels, given, before, region = self.labels, None, None, self.region
        if self.picture is not None:
            watch(0, 1, None)
            tokenizer, tokens = pipe.tokenizer, pipe.encode(self.picture)
            # The classifier sees the given picture, before any move.
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
        """Return the facts for an image's PNG file: the command, the model, the seed, the class and the settings."""
        in_effect = made.settings.in_effect(pipe.critic is not None)
        settings = {name: value for name, value in in_effect.items() if value is not None}
        facts: dict[str, Any] = {"command": "sample", "model": model, "seed": self.seed + index}
        if pipe.generator.num_classes:
            facts["class"] = made.labels[index]
        if self.picture is not None:
            facts["command"] = "refine" if self.region is None else "edit"
        return facts | {"settings": settings}

    def command(self, pipe: TokenCriticPipeline, model: str, made: ImageSet) -> str:
        """Return the command that makes the same images. It does not depend on the defaults in the model's folder."""
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
        """Return the flags of `token-critic edit` for the region and the move, in pixels.

        Adjacent places in a row are one box.
        """
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
    """The maker of the images of one run. It calls the watcher at each step, and records the steps.

    labels: (b,) int64.
    total: the steps of all variants.
    done: the finished steps. A step of one batch counts by its share of all images and candidates.
    stopped: the reason why the watcher stopped the run; "" if it did not.
    """

    def __init__(self, pipe: TokenCriticPipeline, watch: Watcher, labels: Tensor, work: Work) -> None:
        self.pipe, self.watch, self.labels, self.work = pipe, watch, labels, work
        self.total, self.done = sum(settings.steps for settings in work.variants), 0.0
        self.stopped = ""

    def make(self, settings: SamplingSettings, given: Given | None = None) -> ImageSet:
        """Return new images, or given images that are refined or edited, with their cost."""
        per_image = settings.steps * self.pipe.tokenizer.num_tokens * _BYTES_OF_A_TOKEN
        most = max(1, self.work.trace_bytes // (per_image * len(self.work.variants)))
        self.trace = Trace(most) if settings.candidates == 1 else None  # a trace does not say which candidate is chosen
        self._batches: list[Tensor] = []  # the current tokens of each batch
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
        same_batch = bool(self._batches) and index > self._index  # any other step starts a new batch
        since = self._index if same_batch else 0
        self._batches[len(self._batches) - same_batch :] = [tokens]
        self.done, self._index = self.done + (index - since) * len(tokens) / self._rows, index
        # A comparison shows no previews, because decoding them would distort the times.
        shown = len(self.work.variants) == 1 and self.trace is not None
        self.watch(round(self.done, 6), self.total, torch.cat(self._batches) if shown else None)


def known_labels(pipe: TokenCriticPipeline, labels: Tensor) -> Tensor | None:
    """Return the labels as the pipeline takes them: None for a model without classes, where all labels are 0."""
    return labels if pipe.generator.num_classes else None


def png(image: Image.Image, facts: dict[str, Any] | None = None) -> bytes:
    """Return the bytes of a PNG file.

    facts: written into the file, as `token-critic sample` does.
    """
    file = io.BytesIO()
    image.save(file, "PNG", pnginfo=png_note(facts))
    return file.getvalue()
