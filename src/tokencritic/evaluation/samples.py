"""Samples of a model for evaluation. Image i depends only on the model, the settings, its seed and its label."""

import dataclasses
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokencritic import __version__
from tokencritic.errors import InputError, check_at_least
from tokencritic.evaluation.cache import CHUNK_ROWS, ChunkArrays, Chunks, chunk_ranges
from tokencritic.evaluation.image_sets import ImageSet
from tokencritic.pipeline import Given, TokenCriticPipeline
from tokencritic.randomness import candidate_seeds
from tokencritic.sampling.samplers import SAMPLERS
from tokencritic.sampling.settings import SamplingSettings

SEEDS_PER_SET = 2**32  # seed set k starts at seed + k * SEEDS_PER_SET


@dataclass(frozen=True)
class Refinement:
    """Refinement of existing images, as in the paper.

    ratio: the share of tokens, those of lowest score, that are masked first; in (0, 1].
    settings: how the masked tokens are resampled.
    """

    ratio: float
    settings: SamplingSettings

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise InputError(f"the refinement ratio is {self.ratio}; expected a value in (0, 1]")


@dataclass(frozen=True)
class SampleSets:
    """How a model's samples are made for evaluation.

    cache: the folder in which samples are kept.
    num: the number of images in each seed set. The labels cycle through the classes, if there are any.
    seed: the seed of the first image, in [0, 2^62).
    seed_sets: the number of sets, which differ only in their seeds.
    """

    pipe: TokenCriticPipeline
    cache: Path
    num: int
    seed: int = 0
    seed_sets: int = 1
    batch_size: int = 64

    def __post_init__(self) -> None:
        check_at_least(1, num=self.num, seed_sets=self.seed_sets, batch_size=self.batch_size)
        if not 0 <= self.seed < 2**62:
            raise InputError(f"seed is {self.seed}; expected an integer from 0 to 2^62 - 1")

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """The fingerprints of the model's parts, by name."""
        return {name: part.fingerprint() for name, part in self.pipe.parts.items()}

    def of(
        self, settings: SamplingSettings, refinement: Refinement | None = None, num: int | None = None
    ) -> list["ModelSamples"]:
        """Return one `ModelSamples` for each seed set.

        num: the number of images per set; None for `self.num`.
        """
        starts = [self.seed + number * SEEDS_PER_SET for number in range(self.seed_sets)]
        return [ModelSamples(self, settings, start, num or self.num, refinement) for start in starts]


def check_settings(pipe: TokenCriticPipeline, settings: SamplingSettings) -> None:
    """Sample one image in one step, so that a setting the model cannot use is found before the evaluation starts."""
    settings.check_critic_window(pipe.tokenizer.num_tokens, pipe.critic is not None)
    pipe.sample_tokens(pipe.classes.in_turn(1), [0], dataclasses.replace(settings, steps=1))


