"""What a client may ask for: plain values, as a page or a JSON holds them, checked and made into work."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image

from tokencritic.errors import InputError
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.studio.work import Edit, Generate, Look, Refine

SETTINGS = tuple(field.name for field in dataclasses.fields(SamplingSettings))


@dataclass(frozen=True)
class Limits:
    """How much one client, and all of them together, may ask for.

    images, steps, candidates, passes_per_level: of one run. passes: network passes of one run, over all its images.
    upload_bytes, upload_pixels: of one picture. waiting: runs that wait for their turn. per_client: unfinished runs of one
    page. wait_seconds: how long a run waits before it is given up. run_seconds: how long it may take.
    kept_runs, kept_pictures: how many are held in memory for those who ask for them later.
    """

    images: int = 64
    steps: int = 128
    candidates: int = 16
    passes_per_level: int = 8
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
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise InputError(f"{field.name} is {value}; it must be above 0")


class Requests:
    """Makes work of values, or says in one line what is wrong with them."""

    def __init__(self, pipe: TokenCriticPipeline, limits: Limits) -> None:
        self.pipe, self.limits = pipe, limits

    def generate(self, values: Mapping[str, Any]) -> Generate:
        """values: `classes` (names or numbers; all in turn if none), `num`, `seed`, and the settings."""
        _only_known(values, ("classes", "num", "seed", *SETTINGS))
        return self._generate(values, (self._settings(values),))

    def compare(self, values: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]) -> Generate:
        """The same images in several ways. values: as for `generate`, without settings, which come in `variants`."""
        _only_known(values, ("classes", "num", "seed"))
        for variant in variants:
            _only_known(variant, SETTINGS)
        return self._generate(values, tuple(self._settings(variant) for variant in variants))

    def look(self, picture: Image.Image, values: Mapping[str, Any]) -> Look:
        """values: `class`, or none to ask the classifier."""
        _only_known(values, ("class",))
        if self.pipe.critic is None:
            raise InputError("the model has no critic to say what it distrusts")
        return Look(picture, self._label(values))

    def refine(self, picture: Image.Image, values: Mapping[str, Any]) -> Refine:
        """values: `class`, `ratio`, `seed`, and the settings."""
        _only_known(values, ("class", "ratio", "seed", *SETTINGS))
        ratio = as_number("ratio", values.get("ratio", 0.6), 0.05, 1.0)
        settings = self.pipe.refinement_settings(**self._given_settings(values))
        self._check_work(settings, 1, ratio)
        return Refine(picture, self._label(values), ratio, self._seed(values), settings)

    def edit(self, picture: Image.Image, values: Mapping[str, Any]) -> Edit:
        """values: `region` (positions of tokens, row by row), `move` ([right, down] in tokens), `class`, `seed`, settings."""
        _only_known(values, ("region", "move", "class", "seed", *SETTINGS))
        settings = self._settings(values)
        if settings.candidates > 1:
            raise InputError(f"candidates is {settings.candidates}; an edit is made without rejection, with 1")
        self._check_work(settings, 1)
        height, width = self.pipe.tokenizer.grid
        region, move = values.get("region") or [], values.get("move") or [0, 0]
        for name, value in (("region", region), ("move", move)):
            if not isinstance(value, list | tuple):
                raise InputError(f"{name} is {_short(value)}; expected a list of integers")
        positions = {as_integer("region", position, 0, height * width - 1) for position in region[: height * width]}
        if len(region) > height * width:
            raise InputError(f"region has {len(region)} entries; an image has {height * width} tokens")
        if len(move) != 2:
            raise InputError(f"move has {len(move)} entries; expected two, how far right and how far down")
        right = as_integer("move", move[0], 1 - width, width - 1)
        down = as_integer("move", move[1], 1 - height, height - 1)
        if not positions and (right, down) == (0, 0):
            raise InputError("region is empty and nothing is moved; mark at least one token to draw anew")
        marked = torch.zeros(height * width, dtype=torch.bool)
        marked[sorted(positions)] = True
        return Edit(picture, marked, (right, down), self._label(values), self._seed(values), settings)

    def _generate(self, values: Mapping[str, Any], variants: tuple[SamplingSettings, ...]) -> Generate:
        num = as_integer("num", values.get("num", 16), 1, self.limits.images)
        classes = values.get("classes")
        if isinstance(classes, int | str):
            classes = [classes]
        if classes is not None and not isinstance(classes, list | tuple):
            raise InputError(f"classes is {_short(classes)}; expected a list of names or numbers")
        if classes and len(classes) > (known := self.pipe.generator.num_classes):
            raise InputError(f"classes has {len(classes)} entries; the model has {known}")
        chosen = self._labels(classes) if classes else None
        every = torch.arange(self.pipe.generator.num_classes) if chosen is None else chosen
        labels = every.repeat(-(-num // len(every)))[:num]
        for settings in variants:
            self._check_work(settings, num)
        given = None if chosen is None else tuple(chosen.tolist())
        return Generate(labels, given, self._seed(values, num), variants)

    def _settings(self, values: Mapping[str, Any]) -> SamplingSettings:
        settings = self.pipe.settings(**self._given_settings(values))
        # By its name, so that a command line says it too.
        return dataclasses.replace(settings, sampler=settings.chosen_sampler(self.pipe.critic is not None))

    def _given_settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Those that are there, checked as far as their type goes; what they mean is checked where they are used."""
        given = {name: values[name] for name in SETTINGS if values.get(name) is not None}
        for name in ("steps", "candidates", "passes_per_level"):
            if name in given:
                given[name] = as_integer(name, given[name], 1, getattr(self.limits, name))
        numbers = {"selection_noise": 1000.0, "guidance": 100.0, "critic_from": 1.0, "critic_until": 1.0}
        for name, most in numbers.items():
            if name in given:
                given[name] = as_number(name, given[name], 0.0, most)
        if "temperature" in given:
            given["temperature"] = _temperature(given["temperature"])
        for name in given.keys() - numbers.keys() - {"steps", "candidates", "passes_per_level"}:
            if name != "temperature" and not isinstance(given[name], str):
                raise InputError(f"{name} is {_short(given[name])}; expected a word")
        return given

    def _check_work(self, settings: SamplingSettings, num: int, refine_ratio: float | None = None) -> None:
        for name in ("steps", "candidates", "passes_per_level"):  # a model's own defaults may lie beyond the limits
            as_integer(name, getattr(settings, name), 1, getattr(self.limits, name))
        if settings.guidance != 1 and not has_guidance(self.pipe):
            raise InputError(f"guidance is {settings.guidance}; this model was trained without it, only 1 is possible")
        if settings.candidates > 1 and getattr(self.pipe, settings.reject_by) is None:
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
    """Whether the generator can be guided; one of another make is asked when it comes to it."""
    config = getattr(pipe.generator, "config", None)
    return hasattr(pipe.generator, "guided") and getattr(config, "null_class", True)


