"""Evaluations for people and programs: tables on the screen, JSON, CSV."""

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokencritic.evaluation.evaluate import Evaluation, MetricName
from tokencritic.evaluation.metrics import MetricValue
from tokencritic.files import write_atomically

TITLES: Mapping[MetricName, str] = {
    "fid": "FID",
    "sfid": "sFID",
    "kid": "KID",
    "is": "IS",
    "precision": "precision",
    "recall": "recall",
    "accuracy": "accuracy",
}
_NOISE_ON: Mapping[str, str] = {"logit": " on logits", "odds": " by the odds"}
_DECIMALS: Mapping[MetricName, int] = {"fid": 2, "sfid": 2, "kid": 5, "is": 2}


def number(name: MetricName, metric: MetricValue) -> str:
    """A value and, if it is known, its standard deviation."""
    digits = _DECIMALS.get(name, 3)
    if name == "fid" and metric.value < 1:  # by a small classifier's features it is a fraction of 1
        digits = 3
    std = "" if math.isnan(metric.std) else f" ± {metric.std:.{digits}f}"
    return f"{metric.value:.{digits}f}{std}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns, the first to the left, the others to the right."""
    widths = [max(len(line[column]) for line in (header, *rows)) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return f"| {' | '.join([cells[0].ljust(widths[0]), *rest])} |"

    rule = f"|{'|'.join(['-' * (widths[0] + 2), *('-' * (width + 1) + ':' for width in widths[1:])])}|"
    return "\n".join([line(header), rule, *map(line, rows)])


def evaluation_table(named: Mapping[str, Evaluation]) -> str:
    """One column for each of some evaluations of the same metrics, by name; one row for each metric."""
    first = next(iter(named.values()))
    rows = [
        [TITLES[name], *(number(name, one.metrics[name]) for one in named.values()), first.metrics[name].std_over]
        for name in first.metrics
    ]
    return table(["", *named, "std over"], rows)


def explain(facts: Mapping[str, Any]) -> str:
    """What numbers were measured with: features, resize, reference."""
    features, reference = facts["features"], facts["reference"]
    size = " x ".join(map(str, features["image_size"]))
    name, mark = features["name"], features["fingerprint"][:12]
    name = name if mark in name else f"{name} ({mark})"
    count = reference.get("num") or reference.get("count") or "an unknown number of"
    split = f" ({reference['split']})" if "split" in reference else ""
    images = f"features {name}, resize {features['resize']}, images of {size}"
    return f"{images}; reference {reference['name']}{split}, {count} images"


def settings_text(settings: Mapping[str, Any]) -> str:
    """Sampling settings in a few words."""
    start, end = settings["temperature"]
    parts = [f"{settings['sampler']}, {settings['steps']} steps"]
    parts.append(f"temperature {start:g}" if start == end else f"temperature {start:g} to {end:g}")
    if settings["selection_noise"] is not None:
        parts.append(f"noise {settings['selection_noise']:g}{_NOISE_ON.get(settings['noise_on'], '')}")
    if settings["critic_from"] not in (None, 1):
        parts.append(f"confidence until {settings['critic_from']:g}")
    if settings["critic_until"]:
        parts.append(f"confidence from {settings['critic_until']:g} on")
    if settings["passes_per_level"] > 1:
        parts.append(f"{settings['passes_per_level']} passes per level")
    if settings["guidance"] != 1:
        parts.append(f"guidance {settings['guidance']:g}")
    if settings["candidates"] > 1:
        parts.append(f"best of {settings['candidates']} by {settings['reject_by']}")
    return ", ".join(parts)


def write_json(file: str | Path, value: Any) -> None:
    """Write a JSON file atomically; missing folders are made. NaN, what is not known, becomes null."""
    text = json.dumps(_known(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    _write(Path(file), lambda path: path.write_text(text, encoding="utf-8"))


def write_csv(file: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV file atomically, one line for each row, all of the same keys. None and NaN are empty cells."""

    def write(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as opened:
            writer = csv.DictWriter(opened, list(rows[0]))
            writer.writeheader()
            writer.writerows(map(_known, rows))

    _write(Path(file), write)


def _known(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _known(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_known(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _write(file: Path, write: Callable[[Path], Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, write)