class ModelSamples(ImageSet):
    """One seed set of a model's samples. The tokens are cached on disk.

    candidate: the index of the images among the candidates of rejection sampling.

    Each candidate index is cached as a separate set. Therefore 5 candidates are the first 5 of 10, all rankers choose
    from the same candidates, and candidate 0 is the image without rejection.
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
        self._sources: list[ModelSamples] = []  # the sets to refine or to choose from
        if refinement is not None:
            self._sources = [ModelSamples(sets, settings, seed, num)]
        elif settings.candidates > 1:
            single, numbers = dataclasses.replace(settings, candidates=1), range(settings.candidates)
            self._sources = [ModelSamples(sets, single, seed, num, candidate=number) for number in numbers]
        labels = self.pipe.classes.in_turn(num)
        self.labels = None if labels is None else labels.numpy()
        self.image_size = (self.pipe.tokenizer.image_size, self.pipe.tokenizer.image_size)
        has_critic, found = self.pipe.critic is not None, sets.fingerprints
        how: dict[str, Any] = {"settings": settings.in_effect(has_critic), "seed": seed, "candidate": candidate}
        used = _parts_used(how["settings"])
        if refinement is not None:
            refined_with = refinement.settings.in_effect(has_critic)
            used |= _parts_used(refined_with)
            how["refinement"] = {"ratio": refinement.ratio, "settings": refined_with}
        how["models"] = {name: found[name] for name in sorted(used & found.keys())}
        how |= {"version": __version__, "dtype": str(self.pipe.generator.dtype).removeprefix("torch.")}
        self._chunks = Chunks.open(sets.cache, "tokens", how, num)
        self.facts = how | {"kind": "samples", "models": how["models"] | {"tokenizer": found["tokenizer"]}}

    def __len__(self) -> int:
        return self._num

    @property
    def cost(self) -> float:
        """FLOPs per image in units of one generator evaluation."""
        refined = self.refinement
        more = 0.0 if refined is None else self.pipe.cost(refined.settings, refined.ratio)
        return self.pipe.cost(self.settings) + more

    @property
    def nfe(self) -> int:
        """Network evaluations per image."""
        refined = self.refinement
        more = 0 if refined is None else self.pipe.nfe(refined.settings, refined.ratio)
        return self.pipe.nfe(self.settings) + more

    @property
    def seconds(self) -> float:
        """Sampling time per image in seconds, recorded when the images were sampled."""
        own = np.concatenate([self.arrays(rows)["seconds"] for rows in chunk_ranges(len(self))])
        return float(own.mean(dtype=np.float64)) + sum(source.seconds for source in self._sources)

    @property
    def costs(self) -> dict[str, float]:
        return {"nfe": self.nfe, "cost": self.cost, "seconds_per_image": self.seconds}

    def batch(self, start: int, stop: int) -> Tensor:
        """Return images [start, stop) of one chunk: float (b, c, h, w) in [0, 1]."""
        return self.pipe.images(self._tokens(range(start, stop)), "pt", self.batch_size)

    def arrays(self, rows: range) -> ChunkArrays:
        """Return `tokens` (b, n) and `seconds` (b,) of a chunk, from disk or sampled now."""
        return self._chunks.complete(rows, self._make)

    def _tokens(self, rows: range) -> Tensor:
        """Return the tokens of consecutive images of one chunk: (b, n) int64."""
        chunk = chunk_ranges(len(self))[rows.start // CHUNK_ROWS]
        tokens = self.arrays(chunk)["tokens"][rows.start - chunk.start : rows.stop - chunk.start]
        return torch.from_numpy(tokens.astype(np.int64))

    def _make(self, rows: range) -> ChunkArrays:
        labels = None if self.labels is None else torch.from_numpy(self.labels[rows.start : rows.stop])
        seeds = candidate_seeds(torch.arange(self._seed + rows.start, self._seed + rows.stop), self._candidate)
        given = [source._tokens(rows) for source in self._sources]
        start, settings, refined = time.perf_counter(), self.settings, None
        if self.refinement is not None:
            settings, refined = self.refinement.settings, Given(given[0], self.refinement.ratio)
        if given and refined is None:
            tokens = self.pipe.choose_tokens(given, labels, settings, self.batch_size)
        else:
            tokens = self.pipe.sample_tokens(labels, seeds, settings, refined, batch_size=self.batch_size)
        seconds = (time.perf_counter() - start) / len(rows)
        kind = np.uint16 if self.pipe.tokenizer.codebook_size <= 2**16 else np.uint32
        return {"tokens": tokens.numpy().astype(kind), "seconds": np.full(len(rows), seconds, np.float32)}


def _parts_used(made_with: dict[str, Any]) -> set[str]:
    """Return the names of the parts that the tokens depend on. A new critic does not invalidate the baseline's samples.

    made_with: the settings of `SamplingSettings.in_effect`.
    """
    used = {"generator"}
    if SAMPLERS[made_with["sampler"]].uses_critic or made_with["reject_by"] == "critic":
        used.add("critic")
    if SAMPLERS[made_with["sampler"]].uses_inline_critic:
        used.add("inline_critic")
    if made_with["reject_by"] == "classifier":
        used |= {"tokenizer", "classifier"}
    return used
