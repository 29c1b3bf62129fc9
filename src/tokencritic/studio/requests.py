"""What a client may ask for: plain values, as a page or a JSON holds them, checked and made into work."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image

from tokencritic.errors import InputError
from tokencritic.pipeline import Given, TokenCriticPipeline
from tokencritic.sampling.settings import REFINEMENT_RATIO, SamplingSettings
from tokencritic.studio.work import Change, Generate
from tokencritic.tokenizers.regions import grid_of


@dataclass(frozen=True)
class Limits:
    """How much one client, and all of them together, may ask for.

    images, steps, candidates: of one job. nfe: network evaluations of one job, over all its images.
    upload_bytes, upload_pixels: of one picture. waiting: jobs that wait for their turn. per_client: unfinished jobs of one
    page. wait_seconds: how long a job waits before it is given up. run_seconds: how long it may take.
    kept_runs, kept_pictures: how many are held in memory for those who ask for them later.
    """

    images: int = 64
    steps: int = 128
    candidates: int = 16
    nfe: int = 50_000
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
        # The kind of each setting, and its bounds; what a setting means is checked by the pipeline.
        self._settings_of: dict[str, tuple[type, float, float]] = {
            "sampler": (str, 0, 0),
            "steps": (int, 1, limits.steps),
            "temperature": (float, 0, 100),
            "selection_noise": (float, 0, 1000),
            "noise_kind": (str, 0, 0),
            "critic_window": (tuple, 0, 1),
            "early_noise": (float, 0, 1000),
            "guidance": (float, 0, 100),
            "candidates": (int, 1, limits.candidates),
            "reject_by": (str, 0, 0),
        }

    def generate(self, values: Mapping[str, Any]) -> Generate:
        """values: `classes` (names or numbers; all in turn if none), `num`, `seed`, and the settings."""
        _check_names(values, "classes", "num", "seed", *self._settings_of)
        return self._new_images("generate", values, [values])

    def compare(self, values: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]) -> Generate:
        """The same images in several ways. values: as for `generate`, without settings, which come in `variants`."""
        _check_names(values, "classes", "num", "seed")
        for variant in variants:
            _check_names(variant, *self._settings_of)
        return self._new_images("compare", values, variants)

    def look(self, picture: Image.Image, values: Mapping[str, Any]) -> Change:
        """What the critic thinks of a picture. values: `class`, or none to ask the classifier."""
        _check_names(values, "class")
        if self.pipe.critic is None:
            raise InputError("the model has no critic to say what it distrusts")
        return Change("look", 0, picture, self._label(values))

    def refine(self, picture: Image.Image, values: Mapping[str, Any]) -> Change:
        """values: `class`, `ratio`, `seed`, and the settings."""
        _check_names(values, "class", "ratio", "seed", *self._settings_of)
        ratio = as_number("ratio", values.get("ratio", REFINEMENT_RATIO), 0.05, 1.0)
        settings = self.pipe.sampling.for_refinement(**self._given_settings(values))
        self._check_work(settings, 1, ratio)
        return Change("refine", self._seed(values), picture, self._label(values), settings, ratio)

    def edit(self, picture: Image.Image, values: Mapping[str, Any]) -> Change:
        """values: `region` (positions of tokens, row by row), `move` ([right, down] in tokens), `class`, `seed`, settings."""
        _check_names(values, "region", "move", "class", "seed", *self._settings_of)
        (height, width), settings = grid_of(self.pipe.tokenizer), self._settings(values)
        if settings.candidates > 1:
            raise InputError(f"candidates is {settings.candidates}; an edit is made without rejection, with 1")
        self._check_work(settings, 1)
        positions = _as_integers("region", values.get("region") or [], [(0, height * width - 1)] * height * width)
        moves = _as_integers("move", values.get("move") or [0, 0], [(1 - width, width - 1), (1 - height, height - 1)])
        if len(moves) != 2:
            raise InputError(f"move has {len(moves)} entries; expected two, how far right and how far down")
        if not positions and not any(moves):
            raise InputError("region is empty and nothing is moved; mark at least one token to resample")
        marked = torch.zeros(height * width, dtype=torch.bool)
        marked[positions] = True
        seed, label = self._seed(values), self._label(values)
        return Change("edit", seed, picture, label, settings, region=marked, move=(moves[0], moves[1]))

    def _new_images(self, kind: str, values: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]) -> Generate:
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
        chosen = tuple(self._settings(variant) for variant in variants)
        for settings in chosen:
            self._check_work(settings, num)
        return Generate(kind, self._seed(values, num), labels, tuple(turns.tolist()) if classes else None, chosen)

    def _settings(self, values: Mapping[str, Any]) -> SamplingSettings:
        settings = self.pipe.settings(**self._given_settings(values))
        # By its name, so that a command line says it too.
        return dataclasses.replace(settings, sampler=settings.row(self.pipe.critic is not None).name)

    def _given_settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: values[name] for name in self._settings_of if values.get(name) is not None}
        return {name: _as_setting(name, value, *self._settings_of[name]) for name, value in given.items()}

    def _check_work(self, settings: SamplingSettings, num: int, refine_ratio: float | None = None) -> None:
        as_integer("steps", settings.steps, 1, self.limits.steps)  # a model's own defaults may lie beyond the limits
        as_integer("candidates", settings.candidates, 1, self.limits.candidates)
        nfe = num * self.pipe.nfe(settings, refine_ratio)
        if nfe > self.limits.nfe:
            raise InputError(
                f"that takes {nfe} network evaluations; at most {self.limits.nfe} are done at a time: "
                "ask for fewer images, steps or candidates"
            )
        tokens = torch.zeros(1, self.pipe.tokenizer.num_tokens, dtype=torch.int64)
        given = None if refine_ratio is None else Given(tokens, refine_ratio)
        self.pipe.token_batches(
            tokens[:, 0], 0, settings, given
        )  # raises what sampling would raise, and samples nothing

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


def as_integer(name: str, value: Any, low: int, high: int) -> int:
    """A whole number in [low, high]: an int, a float without a fraction, or decimal digits, since a page sends all three."""
    if isinstance(value, str) and len(value) <= 40 and value.strip().removeprefix("-").isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{name} is {_short(value)}; expected a whole number from {low} to {high}")
    return value


def _as_integers(name: str, value: Any, bounds: Sequence[tuple[int, int]]) -> list[int]:
    """A list of at most as many whole numbers as there are bounds (low, high), each within its own."""
    if not isinstance(value, list | tuple) or len(value) > len(bounds):
        raise InputError(f"{name} is {_short(value)}; expected a list of at most {len(bounds)} integers")
    return [as_integer(name, number, *bound) for number, bound in zip(value, bounds, strict=False)]


def as_number(name: str, value: Any, low: float, high: float) -> float:
    """A finite number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (low <= value <= high):
        raise InputError(f"{name} is {_short(value)}; expected a number from {low:g} to {high:g}")
    return float(value)


def _as_setting(name: str, value: Any, kind: type, low: float, high: float) -> Any:
    """A value of one kind, checked; a number may be a pair (start, end) for a temperature, and is one for `tuple`."""
    if kind is int:
        return as_integer(name, value, int(low), int(high))
    if kind is str:
        if not isinstance(value, str):
            raise InputError(f"{name} is {_short(value)}; expected a word")
        return value
    if kind is float and not (name == "temperature" and isinstance(value, list | tuple)):
        return as_number(name, value, low, high)
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InputError(f"{name} is {_short(value)}; expected its start and end")
    return tuple(as_number(name, part, low, high) for part in value)


def _check_names(values: Mapping[str, Any], *known: str) -> None:
    if not isinstance(values, Mapping):
        raise InputError(f"the request is {_short(values)}; expected an object")
    if unknown := sorted(str(name) for name in values.keys() - set(known)):
        raise InputError(f"{_short(unknown[0])} is not known; choose from {', '.join(known)}")


def _short(value: Any) -> str:
    """A value as text, cut to a length that a message can hold."""
    text = value if isinstance(value, int) and abs(value) < 10**30 else repr(value)[:60]
    return str(text)
