"""Write the numbers of the pages from the JSON files of results. `make tables` runs this script.

    python scripts/tables.py [--check]

HTML comments in the pages mark tables and numbers. A table or typed block extends up to <!-- end -->.

    <!-- table NAME -->       a table of `result_tables.py`, generated from its JSON files
    <!-- typed NAME -->       the same table while a JSON file is missing; its typed content is not changed
    <!-- typed: REASON -->    numbers that are in no JSON file
    <!-- numbers              the numbers of the paragraph, list or table above, one per line
    0.68 = cost_6:inline / cost_6:confidence      FILE:ROW or FILE:ROW:METRIC, written with as many decimals as here
    0.72 = the paper's Table 1                    a typed number, with its source in words
    -->

Any other number that looks like a metric is a finding. Prints the findings and the typed numbers. --check writes
nothing. Exits with 1 if there is a finding or, with --check, if a page would change.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from result_files import Results
from result_tables import TABLES

ROOT = Path(__file__).parents[1]
RESULTS = "docs/results/fashion_mnist"
# The pages, and the heading of the section in which unmarked numbers are findings; "" for the whole page.
PAGES = {
    "README.md": "## What it gains, and what it costs",
    "docs/results/fashion_mnist.md": "",
    "docs/inline-critic.md": "",
    "src/tokencritic/pretrained/fashion-mnist/README.md": "## Evaluation",
}
BLOCK = re.compile(r"<!-- (?:table|typed)(?: ([\w.]+))?(?:: (.*?))? -->\n(.*?)<!-- end -->", re.DOTALL)
NUMBERS = re.compile(r"<!-- numbers\n(.*?)-->", re.DOTALL)
OPERAND = re.compile(r"([\w.]+):([\w-]+)(?::(\w+))?")
METRIC = re.compile(r"(?<![\w.:])\d+\.\d\d+(?!\d|\.\d)|\d ±|(?<![\w.,])\d+(?:\.\d+)? %")
CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL)  # code, links and comments


@dataclass
class Page:
    """A page with the numbers of the results.

    text: the text of the page, which is updated on creation.
    section: the heading of the section in which unmarked numbers are findings; "" for the whole page.
    tables: the number of generated tables.
    operands: the files that lists of numbers refer to.
    typed: the typed tables and numbers, with their lines.
    findings: the errors, with their lines.
    """

    text: str
    section: str
    results: Results
    tables: int = 0
    operands: set[str] = field(default_factory=set)
    typed: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.text = BLOCK.sub(self._block, self.text)
        for place in range(len(NUMBERS.findall(self.text))):  # each call changes the text
            self._numbers([*NUMBERS.finditer(self.text)][place])
        self._others()

    def _line(self, place: int) -> int:
        return self.text.count("\n", 0, place) + 1

    def _block(self, block: re.Match[str]) -> str:
        name, about, content = block.groups()
        line, kind = self._line(block.start()), "table" if "|---" in content else "text" if content else "empty"
        if name is None:
            self.typed.append(f"{line}: {kind}: {about}")
            return block[0]
        if name not in TABLES:
            self.findings.append(f"{line}: there is no table {name}; choose from {', '.join(TABLES)}")
            return block[0]
        if missing := [f"{file}.json" for file in TABLES[name].files if not self.results.has(file)]:
            self.typed.append(f"{line}: {kind}: {name}, needs {', '.join(missing)}")
            return f"<!-- typed {name} -->\n{content}<!-- end -->"
        self.tables += 1
        return f"<!-- table {name} -->\n{TABLES[name].text(self.results)}<!-- end -->"

    def _numbers(self, comment: re.Match[str]) -> None:
        start, line, shown = _paragraph(self.text, comment), self._line(comment.start()), {}
        for number_there, expression in _listed(comment):
            line += 1
            if not _pattern(number_there).search(self.text, start, comment.start()):
                self.findings.append(f"{line}: {number_there} is not in the text above")
            value = self._value(expression)
            if value is None:
                self.typed.append(f"{line}: number {number_there}: {expression}")
            new = number_there if value is None else _like(value, number_there)
            if shown.setdefault(number_there, new) != new:
                self.findings.append(f"{line}: {number_there} stands for {shown[number_there]} and {new}")
        both = re.compile("|".join(_pattern(one).pattern for one in sorted(shown, key=len, reverse=True)))
        changed = both.sub(lambda found: shown[found[0]], self.text[start : comment.end()])
        self.text = self.text[:start] + changed + self.text[comment.end() :]

    def _value(self, expression: str) -> float | None:
        """Return the value of an expression; None if it is in words or a JSON file is missing."""
        files = {found[1] for found in OPERAND.finditer(expression)}
        self.operands |= files
        if not files or not all(map(self.results.has, files)):
            return None
        digits = OPERAND.sub(lambda found: repr(self.results.value(*found.groups())), expression)
        if not re.fullmatch(r"[\d.e+*/() -]+", digits):
            raise ValueError(f"{expression} is no expression of FILE:ROW:METRIC, numbers, + - * / and brackets")
        return eval(digits)

    def _others(self) -> None:
        """Find the numbers that look like a metric but are in no block, code, link or list of numbers."""
        left = BLOCK.sub(_blank, self.text)
        for comment in NUMBERS.finditer(self.text):
            start, end = _paragraph(self.text, comment), comment.start()
            for one, _ in _listed(comment):
                left = left[:start] + _pattern(one).sub(_blank, left[start:end]) + left[end:]
        left = CODE.sub(_blank, left)
        begin = self.text.index(self.section)
        end = self.text.find("\n## ", begin + 1) if self.section else -1
        for found in METRIC.finditer(left, begin, end if end > 0 else len(left)):
            self.findings.append(f"{self._line(found.start())}: {found[0]} is in no block and no list of numbers")


def _paragraph(text: str, comment: re.Match[str]) -> int:
    """Return the start of the text above a comment."""
    return max(0, *(text.rfind(end, 0, comment.start()) for end in ("\n\n", "-->")))


def _listed(comment: re.Match[str]) -> list[tuple[str, str]]:
    """Return (number, expression) of each line of a list of numbers."""
    return re.findall(r"^(.+?) = (.+)$", comment[1], re.MULTILINE)


def _pattern(shown: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\d.,]){re.escape(shown)}(?!\d|[.,]\d)")


def _like(value: float, shown: str) -> str:
    """Return a value formatted like `shown`: with as many decimals, and in percent if `shown` is."""
    digits = len(shown.removesuffix(" %").partition(".")[2])
    return f"{100 * value:.{digits}f} %" if shown.endswith(" %") else f"{value:.{digits}f}"


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def main(arguments: list[str]) -> int:
    results, changed, pages = Results(ROOT / RESULTS), [], {}
    for name, section in PAGES.items():
        before = (ROOT / name).read_text()
        pages[name] = page = Page(before, section, results)
        if page.text != before:
            changed.append(name)
            if "--check" not in arguments:
                (ROOT / name).write_text(page.text)
    typed, findings = (
        [f"{name}:{one}" for name, page in pages.items() for one in vars(page)[kind]] for kind in ("typed", "findings")
    )
    print(*typed, *(f"{one}  <-- wrong" for one in findings), sep="\n")
    tables, empty, numbers = (sum(f": {kind}" in one for one in typed) for kind in ("table: ", "empty: ", "number "))
    made = sum(page.tables for page in pages.values())
    print(f"{made} tables are generated, {tables} are typed, {empty} are not measured yet; {numbers} numbers are typed")
    print(f"{'would change' if '--check' in arguments else 'changed'}: {', '.join(changed) or 'nothing'}")
    return int(bool(findings or (changed and "--check" in arguments)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
