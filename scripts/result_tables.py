"""The tables of the pages, by name: which rows and columns of which JSON files each has. `tables.py` puts them there."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from result_files import Results, Row

from tokencritic.evaluation.report import number

HEADS = {"nfe": "NFE", "ms": "ms/image", "fid": "FID", "kid": "KID", "is": "IS", "accuracy": "class accuracy"}
HEADS |= {"/confidence": "FID / MaskGIT", "/random-remask": "FID / control", "/at_random": "FID / random choice"}
SAMPLERS = ("confidence", "random-remask", "critic", "inline")
REFINED = ("confidence", "refined-critic", "refined-random-remask")
REJECTED = ("confidence", "critic", "confidence-5-classifier", "critic-5-classifier")
FORMS = {"nfe": "g", "cost": ".2f", "ms": ".1f"}
SPENT = ("nfe", "cost", "ms")
QUALITY = ("precision", "recall", "accuracy")


@dataclass(frozen=True)
class Table:
    """groups: the JSON files of each group of rows, by its label; labels stand in a first column, headed `group`.

    rows: by name, in order; None for all. columns: nfe, cost, ms, metrics, and /ROW for the ratio of FID to that row's.
    brief: standard deviations of FID alone, the lowest FID in bold, and no commands.
    titles: the name and the title of the only row of a file, by file, in place of the sampler's.
    command: what wrote all files, in place of the command of each.
    """

    groups: dict[str, tuple[str, ...]]
    rows: tuple[str, ...] | None = SAMPLERS
    columns: tuple[str, ...] = (*SPENT, "fid", "/confidence", "/random-remask", *QUALITY)
    group: str = ""
    brief: bool = False
    titles: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    command: str = ""

    @property
    def files(self) -> list[str]:
        return [file for files in self.groups.values() for file in files]

    def text(self, results: Results) -> str:
        """The commands and the table in Markdown."""
        found = {label: self._rows(results, files) for label, files in self.groups.items()}
        sets = {row.sets for rows in found.values() for row in rows.values() if row.sets}
        if len(sets) != 1:
            raise ValueError(f"{', '.join(self.files)} are of {' and '.join(sorted(sets))}; expected equal sets")
        timed = all("ms" in row.values for rows in found.values() for row in rows.values())
        columns = [name for name in self.columns if name != "ms" or timed]
        lines = [[*([self.group] if self.group else []), *sets, *(HEADS.get(name, name) for name in columns)]]
        lines.append(["---"] * (len(lines[0]) - len(columns)) + ["---:"] * len(columns))
        for label, rows in found.items():
            for place, row in enumerate(rows.values()):
                cells = [row.title, *(self._cell(name, row, rows) for name in columns)]
                lines.append([*([label if place == 0 else ""] if self.group else []), *cells])
        commands = dict.fromkeys(self.command or results.command(file) for file in self.files)
        commands = [] if self.brief else ["```bash", *commands, "```", ""]
        return "\n".join([*commands, *(f"| {' | '.join(cells)} |" for cells in lines), ""])

    def _rows(self, results: Results, files: tuple[str, ...]) -> dict[str, Row]:
        rows: dict[str, Row] = {}
        for file in files:
            found = results.rows(file)
            if file in self.titles:
                (row,), (name, title) = found.values(), self.titles[file]
                found = {name: replace(row, title=title)}
            rows |= {name: row for name, row in found.items() if name not in rows}  # of two files the first counts
        return {name: rows[name] for name in self.rows or rows if name in rows}

    def _cell(self, column: str, row: Row, rows: dict[str, Row]) -> str:
        if column.startswith("/"):  # of rows below the one that it is the ratio to
            base = rows.get(column[1:])
            below = base is not None and row not in [*rows.values()][: [*rows.values()].index(base) + 1]
            return f"{row.values['fid'] / base.values['fid']:.2f}" if base and below and row.sets else ""
        if column in row.metrics:
            metric = row.metrics[column]
            text = number(column, metric if column == "fid" or not self.brief else metric._replace(std=math.nan))
            lowest = self.brief and column == "fid" and metric.value == min(one.values["fid"] for one in rows.values())
            return f"**{text}**" if lowest else text
        value = row.values.get(column)
        return "" if value is None else f"{value:{FORMS[column]}}"


def by_features(
    *files: str,
    rows: tuple[str, ...] = SAMPLERS,
    ratios: tuple[str, ...] = ("/confidence",),
    titles: Mapping[str, tuple[str, str]] = MappingProxyType({}),
) -> Table:
    """The same images by features of Inception and of the classifier."""
    ends = {"Inception": "", "classifier": "_classifier"}
    groups = {features: tuple(file + end for file in files) for features, end in ends.items()}
    titles = {file + end: title for file, title in titles.items() for end in ends.values()}
    return Table(groups, rows, (*SPENT, "fid", *ratios, "kid", *QUALITY), "features", titles=titles)


def by_cost(files: str, *costs: str, last: tuple[str, ...] = QUALITY) -> Table:
    """The samplers at several cost limits. files: the names of the files, with {} for the cost; last: the last columns."""
    columns = (*SPENT, "fid", "/confidence", "/random-remask", "kid", *last)
    return Table({cost: (files.format(cost),) for cost in costs}, columns=columns, group="cost limit")


def undertrained(*models: str) -> Table:
    """Models of so many minutes of training, with settings that nobody tuned."""
    groups = {
        model: tuple(f"undertrained_{model}_{run}" for run in ("maskgit", "maskgit_27", "default", "paper"))
        for model in models
    }
    runs = {"maskgit_27": "MaskGIT, 27 steps", "default": "default: Token-Critic, 18 steps"}
    runs["paper"] = "`--paper`: Token-Critic, 18 steps"
    titles = {f"undertrained_{model}_{run}": (run, title) for model in models for run, title in runs.items()}
    columns = (*SPENT, "fid", "/confidence", *QUALITY)
    command = "recipes/fashion_mnist/undertrained out/undertrained MINUTES"
    return Table(groups, None, columns, "minutes", titles=titles, command=command)


SHORT = (*SPENT, "fid", "kid", "precision", "recall")
TABLES = {
    "readme_steps": Table({"": ("main_steps",)}, columns=SHORT, brief=True),
    "readme_27": Table({"": ("main_27",)}, columns=SHORT, brief=True),
    "main_steps": by_features("main_steps"),
    "equal_cost": by_cost("main_{}", "9", "18", "27", last=("precision", "recall")),
    "equal_cost_classifier": by_cost("main_{}_classifier", "9", "18", "27"),
    "main_refinement": by_features("main_steps", rows=REFINED),
    "undertrained": undertrained("2", "10", "60", "bundled"),
    "main_rejection": Table(
        {
            "": tuple(
                f"main_rejection_{sampler}_{kept}" for kept in ("all", "best") for sampler in ("confidence", "critic")
            )
        },
        REJECTED,
        (*SPENT, "fid", "/confidence", "kid", "precision", "recall"),
    ),
    "cost": by_cost("cost_{}", "6", "6.6"),
    "inline_control": by_features(
        "main_9",
        "main_9_at_random",
        rows=("confidence", "at_random", "inline"),
        ratios=("/confidence", "/at_random"),
        titles={"main_9_at_random": ("at_random", "inline sampler, 8 steps, random choice")},
    ),
    "untuned": by_features(
        "main_steps_untuned",
        "main_steps_paper",
        rows=("confidence", "paper"),
        titles={"main_steps_paper": ("paper", "`--paper`: Token-Critic, 18 steps")},
    ),
}
