"""Figures of a diagnosis: what the critic thinks of tokens, how well it tells them apart, how far it can be believed, and
what happens while sampling. Everything is told apart by colour and by line style or marker, so that it reads in print too.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tokencritic.files import write_atomically
from tokencritic.pictures.colours import colour_scale
from tokencritic.pictures.curves import COLOURS, NAMES

Section = Mapping[str, Any]

# Of Okabe and Ito, as in the trade-off curves.
_BLUE, _VERMILION, _GREEN, _BLACK = "#0072B2", "#D55E00", "#009E73", "#000000"
_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "original": ("original", {"color": _BLUE, "linestyle": "-"}),
    "changed": ("drawn again, changed", {"color": _VERMILION, "linestyle": "--"}),
    "equal": ("drawn again, equal to the original", {"color": _GREEN, "linestyle": ":"}),
}
_TARGETS = {"masked": "share that was not hidden", "changed": "share with the original's code"}
_GROUPS: dict[str, tuple[str, dict[str, Any]]] = {
    "taken_back": ("taken back", {"linestyle": "-", "marker": "o"}),
    "drawn_again": ("hidden again at once", {"linestyle": "--", "marker": "s"}),
    "kept": ("kept", {"linestyle": ":", "marker": "^"}),
}
# A measure of the report and what stands for it.
_JUDGES: dict[str, tuple[str, dict[str, Any]]] = {
    "auc": ("critic, tokens of all images", {"color": _BLACK, "linestyle": ":", "marker": "D"}),
    "auc_within_image": ("critic, tokens of one image", {"color": _BLUE, "linestyle": "-", "marker": "o"}),
    "critic": ("critic, tokens drawn again", {"color": _BLUE, "linestyle": "-.", "marker": "^"}),
    "confidence": (
        "generator's confidence, tokens drawn again",
        {"color": _VERMILION, "linestyle": "--", "marker": "s"},
    ),
}
_RATIO_SHADES, _RATIO_MARKERS = (90, 140, 190, 245), "sD^v"


def diagnosis_figures(held_out: Section, sampling: Mapping[str, Section], folder: Path, explained: str) -> list[Path]:
    """Draw all figures as PNG files in a folder that is there; returns them.

    held_out: as `held_out_report` gives it. sampling: by sampler, as `sampling_report` gives it. explained: a line below
    each figure that says what was measured.
    """
    figures: dict[str, Callable[[], Figure]] = {
        "scores.png": partial(draw_scores, held_out["by_ratio"], explained),
        "auc.png": partial(draw_auc, held_out["by_ratio"], explained),
        "calibration.png": partial(draw_calibration, held_out, explained),
        "sampling.png": partial(draw_sampling, sampling, explained),
    }
    for name, draw in figures.items():
        write_atomically(folder / name, partial(draw().savefig, format="png"))
    return [folder / name for name in figures]


def draw_scores(sections: Sequence[Section], explained: str = "") -> Figure:
    """Histograms of scores by kind of token, one panel for each bin of the mask ratio. sections: `by_ratio`."""
    figure, panels = _figure(1, len(sections), explained)
    for axes, section in zip(panels[0], sections, strict=True):
        for kind, (label, style) in _KINDS.items():
            counts = np.array(section["histogram"][kind], float)
            if counts.sum():
                edges = np.linspace(0, 1, len(counts) + 1)
                axes.stairs(counts / counts.sum(), edges, label=label, linewidth=1.6, **style)
        axes.set_title(f"{_range(section)} % hidden, {section['images']} images", fontsize=9)
        axes.set_xlabel("critic's score (higher: more real)")
    panels[0][0].set_ylabel("share of the tokens of a kind")
    _legend(figure, panels)
    return figure


def draw_auc(sections: Sequence[Section], explained: str = "") -> Figure:
    """How well tokens are told apart at each mask ratio. sections: `by_ratio`."""
    both = ("auc", "auc_within_image")
    drawn = {
        "was it hidden?": [(judge, judge, "masked") for judge in both],
        "has it another code?": [(judge, judge, "changed") for judge in both],
        "drawn again: has it another code?": [(judge, "auc_of_redrawn", judge) for judge in ("critic", "confidence")],
    }
    figure, panels = _figure(1, len(drawn), explained)
    for axes, (title, lines) in zip(panels[0], drawn.items(), strict=True):
        for judge, measure, name in lines:
            label, style = _JUDGES[judge]
            axes.plot(range(len(sections)), [_number(one[measure][name]) for one in sections], label=label, **style)
        axes.axhline(0.5, color="#808080", linewidth=0.8)  # chance
        axes.set_xticks(range(len(sections)), [_range(one) for one in sections])
        axes.set_xlabel("tokens hidden, in per cent")
        axes.set_title(title, fontsize=9)
    panels[0][0].set_ylabel("AUC (0.5: chance, 1: never wrong)")
    _legend(figure, panels)
    return figure


def draw_calibration(held_out: Section, explained: str = "") -> Figure:
    """Reliability curves against both targets, over all images and by mask ratio. held_out: as `held_out_report` gives it."""
    figure, panels = _figure(1, len(_TARGETS), explained)
    for axes, (target, title) in zip(panels[0], _TARGETS.items(), strict=True):
        axes.plot([0, 1], [0, 1], color="#808080", linewidth=0.8)
        for section, shade, marker in zip(held_out["by_ratio"], _RATIO_SHADES, _RATIO_MARKERS, strict=True):
            colour = tuple(colour_scale()[shade] / 255)
            label = f"{_range(section)} % hidden"
            _draw_curve(axes, section, target, label, color=colour, marker=marker, linewidth=1.0)
        _draw_curve(axes, held_out["all"], target, "all", color=_BLACK, marker="o", linewidth=2.2)
        axes.set_xlabel("critic's score")
        axes.set_ylabel(title)
        error = held_out["all"]["calibration"][target]["error"]
        axes.set_title(f"expected calibration error {error:.3f}", fontsize=9)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    _legend(figure, panels)
    return figure


def _draw_curve(axes: Axes, section: Section, target: str, label: str, **style: Any) -> None:
    curve = section["calibration"][target]
    places = [place for place, count in enumerate(curve["counts"]) if count]
    points = ([curve[name][place] for place in places] for name in ("scores", "shares"))
    axes.plot(*points, label=label, markersize=4, **style)


def draw_sampling(sampling: Mapping[str, Section], explained: str = "") -> Figure:
    """What happens step by step, for each sampler by its name."""
    figure, panels = _figure(2, 2, explained, sharey=False)
    mean, often, same, gain = panels.flat
    for sampler, report in sampling.items():
        colour, name, steps = COLOURS[sampler], NAMES[sampler], report["steps"]
        numbers = [step["step"] for step in steps]
        plain: dict[str, Any] = {"color": colour, "linestyle": "-" if sampler == "critic" else "--", "linewidth": 1.8}
        mean.plot(numbers, [step["mean_score"] for step in steps], label=name, **plain)
        taken = [step["taken_back"]["per_image"] for step in steps[:-1]]
        often.plot(numbers[:-1], taken, label=name, **plain)
        for axes, what in ((same, "same"), (gain, "gain")):
            for group, (label, style) in _GROUPS.items():
                values = [_number(step[group][what]) for step in steps[:-1]]
                if np.isfinite(values).any() and (group, what) != ("kept", "same"):  # a kept token is the same, always
                    axes.plot(numbers[:-1], values, label=f"{name}: {label}", color=colour, markersize=3.5, **style)
    gain.axhline(0, color="#808080", linewidth=0.8)
    titles = {
        mean: "mean score of the whole image",
        often: "tokens taken back, per image",
        same: "share that the next draw left the same",
        gain: "mean change of score by the next draw",
    }
    for axes, title in titles.items():
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("step")
    _legend(figure, panels)
    return figure


def _figure(rows: int, columns: int, explained: str, sharey: bool = True) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(2.4 + 3.1 * columns, 0.6 + 2.9 * rows), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, sharey=sharey, squeeze=False)
    for axes in panels.flat:
        axes.grid(color="#E0E0E0", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    if explained:
        figure.supxlabel(explained, fontsize=6.5, color="#505050")
    return figure, panels


def _legend(figure: Figure, panels: np.ndarray) -> None:
    """One for all panels, each name once."""
    handles: dict[str, Any] = {}
    for axes in panels.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize=8, handlelength=2.8
    )


def _range(section: Section) -> str:
    return " to ".join(f"{100 * edge:.0f}" for edge in section["ratio"])


def _number(value: float | None) -> float:
    """JSON has no NaN."""
    return float("nan") if value is None else value
