"""What a client may ask for: plain values, as a page or a JSON holds them, checked and made into work."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from PIL import Image

from tokencritic.errors import InputError
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.studio.work import Compare, Edit, Generate, Look, Refine


@dataclass(frozen=True)
class Limits:
    """How much one client, and all of them together, may ask for.

    images, steps, candidates: of one job. passes: network passes of one job, over all its images.
    upload_bytes, upload_pixels: of one picture. waiting: jobs that wait for their turn. per_client: unfinished jobs of one
    page. wait_seconds: how long a job waits before it is given up. run_seconds: how long it may take.
    kept_runs, kept_pictures: how many are held in memory for those who ask for them later.
    """

    images: int = 64
    steps: int = 128
    candidates: int = 16
    passes: int = 50_000
    upload_bytes: int = 16 * 2**20
    upload_pixels: int = 2**25
    waiting: int = 8
    per_client: int = 2
    wait_seconds: float = 60.0
    run_seconds: float = 600.0
    kept_runs: int = 16
    kept_pictures: int = 64

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise InputError(f"{name} is {value}; it must be above 0")


class Requests:
    """Makes work of values, or says in one line what is wrong with them."""

    def __init__(self, pipe: TokenCriticPipeline, limits: Limits) -> None:
        self.pipe, self.limits = pipe, limits
        # Checks of type and range; what a setting means is checked where it is used.
        self._checks: dict[str, Callable[[str, Any], Any]] = {
            "sampler": _as_word,
            "steps": partial(as_integer, low=1, high=limits.steps),
            "temperature": _as_temperature,
            "selection_noise": partial(as_number, low=0.0, high=1000.0),
            "noise_on": _as_word,
            "critic_from": partial(as_number, low=0.0, high=1.0),
            "critic_until": partial(as_number, low=0.0, high=1.0),
            "guidance": partial(as_number, low=0.0, high=100.0),
            "candidates": partial(as_integer, low=1, high=limits.candidates),
            "reject_by": _as_word,
        }

    def generate(self, values: Mapping[str, Any]) -> Generate:
        """values: `classes` (names or numbers; all in turn if none), `num`, `seed`, and the settings."""
        _check_names(values, "classes", "num", "seed", *self._checks)
        return self._new_images(Generate, values, (self._settings(values),))

    def compare(self, values: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]) -> Generate:
        """The same images in several ways. values: as for `generate`, without settings, which come in `variants`."""
        _check_names(values, "classes", "num", "seed")
        for variant in variants:
            _check_names(variant, *self._checks)
        return self._new_images(Compare, values, tuple(self._settings(variant) for variant in variants))

    def look(self, picture: Image.Image, values: Mapping[str, Any]) -> Look:
        """values: `class`, or none to ask the classifier."""
        _check_names(values, "class")
        if self.pipe.critic is None:
            raise InputError("the model has no critic to say what it distrusts")
        return Look(picture, self._label(values))

    def refine(self, picture: Image.Image, values: Mapping[str, Any]) -> Refine:
        """values: `class`, `ratio`, `seed`, and the settings."""
        _check_names(values, "class", "ratio", "seed", *self._checks)
        ratio = as_number("ratio", values.get("ratio", 0.6), 0.05, 1.0)
        settings = self.pipe.refinement_settings(**self._given_settings(values))
        self._check_work(settings, 1, ratio)
        return Refine(picture, self._label(values), ratio, self._seed(values), settings)

    def edit(self, picture: Image.Image, values: Mapping[str, Any]) -> Edit:
        """values: `region` (positions of tokens, row by row), `move` ([right, down] in tokens), `class`, `seed`, settings."""
        _check_names(values, "region", "move", "class", "seed", *self._checks)
        settings = self._settings(values)
        if settings.candidates > 1:
            raise InputError(f"candidates is {settings.candidates}; an edit is made without rejection, with 1")
        self._check_work(settings, 1)
        height, width = self.pipe.tokenizer.grid
        region, move = values.get("region") or [], values.get("move") or [0, 0]
        for name, value in (("region", region), ("move", move)):
            if not isinstance(value, list | tuple):
                raise InputError(f"{name} is {_short(value)}; expected a list of integers")
        if len(region) > height * width:
            raise InputError(f"region has {len(region)} entries; an image has {height * width} tokens")
        positions = {as_integer("region", position, 0, height * width - 1) for position in region}
        if len(move) != 2:
            raise InputError(f"move has {len(move)} entries; expected two, how far right and how far down")
        right = as_integer("move", move[0], 1 - width, width - 1)
        down = as_integer("move", move[1], 1 - height, height - 1)
        if not positions and (right, down) == (0, 0):
            raise InputError("region is empty and nothing is moved; mark at least one token to draw anew")
        marked = torch.zeros(height * width, dtype=torch.bool)
        marked[sorted(positions)] = True
        return Edit(picture, marked, (right, down), self._label(values), self._seed(values), settings)

    def _new_images(
        self, kind: type[Generate], values: Mapping[str, Any], variants: tuple[SamplingSettings, ...]
    ) -> Generate:
        num = as_integer("num", values.get("num", 16), 1, self.limits.images)
        known, classes = self.pipe.generator.num_classes, values.get("classes")
        if isinstance(classes, int | str):
            classes = [classes]
        if classes is not None and not isinstance(classes, list | tuple):
            raise InputError(f"classes is {_short(classes)}; expected a list of names or numbers")
        if classes and len(classes) > known:
            raise InputError(f"classes has {len(classes)} entries; the model has {known}")
        turns = self._labels(classes) if classes else torch.arange(known)
        labels = turns.repeat(-(-num // len(turns)))[:num]
        for settings in variants:
            self._check_work(settings, num)
        return kind(labels, tuple(turns.tolist()) if classes else None, self._seed(values, num), variants)

    def _settings(self, values: Mapping[str, Any]) -> SamplingSettings:
        settings = self.pipe.settings(**self._given_settings(values))
        # By its name, so that a command line says it too.
        return dataclasses.replace(settings, sampler=settings.chosen_sampler(self.pipe.critic is not None))

    def _given_settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: values[name] for name in self._checks if values.get(name) is not None}
        return {name: self._checks[name](name, value) for name, value in given.items()}

    def _check_work(self, settings: SamplingSettings, num: int, refine_ratio: float | None = None) -> None:
        as_integer("steps", settings.steps, 1, self.limits.steps)  # a model's own defaults may lie beyond the limits
        as_integer("candidates", settings.candidates, 1, self.limits.candidates)
        if settings.guidance != 1 and not has_guidance(self.pipe):
            raise InputError(f"guidance is {settings.guidance}; this model was trained without it, only 1 is possible")
        if settings.candidates > 1 and settings.reject_by not in self.pipe.parts:
            raise InputError(f"reject_by is {settings.reject_by}, which the model does not have")
        settings.scorer(self.pipe.critic, self.pipe.tokenizer.grid)  # raises where the critic is missing
        passes = num * settings.passes(self.pipe.tokenizer.num_tokens, self.pipe.critic is not None, refine_ratio)
        if passes > self.limits.passes:
            raise InputError(
                f"that takes {passes} network passes; at most {self.limits.passes} are done at a time: "
                "ask for fewer images, steps or candidates"
            )

    def _label(self, values: Mapping[str, Any]) -> int | None:
        label = values.get("class")
        if label is None or label == "":
            if self.pipe.classifier is None:
                raise InputError("class is missing, and the model has no classifier to find it; choose one")
            return None
        return int(self._labels([label])[0])

    def _labels(self, classes: Sequence[Any]) -> torch.Tensor:
        for label in classes:
            if isinstance(label, bool) or not isinstance(label, int | str) or len(str(label)) > 200:
                raise InputError(f"classes holds {_short(label)}; expected names or numbers")
        return self.pipe.labels(list(classes), called="classes")

    def _seed(self, values: Mapping[str, Any], num: int = 1) -> int:
        return as_integer("seed", values.get("seed", 0), 0, 2**63 - num)


def has_guidance(pipe: TokenCriticPipeline) -> bool:
    """Whether the generator was trained for classifier-free guidance."""
    return pipe.generator.config.null_class


def as_integer(name: str, value: Any, low: int, high: int) -> int:
    """A whole number in [low, high]: an int, a float without a fraction, or decimal digits, since a page sends all three."""
    if isinstance(value, str) and len(value) <= 40 and value.strip().removeprefix("-").isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{name} is {_short(value)}; expected a whole number from {low} to {high}")
    return value


def as_number(name: str, value: Any, low: float, high: float) -> float:
    """A finite number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (low <= value <= high):
        raise InputError(f"{name} is {_short(value)}; expected a number from {low:g} to {high:g}")
    return float(value)


def _as_word(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"{name} is {_short(value)}; expected a word")
    return value


def _as_temperature(name: str, value: Any) -> float | tuple[float, float]:
    if not isinstance(value, list | tuple):
        return as_number(name, value, 0.0, 100.0)
    if len(value) != 2:
        raise InputError(f"temperature has {len(value)} entries; expected one number, or its start and end")
    start, end = (as_number(name, part, 0.0, 100.0) for part in value)
    return start if start == end else (start, end)


def _check_names(values: Mapping[str, Any], *known: str) -> None:
    if not isinstance(values, Mapping):
        raise InputError(f"the request is {_short(values)}; expected an object")
    if unknown := sorted(str(name) for name in values.keys() - set(known)):
        raise InputError(f"{_short(unknown[0])} is not known; choose from {', '.join(known)}")


def _short(value: Any) -> str:
    """A value as text, cut to a length that a message can hold."""
    text = value if isinstance(value, int) and abs(value) < 10**30 else repr(value)[:60]
    return str(text)
