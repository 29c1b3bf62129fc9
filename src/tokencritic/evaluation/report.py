"""Reports of evaluations: Markdown tables, one-line descriptions and CSV files."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokencritic.errors import one_line
from tokencritic.evaluation.evaluate import METRICS
from tokencritic.evaluation.metrics import MetricValue
from tokencritic.files import known, write_text
from tokencritic.sampling.settings import Temperature, temperature_range


def number(name: str, metric: MetricValue) -> str:
    """Format the value of a metric and, if known, its standard deviation."""
    # FID by the features of a small classifier may be far below 1.
    digits = 3 if name == "fid" and metric.value < 1 else METRICS[name].decimals
    std = "" if math.isnan(metric.std) else f" ± {metric.std:.{digits}f}"
    return f"{metric.value:.{digits}f}{std}"


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Format a Markdown table. The first column is aligned to the left, the others to the right.

    Floats are shown with three decimals and NaN as a dash.
    """
    lines = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [[cell.rjust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    for line, cells in zip(aligned, lines, strict=True):
        line[0] = cells[0].ljust(widths[0])
    rule = f"|{'|'.join(['-' * (widths[0] + 2), *('-' * (width + 1) + ':' for width in widths[1:])])}|"
    first, *rest = (f"| {' | '.join(line)} |" for line in aligned)
    return "\n".join([first, rule, *rest])


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return one_line(str(value))
    return "-" if math.isnan(value) else f"{value:.3f}"


def explain(facts: Mapping[str, Any]) -> str:
    """Describe features, resize and reference of an evaluation in one line.

    facts: as in `Evaluation`.
    """
    features, reference = facts["features"], facts["reference"]
    size = " x ".join(map(str, features["image_size"]))
    name, mark = features["name"], features["fingerprint"][:12]
    name = name if mark in name else f"{name} ({mark})"
    count = reference.get("num") or reference.get("count") or "an unknown number of"
    split = f" ({reference['split']})" if "split" in reference else ""
    images = f"features {name}, resize {features['resize']}, images of {size}"
    return f"{images}; reference {reference['name']}{split}, {count} images"


def temperature_text(temperature: Temperature) -> str:
    """Format a temperature: one number, or its start and end."""
    start, end = temperature_range(temperature)
    return f"temperature {start:g}" if start == end else f"temperature {start:g} to {end:g}"


def settings_text(settings: Mapping[str, Any]) -> str:
    """Describe sampling settings in a few words.

    settings: as returned by `SamplingSettings.in_effect`.
    """
    parts = [f"{settings['sampler']}, {settings['steps']} steps", temperature_text(settings["temperature"])]
    if settings["selection_noise"] is not None:
        kind = "Gumbel noise" if settings["noise_kind"] == "gumbel" else "noise"
        parts.append(f"{kind} {settings['selection_noise']:g}")
    if settings["critic_window"] not in (None, [1, 0]):
        parts.append("critic window {:g} to {:g}".format(*settings["critic_window"]))
    if settings["remask_quota"] is not None:
        parts.append(f"quota {settings['remask_quota']:g}, re-masking noise {settings['remask_noise']:g}")
    if settings["guidance"] != 1:
        parts.append(f"guidance {settings['guidance']:g}")
    if settings["candidates"] > 1:
        parts.append(f"best of {settings['candidates']} by {settings['reject_by']}")
    return ", ".join(parts)


def write_csv(file: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows with equal keys to a CSV file atomically. None and NaN become empty cells."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(map(known, rows))
    write_text(file, text.getvalue())
