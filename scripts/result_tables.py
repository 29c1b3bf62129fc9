"""The tables of the pages, by name: which rows and columns of which JSON files each has. `tables.py` puts them there."""

import math
from dataclasses import dataclass, field, replace

from result_files import Results, Row

from tokencritic.evaluation.report import number

HEADS = {"nfe": "NFE", "ms": "ms/image", "fid": "FID", "kid": "KID", "is": "IS", "accuracy": "class accuracy"}
HEADS |= {"/confidence": "FID / MaskGIT", "/random-remask": "FID / control", "/inline_at_random": "FID / random choice"}
SAMPLERS = ("confidence", "random-remask", "critic", "inline")
TWICE = ("confidence", "confidence-36", *SAMPLERS[1:])  # MaskGIT at 18 and 36 steps
REFINED = ("confidence", "refined-critic", "refined-random-remask")
REJECTED = ("confidence", "critic", "confidence-5-classifier", "critic-5-classifier")
SPENT = ("nfe", "cost", "ms")
QUALITY = ("precision", "recall", "accuracy")


@dataclass(frozen=True)
class Table:
    """groups: the JSON files of each group of rows, by its label; labels stand in a first column, headed `group`.

    rows: by name, in order; None for all. columns: nfe, cost, ms, metrics, and /ROW for the ratio of FID to that row's.
    brief: standard deviations of FID alone, the lowest FID in bold, and no commands.
    titles: the title of the only row of a file, by file, in place of the sampler's.
    command: what wrote all files, in place of the command of each.
    """

    groups: dict[str, tuple[str, ...]]
    rows: tuple[str, ...] | None = SAMPLERS
    columns: tuple[str, ...] = (*SPENT, "fid", "/confidence", "/random-remask", *QUALITY)
    group: str = ""
    brief: bool = False
    titles: dict[str, str] = field(default_factory=dict)
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
        times = {row.title: results.milliseconds(row) for rows in found.values() for row in rows.values()}
        columns = [name for name in self.columns if name != "ms" or not any(map(math.isnan, times.values()))]
        lines = [[*([self.group] if self.group else []), *sets, *(HEADS.get(name, name) for name in columns)]]
        lines.append(["---"] * (len(lines[0]) - len(columns)) + ["---:"] * len(columns))
        for label, rows in found.items():
            for place, row in enumerate(rows.values()):
                cells = [row.title, *(self._cell(name, row, rows, times[row.title]) for name in columns)]
                lines.append([*([label if place == 0 else ""] if self.group else []), *cells])
        commands = dict.fromkeys(self.command or results.command(file) for file in self.files)
        commands = [] if self.brief else ["```bash", *commands, "```", ""]
        return "\n".join([*commands, *(f"| {' | '.join(cells)} |" for cells in lines), ""])

    def _rows(self, results: Results, files: tuple[str, ...]) -> dict[str, Row]:
        rows: dict[str, Row] = {}
        for file in files:
            found = results.rows(file)
            if file in self.titles:
                (row,) = found.values()
                found = {file: replace(row, title=self.titles[file])}
            rows |= {name: row for name, row in found.items() if name not in rows}  # of two files the first counts
        return {name: rows[name] for name in self.rows or rows if name in rows}

    def _cell(self, column: str, row: Row, rows: dict[str, Row], milliseconds: float) -> str:
        if column == "ms":
            return f"{milliseconds:.1f}"
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
        return "" if value is None else f"{value:.2f}" if column == "cost" else f"{value:g}"


def by_features(*files: str, rows: tuple[str, ...] = SAMPLERS) -> Table:
    """The same images by features of Inception and of the classifier."""
    groups = {"Inception": files, "classifier": tuple(f"{file}_classifier" for file in files)}
    return Table(groups, rows, (*SPENT, "fid", "/confidence", "kid", *QUALITY), "features")


def by_cost(*costs: str, rows: tuple[str, ...] = SAMPLERS, group: str = "cost limit") -> Table:
    return Table({cost: (f"cost_{cost}",) for cost in costs}, rows, group=group)


def undertrained(*models: str) -> Table:
    """Models of so many minutes of training, with settings that nobody tuned."""
    groups = {
        model: tuple(f"undertrained_{model}_{run}" for run in ("maskgit", "maskgit_27", "default", "paper"))
        for model in models
    }
    runs = {"maskgit_27": "MaskGIT, 27 steps", "default": "default: Token-Critic, 18 steps"}
    runs["paper"] = "`--paper`: Token-Critic, 18 steps"
    titles = {f"undertrained_{model}_{run}": title for model in models for run, title in runs.items()}
    columns = ("nfe", "cost", "fid", "/confidence", *QUALITY)
    command = "recipes/fashion_mnist/undertrained out/undertrained MINUTES"
    return Table(groups, None, columns, "minutes", titles=titles, command=command)


SHORT = (*SPENT, "fid", "kid", "precision", "recall")
TABLES = {
    "readme_steps": Table({"": ("main_steps",)}, columns=SHORT, brief=True),
    "readme_27": Table({"": ("main_27",)}, columns=SHORT, brief=True),
    "equal_steps": Table(
        {"": ("equal_steps",)}, (*SAMPLERS, "confidence-36", *REFINED[1:]), (*SPENT, "fid", "/confidence", *QUALITY)
    ),
    "main_steps": by_features("main_steps", rows=TWICE),
    "main_18": by_features("main_18"),
    "main_27": by_features("main_27"),
    "control": by_cost("9", "18", rows=SAMPLERS[:3], group="NFE limit"),
    "control_27": by_cost("27", "36", rows=SAMPLERS[:3], group="NFE limit"),
    "refinement": Table({"": ("refined", "refined_at_random")}, REFINED, (*SPENT, "fid", "/confidence", *QUALITY)),
    "main_refinement": by_features("main_steps", rows=REFINED),
    "undertrained": undertrained("2", "10", "60", "bundled"),
    "rejection": Table({"": ("rejection",)}, None, (*SPENT, "fid", "is", *QUALITY)),
    "main_rejection": Table(
        {
            "": tuple(
                f"main_rejection_{sampler}_{kept}" for kept in ("all", "best") for sampler in ("confidence", "critic")
            )
        },
        REJECTED,
        (*SPENT, "fid", "/confidence", "kid", "precision", "recall"),
    ),
    "cost": by_cost("6", "6.6", "9", "18"),
    "inline_control": Table(
        {"": ("cost_9", "inline_at_random")},
        ("confidence", "inline_at_random", "inline"),
        ("nfe", "cost", "fid", "/confidence", "/inline_at_random", *QUALITY),
        titles={"inline_at_random": "inline sampler, 8 steps, random choice"},
    ),
    "cost_inception": Table(
        {"": ("inception_9_maskgit", "inception_9_control", "inception_9_inline")},
        SAMPLERS,
        ("nfe", "fid", "/confidence", "/random-remask", "kid", "precision", "recall"),
    ),
}
