"""The sampling settings of a model: defaults, tuned settings and a caller's changes. Importable without torch."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokencritic.errors import InputError
from tokencritic.files import check_fields, read_json
from tokencritic.plan import check_window
from tokencritic.sampling.samplers import SAMPLERS
from tokencritic.sampling.settings import GUIDANCE, SamplingSettings, settings_from

REFINING: dict[str, Any] = {"steps": 9, "critic_window": (1.0, 0.0)}
# Defaults that stay when a caller changes the sampler. The other settings suit only the sampler they were chosen for.
_RANKING = ("candidates", "reject_by")
_SHARED = ("steps", *_RANKING, *GUIDANCE)
Spent = Callable[[SamplingSettings], float]  # a budget other than NFE, such as the cost


@dataclass(frozen=True)
class Tuned:
    """The best settings that tuning found for a sampler.

    nfe: the NFE of the tuning.
    models: the fingerprints of the tuned model's parts, by name.
    """

    settings: SamplingSettings
    nfe: int
    models: dict[str, str]


def tuning_file(folder: Path, sampler: str, nfe: int) -> Path:
    """Return the file of a tuning's trials."""
    return folder / f"tuning-{sampler}-{nfe}.json"


@dataclass(frozen=True)
class ModelSettings:
    """The sampling settings of a model: defaults, tuned settings and a caller's changes.

    num_tokens: N, tokens per image.
    folder: the folder of the tuning files; None for a model without a folder.
    published: the authors' settings of an imported generator, for their sampler.
    """

    defaults: SamplingSettings
    num_tokens: int
    has_critic: bool
    folder: Path | None = None
    has_inline_critic: bool = False
    published: SamplingSettings | None = None

    def changed(self, **changes: Any) -> SamplingSettings:
        """Return the model's defaults with some settings changed.

        The defaults suit one sampler. Another sampler gets its tuned settings at the nearest NFE, else the published
        ones, else those of `SamplingSettings` with the model's steps and guidance. Random re-masking, as the control,
        keeps the critic's. The default critic window is widened if it contains none of the steps.
        """
        _check_names(changes)
        changed = dataclasses.replace(self.defaults, **changes)
        chosen, usual = changed.row(self.has_critic).name, self.defaults.row(self.has_critic).name
        if (chosen, usual) == ("random-remask", "critic"):
            changed = dataclasses.replace(self.defaults.with_random_remasking(), **changes)
        elif chosen != usual:
            shared = {name: vars(self.defaults)[name] for name in _SHARED}
            changed = SamplingSettings(**shared | changes)
            # Tuning samples images without rejection, so the other candidates do not count.
            image = dataclasses.replace(changed if "steps" in changes else self.defaults, candidates=1)
            found = self.tuned(chosen, image.nfe(self.num_tokens, self.has_critic))
            theirs = found.settings if found is not None else self.published
            if theirs is not None and theirs.sampler == chosen:
                changed = dataclasses.replace(theirs, **{name: shared[name] for name in _RANKING} | changes)
        return changed if "critic_window" in changes else self.opened(changed)

    def opened(self, settings: SamplingSettings) -> SamplingSettings:
        """Return the settings, with a critic window that is widened to contain a step if it contains none."""
        return settings.with_open_window(self.num_tokens) if settings.row(self.has_critic).revokes else settings

    def for_refinement(self, **changes: Any) -> SamplingSettings:
        """Return the model's defaults for refinement, changed. By default the critic is active at all of 9 steps."""
        _check_names(changes)
        sampler = changes.get("sampler")
        if sampler in SAMPLERS and not SAMPLERS[sampler].refines:
            able = ", ".join(row.name for row in SAMPLERS.values() if row.refines)
            raise InputError(f"sampler is {sampler}, which cannot score given tokens; refine with one of {able}")
        if not (self.has_critic or self.has_inline_critic) and sampler is None:
            raise InputError("the model has no critic for refinement; choose a sampler, such as random-remask")
        check_window(window := changes.get("critic_window", (1, 0)))
        if window[0] != 1:
            got = changes["critic_window"]
            raise InputError(
                f"critic_window is {got}; expected a start of 1, because refinement starts with the critic"
            )
        judge = sampler or ("critic" if self.has_critic else "inline")
        return self.changed(**{**REFINING, **changes, "sampler": judge})

    def for_sampler(self, sampler: str, spent: Spent | None = None) -> SamplingSettings:
        """Return the settings of a sampler without rejection: the defaults for the default sampler, else `at_nfe`.

        spent: a budget other than NFE, as in `fitted`. The limit is the budget that the defaults spend, rounded up.
        """
        plain = self.changed(candidates=1)
        if sampler == plain.row(self.has_critic).name:
            return dataclasses.replace(plain, sampler=sampler)
        most = spent(plain) if spent else plain.nfe(self.num_tokens, self.has_critic)
        return self.at_nfe(sampler, math.ceil(most), spent)

    def at_nfe(self, sampler: str, nfe: float, spent: Spent | None = None) -> SamplingSettings:
        """Return the settings of a sampler at an NFE: tuned settings if there are any, else the model's.

        spent: as in `fitted`.
        """
        found = self.tuned(sampler, nfe)
        settings = self.changed(sampler=sampler) if found is None else found.settings
        return self.fitted(dataclasses.replace(settings, sampler=sampler, candidates=1), nfe, spent)

    def fitted(self, settings: SamplingSettings, nfe: float, spent: Spent | None = None) -> SamplingSettings:
        """Return the settings with as many steps as an NFE allows, and a critic window that contains a step.

        spent: a budget other than NFE, such as the cost; `nfe` is then its limit.
        """
        spent = spent or (lambda one: one.nfe(self.num_tokens, self.has_critic))
        best, most = None, 0.0
        # Some samplers skip steps, so the number of steps can exceed the NFE.
        for steps in range(1, 2 * math.ceil(nfe) + 1):
            tried = self.opened(dataclasses.replace(settings, steps=steps))
            if most < (needed := spent(tried)) <= nfe:
                best, most = tried, needed
        if best is None:
            least = spent(dataclasses.replace(settings, steps=1))
            raise InputError(f"nfe is {nfe:g}; expected at least {least:g}, which one step of these settings needs")
        return best

    def tuned(self, sampler: str, nfe: float) -> Tuned | None:
        """Return the tuned settings of a sampler at the nearest NFE; None without any."""
        files: Iterable[Path] = () if self.folder is None else self.folder.glob(f"tuning-{sampler}-*.json")
        by_nfe = {int(n): file for file in files if (n := file.stem.rsplit("-", maxsplit=1)[1]).isdecimal()}
        if not by_nfe:
            return None
        nearest = min(sorted(by_nfe), key=lambda number: abs(number - nfe))
        file = by_nfe[nearest]
        try:
            found = read_json(file)
            check_fields(file, found, {"best": dict, "models": dict})
            return Tuned(settings_from(found["best"]), nearest, found["models"])
        except InputError as error:
            raise InputError(f"{file} is not a tuning file: {error}") from error


def untuned_critic(defaults: SamplingSettings) -> SamplingSettings:
    """Return settings for a critic of unknown quality, with the steps and guidance of the model's defaults.

    The critic window is late and the noise strong, so that a weak critic does little harm. With the paper's settings
    its images have less variety.
    """
    shared = {name: vars(defaults)[name] for name in _SHARED}
    late = {"noise_kind": "gumbel", "selection_noise": 3.4, "critic_window": (0.53, 0.0)}
    return SamplingSettings("critic", temperature=(1.1, 0.8), **late, **shared)


def _check_names(changes: dict[str, Any]) -> None:
    known = {field.name for field in dataclasses.fields(SamplingSettings)}
    if unknown := sorted(changes.keys() - known):
        raise InputError(f"unknown setting {unknown[0]!r}; choose from {', '.join(sorted(known))}")
