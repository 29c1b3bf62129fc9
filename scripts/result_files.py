"""Readers of the JSON files that `compare` and `evaluate` write, for `tables.py`."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokencritic.evaluation.metrics import MetricValue

TITLES = {
    "confidence": "MaskGIT",
    "random-remask": "random re-masking",
    "critic": "Token-Critic",
    "inline": "inline critic",
    "reconstructions": "test images, encoded and decoded",
}
_REFINED = {"random-remask": "at random", "inline": "by the inline critic"}


@dataclass(frozen=True)
class Row:
    """One result.

    name: its name in expressions.
    title: its title in tables.
    sets: the number of images, in words; empty for reconstructions of test images.
    values: NFE, cost and metrics, as far as the result has them, and `ms`, the milliseconds per image on an idle machine.
    metrics: the metrics with their standard deviations.
    """

    name: str
    title: str
    sets: str
    values: dict[str, float]
    metrics: dict[str, MetricValue]

    @classmethod
    def of(cls, result: dict[str, Any]) -> "Row":
        """Return the row of one result of a file."""
        images, spent = result["images"], result.get("row", result)
        metrics = {
            name: MetricValue(found["value"], math.nan if found["std"] is None else found["std"], found["std_over"])
            for name, found in result["metrics"].items()
        }
        values = {name: spent[name] for name in ("nfe", "cost", "seconds_per_image") if name in spent}
        values |= {name: metric.value for name, metric in metrics.items()}
        if "settings" not in images:
            return cls(images["kind"], TITLES[images["kind"]], "", values, metrics)
        sets = images["seed_sets"]
        count = f"{'one set' if sets == 1 else f'{sets} sets'} of {images['num']:,} images"
        return cls(*_names(images), count, values, metrics)


def _names(images: dict[str, Any]) -> tuple[str, str]:
    """Return the name in expressions and the title in tables.

    The name is the sampler, `refined-SAMPLER` for images that this sampler refined, or `SAMPLER-5-classifier` for the
    best of 5 by the classifier.
    """
    settings = images["settings"]
    name, count, ranker = (settings[key] for key in ("sampler", "candidates", "reject_by"))
    title = f"{TITLES.get(name, name)}, {settings['steps']} steps"
    if "refinement" in images:
        by = images["refinement"]["settings"]["sampler"]
        return f"refined-{by}", f"{title}, refined {_REFINED.get(by, 'by the critic')}"
    if count > 1:
        return f"{name}-{count}-{ranker}", f"{title}, best {100 / count:.3g} % by the {ranker}"
    return name, title


@dataclass
class Results:
    """The results of a folder: NAME.json, each read once, and training logs, NAME.jsonl."""

    folder: Path
    _rows: dict[str, dict[str, Row]] = field(default_factory=dict)
    _commands: dict[str, str] = field(default_factory=dict)

    def has(self, file: str) -> bool:
        return any((self.folder / f"{file}.{ending}").is_file() for ending in ("json", "jsonl"))

    def rows(self, file: str) -> dict[str, Row]:
        """Return the rows of a file by name. A row whose name is already taken is called `NAME-STEPS`."""
        if file not in self._rows:
            content = json.loads((self.folder / f"{file}.json").read_text())
            results, rows = content["results"], {}
            for one in results if isinstance(results, list) else results.values():
                row = Row.of(one)
                rows[f"{row.name}-{one['images']['settings']['steps']}" if row.name in rows else row.name] = row
            if not file.startswith("time_"):
                for row in rows.values():
                    row.values.update(self._milliseconds(row))
            self._rows[file] = rows
            self._commands[file] = content["command"]
        return self._rows[file]

    def command(self, file: str) -> str:
        """Return the command that wrote a file."""
        self.rows(file)
        return self._commands[file]

    def value(self, file: str, row: str, metric: str | None) -> float:
        """Return a metric of a row, FID by default. For a log, return the value named `row` in its last line."""
        if (log := self.folder / f"{file}.jsonl").is_file():
            return json.loads(log.read_text().splitlines()[-1])[row]
        rows = self.rows(file)
        if row not in rows:
            raise ValueError(f"{file}.json has no row {row}; it has {', '.join(rows)}")
        return rows[row].values[metric or "fid"]

    def _milliseconds(self, row: Row) -> dict[str, float]:
        """Return the milliseconds per image from a file `time_*.json` of an idle machine, if one has this row."""
        for file in sorted(self.folder.glob("time_*.json")):
            for one in self.rows(file.stem).values():
                if (one.title, one.values.get("nfe")) == (row.title, row.values.get("nfe")):
                    return {"ms": 1000 * one.values["seconds_per_image"]}
        return {}