def as_integer(name: str, value: Any, low: int, high: int) -> int:
    """A whole number in [low, high]: an int, a float without a fraction, or decimal digits, since a page sends all three."""
    right = f"expected a whole number from {low} to {high}"
    if isinstance(value, str) and len(value) <= 40 and value.strip().removeprefix("-").isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{name} is {_short(value)}; {right}")
    return value


def as_number(name: str, value: Any, low: float, high: float) -> float:
    """A finite number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (low <= value <= high):
        raise InputError(f"{name} is {_short(value)}; expected a number from {low:g} to {high:g}")
    return float(value)


def _temperature(value: Any) -> float | tuple[float, float]:
    if isinstance(value, list | tuple):
        if len(value) != 2:
            raise InputError(f"temperature has {len(value)} entries; expected one number, or its start and end")
        start, end = (as_number("temperature", part, 0.0, 100.0) for part in value)
        return start if start == end else (start, end)
    return as_number("temperature", value, 0.0, 100.0)


def _only_known(values: Mapping[str, Any], known: Sequence[str]) -> None:
    if not isinstance(values, Mapping):
        raise InputError(f"the request is {_short(values)}; expected an object")
    if unknown := sorted(str(name) for name in values.keys() - set(known)):
        raise InputError(f"{_short(unknown[0])} is not known; choose from {', '.join(known)}")


def _short(value: Any) -> str:
    """What came, cut to a length that a message can hold."""
    text = value if isinstance(value, int) and abs(value) < 10**30 else repr(value)[:60]
    return str(text)
