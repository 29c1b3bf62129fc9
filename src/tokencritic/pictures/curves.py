"""Trade-off curves of a sweep: FID against the Inception Score, and against recall and precision, as in the paper.

Colour and line style tell the samplers apart, the shape of a point its network passes per image. Filled points on a line
are a sampler's Pareto front: no other setting of it is at least as good in both measures and better in one.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tokencritic.errors import InputError
from tokencritic.files import write_atomically

Row = Mapping[str, Any]

NAMES = {
    "critic": "Token-Critic",
    "chance": "taken back by chance",
    "confidence": "MaskGIT",
    "random": "random order",
    "halton": "Halton order",
}
TITLES = {"is": "Inception Score", "recall": "recall", "precision": "precision"}
# Of Okabe and Ito, told apart by all eyes; dark enough for white paper, and of different greys in print.
COLOURS = {
    "critic": "#0072B2",
    "chance": "#CC79A7",
    "confidence": "#D55E00",
    "random": "#009E73",
    "halton": "#000000",
}
_LINES: dict[str, Any] = {
    "critic": "-",
    "chance": (0, (5, 1, 1, 1, 1, 1)),
    "confidence": "--",
    "random": ":",
    "halton": "-.",
}
_MARKERS = "osD^vP*Xphd<>"


def tradeoff_figures(rows: Sequence[Row], folder: Path, explained: str = "") -> list[Path]:
    """Draw the figures that the rows' measures allow, as PNG files; returns them.

    rows: as `sweep` gives them. explained: a line below the figures that says what was measured with.
    """
    wanted = {"fid_is.png": ["is"], "fid_recall_precision.png": ["recall", "precision"]}
    written = []
    for name, measures in wanted.items():
        if all(measure in row for measure in ("fid", *measures) for row in rows):
            figure = draw(rows, measures, explained)
            write_atomically(folder / name, partial(figure.savefig, format="png"))
            written.append(folder / name)
    return written


def draw(rows: Sequence[Row], measures: Sequence[str], explained: str = "") -> Figure:
    """FID, lower is better, against each of some measures of which higher is better, side by side."""
    if not rows:
        raise InputError("rows is empty; there is nothing to draw")
    passes = sorted({row["passes"] for row in rows})
    shapes = {count: _MARKERS[place % len(_MARKERS)] for place, count in enumerate(passes)}
    samplers = [name for name in NAMES if any(row["sampler"] == name for row in rows)]
    figure = Figure(figsize=(1.9 + 4.1 * len(measures), 4.3), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=True):
        for sampler in samplers:
            _draw_sampler(axes, [row for row in rows if row["sampler"] == sampler], sampler, measure, shapes)
        axes.set_xlabel(f"{TITLES[measure]} (higher is better)")
        axes.grid(color="#E0E0E0", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("FID (lower is better)")
    handles = _legend(rows, samplers, shapes)
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=8, handlelength=2.6)
    if explained:
        figure.supxlabel(explained, fontsize=6.5, color="#505050")
    return figure


def pareto_front(rows: Sequence[Row], measure: str) -> list[Row]:
    """The rows that no other beats in FID (lower) without losing in the measure (higher), in the measure's order."""
    best = sorted(rows, key=lambda row: (row["fid"], -row[measure]))
    front: list[Row] = []
    for row in best:
        if not front or row[measure] > front[-1][measure]:
            front.append(row)
    return front


def _draw_sampler(axes: Axes, rows: Sequence[Row], sampler: str, measure: str, shapes: Mapping[int, str]) -> None:
    colour, front = COLOURS[sampler], pareto_front(rows, measure)
    axes.plot(
        [row[measure] for row in front],
        [row["fid"] for row in front],
        linestyle=_LINES[sampler],
        color=colour,
        linewidth=1.6,
    )
    for row in rows:
        on_front = any(row is one for one in front)
        x, y = row[measure], row["fid"]
        wide, high = _spread(row, measure), _spread(row, "fid")
        axes.errorbar(x, y, xerr=wide, yerr=high, color=colour, elinewidth=0.7, alpha=0.35, zorder=1)
        axes.plot(
            x,
            y,
            marker=shapes[row["passes"]],
            markersize=7 if on_front else 5,
            color=colour,
            markerfacecolor=colour if on_front else "white",
            markeredgewidth=1.1,
            zorder=4 if on_front else 3,
        )


def _spread(row: Row, measure: str) -> float | None:
    spread = row.get(f"{measure}_std")
    return None if spread is None or spread != spread else spread  # NaN where it is not known


def _legend(rows: Sequence[Row], samplers: Sequence[str], shapes: Mapping[int, str]) -> list[Line2D]:
    """Each sampler with its passes below it, then what filled and hollow mean."""
    handles = []
    for sampler in samplers:
        colour = COLOURS[sampler]
        handles.append(Line2D([], [], color=colour, linestyle=_LINES[sampler], linewidth=1.6, label=NAMES[sampler]))
        for count in sorted({row["passes"] for row in rows if row["sampler"] == sampler}):
            label = f"{count} passes per image"
            handles.append(Line2D([], [], color=colour, linestyle="", marker=shapes[count], label=label))
    grey: dict[str, Any] = {"color": "#505050", "linestyle": "", "marker": "o"}
    handles.append(Line2D([], [], **grey, label="Pareto front"))
    handles.append(Line2D([], [], **grey, markerfacecolor="white", label="other settings"))
    return handles
