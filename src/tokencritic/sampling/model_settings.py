"""The settings of one model: its defaults, what tuning found, and how a caller's changes join them. Needs no torch."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokencritic.errors import InputError
from tokencritic.files import read_json
from tokencritic.plan import check_window
from tokencritic.sampling.samplers import SAMPLERS
from tokencritic.sampling.settings import GUIDANCE, SamplingSettings

REFINING: dict[str, Any] = {"steps": 9, "critic_window": (1.0, 0.0)}
# What a caller's change of sampler leaves as it is: the rest is what suits one sampler and harms another.
_RANKING = ("candidates", "reject_by")
_SHARED = ("steps", *_RANKING, *GUIDANCE)
Spent = Callable[[SamplingSettings], float]  # what settings are budgeted by in place of NFE


@dataclass(frozen=True)
class Tuned:
    """What tuning found best for a sampler. nfe: at which. models: fingerprints of the parts it was tuned for, by name."""

    settings: SamplingSettings
    nfe: int
    models: dict[str, str]


def tuning_file(folder: Path, sampler: str, nfe: int) -> Path:
    """Where the trials of a tuning lie."""
    return folder / f"tuning-{sampler}-{nfe}.json"


@dataclass(frozen=True)
class ModelSettings:
    """The settings of one model: its defaults, what tuning found, and how a caller's changes join them.

    folder: where the files of tuning lie, None for a model that has no folder. published: the authors' settings of an imported
    generator, for the sampler that they name.
    """

    defaults: SamplingSettings
    num_tokens: int
    has_critic: bool
    folder: Path | None = None
    has_inline_critic: bool = False
    published: SamplingSettings | None = None

    def changed(self, **changes: Any) -> SamplingSettings:
        """The model's defaults with some settings changed.

        What suits one sampler harms another, so another one than the default has none of its temperature, noise and schedule.
        It has what tuning found at the nearest NFE, else its published settings, with the model's guidance. Random
        re-masking in place of the critic keeps them: it is the control. The default critic window is widened where it
        contains none of the caller's steps.
        """
        _check_names(changes)
        changed = dataclasses.replace(self.defaults, **changes)
        chosen, usual = changed.row(self.has_critic).name, self.defaults.row(self.has_critic).name
        if (chosen, usual) == ("random-remask", "critic"):
            changed = dataclasses.replace(self.defaults.with_random_remasking(), **changes)
        elif chosen != usual:
            shared = {name: vars(self.defaults)[name] for name in _SHARED}
            changed = SamplingSettings(**shared | changes)
            at = (changed if "steps" in changes else self.defaults).nfe(self.num_tokens, self.has_critic)
            found = self.tuned(chosen, at)
            theirs = found.settings if found is not None else self.published
            if theirs is not None and theirs.sampler == chosen:
                changed = dataclasses.replace(theirs, **{name: shared[name] for name in _RANKING} | changes)
        return changed if "critic_window" in changes else self.opened(changed)

    def opened(self, settings: SamplingSettings) -> SamplingSettings:
        """The settings with the critic window widened, if it contains no step, until it contains one."""
        return settings.with_open_window(self.num_tokens) if settings.row(self.has_critic).revokes else settings

    def for_refinement(self, **changes: Any) -> SamplingSettings:
        """The model's defaults for refinement: 9 steps, and the critic active from first to last unless changed."""
        _check_names(changes)
        sampler = changes.get("sampler")
        if sampler in SAMPLERS and not SAMPLERS[sampler].refines:
            able = ", ".join(row.name for row in SAMPLERS.values() if row.refines)
            raise InputError(f"sampler is {sampler}, which knows only tokens it sampled itself; refine with {able}")
        if not (self.has_critic or self.has_inline_critic) and sampler is None:
            raise InputError("the model has no critic to say which tokens to refine")
        check_window(window := changes.get("critic_window", (1, 0)))
        if window[0] != 1:
            raise InputError(
                f"critic_window is {changes['critic_window']}; refinement starts with the critic: start at 1"
            )
        judge = sampler or ("critic" if self.has_critic else "inline")
        return self.changed(**{**REFINING, **changes, "sampler": judge})

    def for_sampler(self, sampler: str, spent: Spent | None = None) -> SamplingSettings:
        """What suits a sampler, without rejection: the defaults for the sampler that they are made for; for another what
        `at_nfe` finds at the NFE of those defaults, or at what they spend, rounded up in favour of the other.
        """
        plain = self.changed(candidates=1)
        if sampler == plain.row(self.has_critic).name:
            return dataclasses.replace(plain, sampler=sampler)
        most = spent(plain) if spent else plain.nfe(self.num_tokens, self.has_critic)
        return self.at_nfe(sampler, math.ceil(most), spent)

    def at_nfe(self, sampler: str, nfe: float, spent: Spent | None = None) -> SamplingSettings:
        """The settings of a sampler at an NFE: those that tuning found best where it was run, else the model's own.

        spent: see `fitted`.
        """
        found = self.tuned(sampler, nfe)
        settings = self.changed(sampler=sampler) if found is None else found.settings
        return self.fitted(dataclasses.replace(settings, sampler=sampler, candidates=1), nfe, spent)

    def fitted(self, settings: SamplingSettings, nfe: float, spent: Spent | None = None) -> SamplingSettings:
        """The settings with the fewest steps that come nearest to an NFE from below, and an open critic window.

        spent: what else is to come nearest to it, such as the cost.
        """
        spent = spent or (lambda one: one.nfe(self.num_tokens, self.has_critic))
        best, most = None, 0.0
        for steps in range(
            1, 2 * math.ceil(nfe) + 1
        ):  # some samplers skip steps, and take more of them than evaluations
            tried = self.opened(dataclasses.replace(settings, steps=steps))
            if most < (needed := spent(tried)) <= nfe:
                best, most = tried, needed
        if best is None:
            least = spent(dataclasses.replace(settings, steps=1))
            raise InputError(f"nfe is {nfe:g}; one step of these settings takes {least:g} already")
        return best

    def tuned(self, sampler: str, nfe: float) -> Tuned | None:
        """What tuning found best for a sampler at this NFE, else at the nearest one; None without any."""
        files: Iterable[Path] = () if self.folder is None else self.folder.glob(f"tuning-{sampler}-*.json")
        by_nfe = {int(n): file for file in files if (n := file.stem.rsplit("-", maxsplit=1)[1]).isdecimal()}
        if not by_nfe:
            return None
        nearest = min(sorted(by_nfe), key=lambda number: abs(number - nfe))
        file = by_nfe[nearest]
        try:
            found = read_json(file)
            return Tuned(SamplingSettings(**found["best"]), nearest, dict(found["models"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{file} is not what tuning wrote: {error}") from error


def untuned_critic(defaults: SamplingSettings) -> SamplingSettings:
    """Settings for a critic of unknown strength, with the steps and guidance of the model's defaults.

    The critic chooses late and with much noise: a weak critic then harms little. With the paper's settings it would collapse
    to uniform images.
    """
    shared = {name: vars(defaults)[name] for name in _SHARED}
    late = {"noise_kind": "gumbel", "selection_noise": 3.4, "critic_window": (0.53, 0.0)}
    return SamplingSettings("critic", temperature=(1.1, 0.8), **late, **shared)


def _check_names(changes: dict[str, Any]) -> None:
    known = {field.name for field in dataclasses.fields(SamplingSettings)}
    if unknown := sorted(changes.keys() - known):
        raise InputError(f"unknown setting {unknown[0]!r}; choose from {', '.join(sorted(known))}")
