"""Evaluations for people and programs: tables on the screen, JSON, CSV."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokencritic.evaluation.evaluate import Evaluation, Measure, Measured
from tokencritic.files import write_atomically

TITLES: Mapping[Measure, str] = {
    "fid": "FID",
    "sfid": "sFID",
    "kid": "KID",
    "is": "IS",
    "precision": "precision",
    "recall": "recall",
    "density": "density",
    "coverage": "coverage",
    "accuracy": "accuracy",
}
_NOISE_ON: Mapping[str, str] = {"logit": " on logits", "odds": " by the odds"}
_DECIMALS: Mapping[Measure, int] = {"fid": 2, "sfid": 2, "kid": 5, "is": 2}


def number(name: Measure, measured: Measured) -> str:
    """A value and, where it is known, its spread."""
    digits = _DECIMALS.get(name, 3)
    if name == "fid" and measured.value < 1:  # by a small classifier's features it is a fraction of 1
        digits = 3
    spread = "" if math.isnan(measured.spread) else f" ± {measured.spread:.{digits}f}"
    return f"{measured.value:.{digits}f}{spread}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown that is also readable as it stands: columns are aligned, the first to the left, the others to the right."""
    widths = [max(len(line[column]) for line in (header, *rows)) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return f"| {' | '.join([cells[0].ljust(widths[0]), *rest])} |"

    rule = f"|{'|'.join(['-' * (widths[0] + 2), *('-' * (width + 1) + ':' for width in widths[1:])])}|"
    return "\n".join([line(header), rule, *map(line, rows)])


def evaluation_table(named: Mapping[str, Evaluation]) -> str:
    """One column for each of some evaluations of the same measures, by name; one row for each measure."""
    first = next(iter(named.values()))
    rows = [
        [TITLES[name], *(number(name, one.measures[name]) for one in named.values()), first.measures[name].over]
        for name in first.measures
    ]
    return table(["", *named, "spread over"], rows)


def explain(facts: Mapping[str, Any]) -> str:
    """What the numbers below it were measured with: features, resize, reference."""
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
    """Whole or not at all; folders above it are made. What is not known, NaN, becomes null."""
    text = json.dumps(_known(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    _write(Path(file), lambda path: path.write_text(text, encoding="utf-8"))


def write_csv(file: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """One line for each row, all of the same keys; whole or not at all. None and NaN are empty cells."""

    def write(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as opened:
            writer = csv.DictWriter(opened, list(rows[0]))
            writer.writeheader()
            writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)

    _write(Path(file), write)


def _cell(value: Any) -> Any:
    return "" if _known(value) is None else value


def _known(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _known(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_known(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _write(file: Path, write: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, write)
