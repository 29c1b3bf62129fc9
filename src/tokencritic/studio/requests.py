"""Checks of the values in a request, and conversion of the values to work."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image

from tokencritic.errors import InputError
from tokencritic.pipeline import Given, TokenCriticPipeline
from tokencritic.sampling.settings import REFINEMENT_RATIO, SamplingSettings
from tokencritic.studio.limits import Limits
from tokencritic.studio.work import Work, known_labels
from tokencritic.tokenizers.regions import grid_of, place_grid, whole_places

_SETTINGS = tuple(field.name for field in dataclasses.fields(SamplingSettings))
# Bounds of numeric settings. A temperature may also be a pair of numbers; a critic window is a pair.
_BOUNDS = {
    "temperature": (0, 100),
    "selection_noise": (0, 1000),
    "critic_window": (0, 1),
    "early_noise": (0, 1000),
    "remask_quota": (0, 1),
    "remask_noise": (0, 1000),
    "guidance": (0, 100),
    "guidance_power": (0.01, 100),
}


class Requests:
    """A factory of `Work` from the values in a request. Invalid values raise InputError with a message of one line.

    The pipeline checks that the settings are valid together.

    bounds: (low, high) of each numeric setting, by name.
    """

    def __init__(self, pipe: TokenCriticPipeline, limits: Limits) -> None:
        self.pipe, self.limits = pipe, limits
        self.bounds = {"steps": (1, limits.steps), "candidates": (1, limits.candidates), **_BOUNDS}

    @property
    def compare_cost(self) -> int:
        """The default cost per image of a comparison: that of the model's defaults without rejection, rounded up.

        It is at most the limit of steps, which also limits the cost.
        """
        cost = math.ceil(self.pipe.cost(self.pipe.settings(candidates=1)) - 1e-9)
        return min(cost, self.limits.steps)

    def generate(self, values: Mapping[str, Any]) -> Work:
        """Return work that samples new images.

        values: `classes` (names or numbers that take turns; by default all), `num`, `seed`, and the settings.
        """
        _check_names(values, "classes", "num", "seed", *_SETTINGS)
        return self._make("generate", values, [self._settings(values)])

    def compare(self, values: Mapping[str, Any]) -> Work:
        """Return work that samples with two samplers, each with its best settings at one cost.

        Both samplers use the same labels and seeds.

        values: `classes`, `num`, `seed`, `cost` (per image, in generator evaluations), `samplers` (two names).
        """
        _check_names(values, "classes", "num", "seed", "cost", "samplers")
        cost = _as_number("cost", values.get("cost", self.compare_cost), 1, self.limits.steps)
        sampling, found = self.pipe.sampling, []
        for name in _as_list("samplers", values.get("samplers") or [], 2):
            self.pipe.settings(sampler=self._setting("sampler", name))  # raises InputError for an invalid name
            found.append(sampling.at_nfe(name, cost, self.pipe.cost).of(self.pipe.critic is not None))
        if len(found) != 2:
            raise InputError(f"samplers has {len(found)} entries; expected two")
        return self._make("compare", values, found)

    def _make(self, kind: str, values: Mapping[str, Any], variants: Sequence[SamplingSettings]) -> Work:
        """Return work that samples new images with each of the settings."""
        num = _as_number("num", values.get("num", 16), 1, self.limits.images, whole=True)
        known = self.pipe.generator.num_classes
        classes = _as_list("classes", values.get("classes") or [], known)
        turns = self._labels(classes) if classes else torch.arange(max(known, 1))  # all 0 for a model without classes
        labels = turns.repeat(-(-num // len(turns)))[:num]
        # The cost of a comparison is limited in place of its steps, some of which may have no effect.
        limited = ("candidates",) if kind == "compare" else ("steps", "candidates")
        for settings in variants:
            self._check_work(settings, num, limited=limited)
        asked = tuple(turns.tolist()) if classes else None
        bound = self.limits.trace_bytes
        return Work(kind, self._seed(values, num), labels, tuple(variants), asked, trace_bytes=bound)

    def look(self, picture: Image.Image, values: Mapping[str, Any]) -> Work:
        """Return work that scores a picture with the critic.

        values: `class`; by default the classifier's prediction.
        """
        return Work("look", 0, self._label(values), picture=picture)

    def refine(self, picture: Image.Image, values: Mapping[str, Any]) -> Work:
        """Return work that refines a picture.

        values: `class`, `ratio`, `seed`, and the settings.
        """
        _check_names(values, "class", "ratio", "seed", *_SETTINGS)
        ratio = _as_number("ratio", values.get("ratio", REFINEMENT_RATIO), 0.05, 1)
        settings = self.pipe.sampling.for_refinement(**self._given_settings(values))
        self._check_work(settings, 1, ratio)
        return Work("refine", self._seed(values), self._label(values), (settings,), picture=picture, ratio=ratio)

    def edit(self, picture: Image.Image, values: Mapping[str, Any]) -> Work:
        """Return work that edits a picture.

        values: `region` (positions of tokens in row-major order), `move` ([right, down] in places), `class`, `seed`,
        and the settings.
        """
        _check_names(values, "region", "move", "class", "seed", *_SETTINGS)
        (height, width), settings = grid_of(self.pipe.tokenizer), self._settings(values)
        if settings.candidates > 1:
            raise InputError(f"candidates is {settings.candidates}; an edit is made without rejection, with 1")
        self._check_work(settings, 1)
        region, move = _as_list("region", values.get("region") or [], height * width), values.get("move") or (0, 0)
        if len(_as_list("move", move, 2)) != 2:
            raise InputError(f"move has {len(move)} entries; expected two, how far right and how far down")
        sides = zip(move, reversed(place_grid(self.pipe.tokenizer)), strict=True)
        right, down = (_as_number("move", far, 1 - side, side - 1, whole=True) for far, side in sides)
        marked = torch.zeros(height * width, dtype=torch.bool)
        marked[[_as_number("region", position, 0, height * width - 1, whole=True) for position in region]] = True
        if not marked.any() and not right and not down:
            raise InputError("region is empty and nothing is moved; mark at least one token to resample")
        seed, label = self._seed(values), self._label(values)
        marked = whole_places(marked, self.pipe.tokenizer)
        return Work("edit", seed, label, (settings,), picture=picture, region=marked, move=(right, down))

    def _settings(self, values: Mapping[str, Any]) -> SamplingSettings:
        return self.pipe.settings(**self._given_settings(values)).of(self.pipe.critic is not None)

    def _given_settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._setting(name, values[name]) for name in _SETTINGS if values.get(name) is not None}

    def _setting(self, name: str, value: Any) -> Any:
        if name == "halton_roll":
            if not isinstance(value, bool):
                raise InputError(f"{name} is {_short(value)}; expected true or false")
            return value
        if name not in self.bounds:
            if not isinstance(value, str):
                raise InputError(f"{name} is {_short(value)}; expected a word")
            return value
        if name in ("temperature", "critic_window") and isinstance(value, list | tuple) and len(value) == 2:
            return tuple(_as_number(name, part, *self.bounds[name]) for part in value)
        return _as_number(name, value, *self.bounds[name], whole=name in ("steps", "candidates"))

    def _check_work(
        self,
        settings: SamplingSettings,
        num: int,
        refine_ratio: float | None = None,
        limited: Sequence[str] = ("steps", "candidates"),
    ) -> None:
        for name in limited:  # the model's defaults may exceed the limits
            self._setting(name, vars(settings)[name])
        nfe = num * self.pipe.nfe(settings, refine_ratio)
        if nfe > self.limits.nfe:
            raise InputError(
                f"that takes {nfe} network evaluations; at most {self.limits.nfe} are done at a time: "
                "ask for fewer images, steps or candidates"
            )
        tokens = torch.zeros(1, self.pipe.tokenizer.num_tokens, dtype=torch.int64)
        given = None if refine_ratio is None else Given(tokens, refine_ratio)
        # Raises the errors of invalid arguments without sampling.
        self.pipe.token_batches(known_labels(self.pipe, tokens[:, 0]), [0], settings, given)

    def _label(self, values: Mapping[str, Any]) -> torch.Tensor | None:
        label = values.get("class")
        if label is None or label == "":
            if self.pipe.generator.num_classes <= 1:
                return torch.zeros(1, dtype=torch.int64)
            if self.pipe.classifier is None:
                raise InputError("class is missing, and the model has no classifier to find it; choose one")
            return None
        return self._labels([label])

    def _labels(self, classes: Sequence[Any]) -> torch.Tensor:
        for label in classes:
            if isinstance(label, bool) or not isinstance(label, int | str) or len(str(label)) > 200:
                raise InputError(f"classes holds {_short(label)}; expected names or numbers")
        labels = self.pipe.classes.labels(list(classes), "classes")
        assert labels is not None
        return labels

    def _seed(self, values: Mapping[str, Any], num: int = 1) -> int:
        return _as_number("seed", values.get("seed", 0), 0, 2**63 - num, whole=True)


def _as_number(name: str, value: Any, low: float, high: float, *, whole: bool = False) -> Any:
    """Return a number in [low, high]. Raises InputError for any other value.

    whole: return an int. The value may be an int, a float or a string of digits, because a page sends all three.
    """
    if whole and isinstance(value, str) and len(value) <= 40 and value.strip().removeprefix("-").isdecimal():
        value = int(value)
    if whole and isinstance(value, float) and value.is_integer():
        value = int(value)
    kinds = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        kind = "whole number" if whole else "number"
        raise InputError(f"{name} is {_short(value)}; expected a {kind} from {low} to {high}")
    return value if whole else float(value)


def _as_list(name: str, value: Any, most: int) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or len(value) > most:
        raise InputError(f"{name} is {_short(value)}; expected a list of at most {most}")
    return value


def _check_names(values: Mapping[str, Any], *known: str) -> None:
    if unknown := sorted(values.keys() - set(known)):
        raise InputError(f"{_short(unknown[0])} is not known; choose from {', '.join(known)}")


def _short(value: Any) -> str:
    """Return a value as text, shortened for an error message."""
    text = value if isinstance(value, int) and abs(value) < 10**30 else repr(value)[:60]
    return str(text)
