"""Images that a model makes to be measured. Image i depends on the model, the settings and its own seed and label alone."""

import dataclasses
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tokencritic import __version__
from tokencritic.errors import InputError
from tokencritic.evaluation.cache import CHUNK_ROWS, Chunks, Rows, chunk_range, count_rows, num_chunks
from tokencritic.evaluation.image_sets import ImageSet
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.randomness import candidate_seeds, random_labels
from tokencritic.sampling.loop import temperature_range
from tokencritic.sampling.settings import SamplingSettings

ClassOrder = Literal["balanced", "random"]

SEEDS_PER_SET = 2**32  # set k of images has the seeds from seed + k times this on


@dataclass(frozen=True)
class Refinement:
    """The paper's refinement of images that exist: the `ratio` of tokens that the critic trusts least is hidden first."""

    ratio: float
    settings: SamplingSettings

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise InputError(f"the ratio of refinement is {self.ratio}; it must lie in (0, 1]")


@dataclass(frozen=True)
class SampleSets:
    """How a model's images are made to be measured: `seeds` sets of `num` images each, kept in the folder `cache`.

    seed: of the first image. classes: "balanced" lets the classes take turns, "random" draws one for each image.
    """

    pipe: TokenCriticPipeline
    cache: Path
    num: int
    seed: int = 0
    seeds: int = 1
    classes: ClassOrder = "balanced"
    batch_size: int = 64

    def __post_init__(self) -> None:
        for name in ("num", "seeds", "batch_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.seed < 2**62:
            raise InputError(f"seed is {self.seed}; it must be an integer from 0 to 2^62 - 1")
        if self.classes not in ("balanced", "random"):
            raise InputError(f"classes is {self.classes!r}; choose balanced or random")

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Of the model's parts, by name."""
        found = {}
        for name, part in self.pipe.parts.items():
            if not hasattr(part, "fingerprint"):
                kind = type(part).__name__
                raise InputError(f"the {name}, a {kind}, has no method `fingerprint`, by which its samples are kept")
            found[name] = part.fingerprint()
        return found

    def check(self, settings: SamplingSettings) -> None:
        """Make one image in one step: what this model cannot do is found before hours are spent."""
        settings.check_critic_chooses(self.pipe.tokenizer.num_tokens, self.pipe.critic is not None)
        self.pipe.sample_tokens(torch.zeros(1, dtype=torch.int64), 0, dataclasses.replace(settings, steps=1))

    def of(
        self, settings: SamplingSettings, refinement: Refinement | None = None, num: int | None = None
    ) -> list["ModelSamples"]:
        """The sets of images that these settings make. num: another number of images than usual."""
        starts = [self.seed + number * SEEDS_PER_SET for number in range(self.seeds)]
        return [ModelSamples(self, settings, start, num or self.num, refinement) for start in starts]


class ModelSamples:
    """One set of a model's images, an `ImageSet`. Its tokens are kept on disk; they are small.

    candidate: of which number the images are among those of rejection sampling. Each number is kept as a set of its own, so
    that 5 candidates are the first of 10, all rankers choose from the same, and the first are the images without rejection.
    """

    def __init__(
        self,
        sets: SampleSets,
        settings: SamplingSettings,
        seed: int,
        num: int,
        refinement: Refinement | None = None,
        candidate: int = 0,
    ) -> None:
        self.pipe, self.batch_size, self._num, self._seed = sets.pipe, sets.batch_size, num, seed
        self.settings, self.refinement, self._candidate = settings, refinement, candidate
        self._sources: list[ModelSamples] = []  # sets that this one is made from
        if refinement is not None:
            self._sources = [ModelSamples(sets, settings, seed, num)]
        elif settings.candidates > 1:
            single = dataclasses.replace(settings, candidates=1)
            self._sources = [
                ModelSamples(sets, single, seed, num, candidate=number) for number in range(settings.candidates)
            ]
        self.labels = labels_of(self._seeds(0, num), self.pipe.generator.num_classes, sets.classes)
        made_with = effective(settings, self.pipe)
        used = _parts_used(made_with)
        how: dict[str, Any] = {"settings": made_with, "seed": seed, "classes": sets.classes}
        if candidate:
            how["candidate"] = candidate
        if refinement is not None:
            redrawn_with = effective(refinement.settings, self.pipe)
            used |= _parts_used(redrawn_with)
            how["refinement"] = {"ratio": refinement.ratio, "settings": redrawn_with}
        found = sets.fingerprints
        how["models"] = {name: found[name] for name in sorted(used & found.keys())}
        how |= {"version": __version__, "dtype": str(_dtype(self.pipe.generator)).removeprefix("torch.")}
        self._chunks = Chunks.open(sets.cache, "tokens", how)
        self.facts = how | {"kind": "samples", "models": how["models"] | {"tokenizer": found["tokenizer"]}}
        size = self.pipe.tokenizer.image_size
        self.image_size = (size, size)

    def __len__(self) -> int:
        return self._num

    @property
    def passes(self) -> int:
        """Network passes per image."""
        has_critic, num_tokens = self.pipe.critic is not None, self.pipe.tokenizer.num_tokens
        passes = self.settings.passes(num_tokens, has_critic)
        if self.refinement is not None:
            passes += self.refinement.settings.passes(num_tokens, has_critic, self.refinement.ratio)
        return passes

    @property
    def seconds(self) -> float:
        """Seconds of sampling per image, as it was when they were made."""
        parts = [self.rows(chunk)["seconds"] for chunk in range(num_chunks(len(self)))]
        own = float(np.concatenate(parts).mean(dtype=np.float64))
        return own + sum(source.seconds for source in self._sources)

    def batch(self, start: int, stop: int) -> Tensor:
        """Images start to stop, of one chunk: float (b, c, h, w) in [0, 1]."""
        first = start // CHUNK_ROWS * CHUNK_ROWS
        tokens = self.rows(start // CHUNK_ROWS)["tokens"][start - first : stop - first]
        return self.pipe.images(torch.from_numpy(tokens.astype(np.int64)), "pt", self.batch_size)

    def rows(self, chunk: int) -> Rows:
        """The tokens (b, n) of a chunk and the seconds (b,) that each image took: from disk, or made now."""
        wanted = chunk_range(chunk, len(self))
        rows = self._chunks.read(chunk)
        there = count_rows(rows)
        if there < len(wanted):
            rows = self._chunks.extend(chunk, rows, self._make(chunk, wanted[there:]))
        assert rows is not None
        return {name: values[: len(wanted)] for name, values in rows.items()}

    def _make(self, chunk: int, numbers: range) -> Rows:
        labels = torch.from_numpy(self.labels[numbers.start : numbers.stop])
        seeds = candidate_seeds(self._seeds(numbers.start, numbers.stop), self._candidate).tolist()
        first = chunk * CHUNK_ROWS
        given = [
            torch.from_numpy(
                source.rows(chunk)["tokens"][numbers.start - first : numbers.stop - first].astype(np.int64)
            )
            for source in self._sources
        ]
        start = time.perf_counter()
        if self.refinement is not None:
            ratio, settings = self.refinement.ratio, self.refinement.settings
            tokens = self.pipe.refine_tokens(given[0], labels, seeds, settings, self.batch_size, ratio=ratio)
        elif given:
            tokens = self.pipe.choose_tokens(given, labels, self.settings, self.batch_size)
        else:
            tokens = self.pipe.sample_tokens(labels, seeds, self.settings, self.batch_size)
        seconds = (time.perf_counter() - start) / len(numbers)
        kind = np.uint16 if self.pipe.tokenizer.codebook_size <= 2**16 else np.uint32
        return {"tokens": tokens.numpy().astype(kind), "seconds": np.full(len(numbers), seconds, np.float32)}

    def _seeds(self, start: int, stop: int) -> Tensor:
        return torch.arange(self._seed + start, self._seed + stop)


class Reconstructions:
    """The images of a data set after the tokenizer has encoded and decoded them: what generation cannot be better than."""

    def __init__(self, pipe: TokenCriticPipeline, images: ImageSet, batch_size: int = 64) -> None:
        self.pipe, self.images, self.batch_size = pipe, images, batch_size
        self.image_size, self.labels = images.image_size, images.labels
        self.facts = {
            "kind": "reconstructions",
            "of": images.facts,
            "models": {"tokenizer": pipe.tokenizer.fingerprint()},
        }

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, start: int, stop: int) -> Tensor:
        """Float (b, c, h, w) in [0, 1]."""
        tokens = self.pipe.encode(self.images.batch(start, stop), self.batch_size)
        return self.pipe.images(tokens, "pt", self.batch_size)


def labels_of(seeds: Tensor, num_classes: int, classes: ClassOrder) -> np.ndarray:
    """A class for each image, (n,) int64; a larger set begins with the labels of a smaller one."""
    if classes == "balanced":
        return np.arange(len(seeds)) % num_classes
    return random_labels(seeds, num_classes).numpy()


def effective(settings: SamplingSettings, pipe: TokenCriticPipeline) -> dict[str, Any]:
    """The settings with nothing left open: what they mean for this model, and what has no effect as None."""
    scorer = settings.scorer(pipe.critic, getattr(pipe.tokenizer, "grid", None))
    return dataclasses.asdict(settings) | {
        "sampler": settings.chosen_sampler(pipe.critic is not None),
        "selection_noise": getattr(scorer, "selection_noise", None),
        "noise_on": getattr(scorer, "noise_on", None),
        "critic_from": getattr(scorer, "critic_from", None),
        "critic_until": getattr(scorer, "critic_until", None),
        "temperature": list(temperature_range(settings.temperature)),
        "reject_by": settings.reject_by if settings.candidates > 1 else None,
    }


def _parts_used(made_with: dict[str, Any]) -> set[str]:
    """The parts that tokens depend on: a new critic leaves the baseline's samples as they are."""
    used = {"generator"}
    if "critic" in (made_with["sampler"], made_with["reject_by"]):
        used |= {"critic"}
    if made_with["reject_by"] == "classifier":
        used |= {"tokenizer", "classifier"}
    return used


def _dtype(generator: Any) -> torch.dtype:
    parameters = getattr(generator, "parameters", None)
    first = next(iter(parameters()), None) if parameters is not None else None
    return torch.float32 if first is None else first.dtype
