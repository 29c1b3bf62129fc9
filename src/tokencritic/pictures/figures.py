"""Figures of evaluations: the trade-off curves of a sweep, as in the paper, and the results of a diagnosis.

Series differ in colour and in line style or marker, so that figures remain readable in greyscale.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tokencritic.files import write_atomically
from tokencritic.sampling.samplers import SAMPLERS

Row = Mapping[str, Any]

BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"  # Okabe and Ito's palette
_STYLES: tuple[Any, ...] = ("-", (0, (5, 1, 1, 1, 1, 1)), "--", ":", "-.")  # line styles of samplers, in table order
_LINES = {name: _STYLES[place % len(_STYLES)] for place, name in enumerate(SAMPLERS)}
_TITLES = {"is": "Inception Score", "recall": "recall", "precision": "precision"}
_MARKERS = "osD^vP*Xphd<>"
# Keys of the reports, with their labels, colours and matplotlib styles.
_KINDS = {
    "original": ("original", BLUE, "-"),
    "changed": ("resampled, changed", VERMILION, "--"),
    "equal": ("resampled, equal to the original", GREEN, ":"),
}
_GROUPS = {"remasked": ("re-masked", "o-"), "resampled": ("hidden again", "s--"), "kept": ("kept", "^:")}


def tradeoff_figures(rows: Sequence[Row], folder: Path, explained: str) -> list[Path]:
    """Write the trade-off figures that the metrics of the rows allow as PNG files, and return their paths.

    rows: as yielded by `sweep`.
    folder: an existing folder.
    explained: a caption below each figure.
    """
    wanted = {"fid_is.png": ["is"], "fid_recall_precision.png": ["recall", "precision"]}
    figures = {
        name: draw_tradeoff(rows, metrics)
        for name, metrics in wanted.items()
        if all(metric in row for metric in ("fid", *metrics) for row in rows)
    }
    return _write(figures, folder, explained)


def diagnosis_figures(held_out: Row, sampling: Mapping[str, Row], folder: Path, explained: str) -> list[Path]:
    """Write all figures of a diagnosis as PNG files, and return their paths.

    held_out: as returned by `held_out_report`.
    sampling: the result of `sampling_report` for each sampler, by name.
    folder: an existing folder.
    explained: a caption below each figure.
    """
    figures = {"scores.png": draw_scores(held_out["by_ratio"]), "sampling.png": draw_sampling(sampling)}
    return _write(figures, folder, explained)


def draw_tradeoff(rows: Sequence[Row], metrics: Sequence[str]) -> Figure:
    """Draw FID (lower is better) against each of the metrics (higher is better), side by side.

    The marker of a point shows its NFE. Filled points on a line are the Pareto front of a sampler.
    """
    counts = sorted({row["nfe"] for row in rows})
    shapes = {nfe: _MARKERS[place % len(_MARKERS)] for place, nfe in enumerate(counts)}
    figure, panels = _new_figure(1, len(metrics), size=(1.9 + 4.1 * len(metrics), 4.3))
    handles = []
    for sampler, title, colour in ((row.name, row.title, row.colour) for row in SAMPLERS.values()):
        if its_rows := [row for row in rows if row["sampler"] == sampler]:
            handles.append(Line2D([], [], c=colour, ls=_LINES[sampler], lw=1.6, label=title))
            its_nfe = sorted({row["nfe"] for row in its_rows})
            handles += [Line2D([], [], c=colour, ls="", marker=shapes[nfe], label=f"NFE {nfe}") for nfe in its_nfe]
            for axes, metric in zip(panels[0], metrics, strict=True):
                _draw_sampler(axes, its_rows, sampler, metric, shapes)
    for axes, metric in zip(panels[0], metrics, strict=True):
        axes.set_xlabel(f"{_TITLES[metric]} (higher is better)")
    panels[0][0].set_ylabel("FID (lower is better)")
    for face, label in (("#505050", "Pareto front"), ("white", "other settings")):
        handles.append(Line2D([], [], c="#505050", ls="", marker="o", markerfacecolor=face, label=label))
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=8, handlelength=2.6)
    return figure


def pareto_front(rows: Sequence[Row], metric: str) -> list[Row]:
    """Return the Pareto front of FID (lower is better) and a metric (higher is better), in the order of FID."""
    front: list[Row] = []
    for row in sorted(rows, key=lambda row: (row["fid"], -row[metric])):
        if not front or row[metric] > front[-1][metric]:
            front.append(row)
    return front


def _draw_sampler(axes: Axes, rows: Sequence[Row], sampler: str, metric: str, shapes: Mapping[int, str]) -> None:
    colour, front = SAMPLERS[sampler].colour, pareto_front(rows, metric)
    line = [row[metric] for row in front], [row["fid"] for row in front]
    axes.plot(*line, linestyle=_LINES[sampler], color=colour, linewidth=1.6)
    for row in rows:
        x, y = row[metric], row["fid"]
        x_std, y_std = np.array([row.get(f"{metric}_std"), row.get("fid_std")], float)  # None and NaN are unknown
        axes.errorbar(x, y, y_std, x_std, color=colour, elinewidth=0.7, alpha=0.35, zorder=1)
        face, size, order = (colour, 7, 4) if any(row is one for one in front) else ("white", 5, 3)
        style: dict[str, Any] = {"color": colour, "markerfacecolor": face, "markeredgewidth": 1.1}
        axes.plot(x, y, marker=shapes[row["nfe"]], markersize=size, zorder=order, **style)


def draw_scores(sections: Sequence[Row]) -> Figure:
    """Draw histograms of scores by kind of token, with one panel for each bin of the mask ratio.

    sections: `by_ratio` of `held_out_report`.
    """
    figure, panels = _new_figure(1, len(sections))
    for axes, section in zip(panels[0], sections, strict=True):
        for kind, (label, colour, line) in _KINDS.items():
            counts = np.array(section["histogram"][kind], float)
            if counts.sum():
                edges = np.linspace(0, 1, len(counts) + 1)
                axes.stairs(counts / counts.sum(), edges, label=label, linewidth=1.6, color=colour, linestyle=line)
        _label(axes, f"{_range(section)} % hidden, {section['images']} images", "critic's score (higher: more real)")
    panels[0][0].set_ylabel("share of the tokens of a kind")
    return _with_legend(figure, panels)


def draw_sampling(sampling: Mapping[str, Row]) -> Figure:
    """Draw mean score, re-masked tokens and the effect of resampling at each step, for each sampler by name."""
    figure, panels = _new_figure(2, 2)
    mean, often, same, gain = panels.flat
    for sampler, report in sampling.items():
        row, steps = SAMPLERS[sampler], report["steps"]
        colour, name = row.colour, row.title
        numbers = [step["step"] for step in steps]
        plain: dict[str, Any] = {"color": colour, "linestyle": "-" if sampler == "critic" else "--", "linewidth": 1.8}
        mean.plot(numbers, [step["mean_score"] for step in steps], label=name, **plain)
        taken = [step["remasked"]["per_image"] for step in steps[:-1]]
        often.plot(numbers[:-1], taken, label=name, **plain)
        for axes, what in ((same, "same"), (gain, "gain")):
            for group, (label, style) in _GROUPS.items():
                values = np.array([step[group][what] for step in steps[:-1]], float)
                if np.isfinite(values).any() and (group, what) != ("kept", "same"):  # kept tokens never change
                    axes.plot(numbers[:-1], values, style, label=f"{name}: {label}", color=colour, markersize=3.5)
    gain.axhline(0, color="#808080", linewidth=0.8)
    _label(mean, "mean score of the whole image", "step")
    _label(often, "tokens re-masked, per image", "step")
    _label(same, "share of tokens unchanged by resampling", "step")
    _label(gain, "mean change in score by resampling", "step")
    return _with_legend(figure, panels)


def _new_figure(rows: int, columns: int, size: tuple[float, float] | None = None) -> tuple[Figure, np.ndarray]:
    """Create a figure and its panels (rows, columns). Panels in a single row share their y axis.

    size: (width, height) in inches.
    """
    size = size or (2.4 + 3.1 * columns, 0.6 + 2.9 * rows)
    figure = Figure(figsize=size, dpi=200, layout="constrained")
    panels = figure.subplots(rows, columns, sharey=rows == 1, squeeze=False)
    for axes in panels.flat:
        axes.grid(color="#E0E0E0", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _label(axes: Axes, title: str, xlabel: str) -> None:
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(xlabel)


def _with_legend(figure: Figure, panels: np.ndarray) -> Figure:
    """Add one legend for all panels, with each label once, and return the figure."""
    handles: dict[str, Any] = {}
    for axes in panels.flat:
        of_axes, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, of_axes, strict=True))
    place: dict[str, Any] = {"loc": "outside right upper", "frameon": False, "fontsize": 8, "handlelength": 2.8}
    figure.legend(handles.values(), handles.keys(), **place)
    return figure


def _write(figures: Mapping[str, Figure], folder: Path, explained: str) -> list[Path]:
    for name, figure in figures.items():
        figure.supxlabel(explained, fontsize=6.5, color="#505050")
        write_atomically(folder / name, partial(figure.savefig, format="png"))
    return [folder / name for name in figures]


def _range(section: Row) -> str:
    return " to ".join(f"{100 * edge:.0f}" for edge in section["ratio"])
