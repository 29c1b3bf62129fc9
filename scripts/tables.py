"""Write the numbers of the pages from the JSON files of results: `make tables` runs it.

    python scripts/tables.py [--check]

What a page has for it, invisible to a reader:

    <!-- table NAME -->       a table of `result_tables.py`, written here from its JSON files, up to <!-- end -->
    <!-- typed NAME -->       the same while a JSON file is missing: what somebody typed, or nothing; it is left alone
    <!-- typed: REASON -->    numbers that no JSON file has, up to <!-- end -->
    <!-- numbers              after a paragraph, list or table: the numbers in it, one on each line
    0.66 = cost_9:inline / cost_9:confidence      FILE:ROW or FILE:ROW:METRIC; shown with the decimals that it has here
    0.72 = the paper's Table 1                    typed: where it is from, in words
    -->

Any other number that looks like a metric is a finding. Prints the findings and what is still typed. --check writes nothing.
Exits with 1 if there is a finding or, with --check, a page that would change.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from result_files import Results
from result_tables import TABLES

ROOT = Path(__file__).parents[1]
RESULTS = "docs/results/fashion_mnist"
# The pages, each with the heading of the section whose numbers must be accounted for; "" for all of the page.
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
CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL)  # and links and comments


@dataclass
class Page:
    """A page as it should be. section: the heading of what must be accounted for. tables: how many are generated.

    operands: the files that lists of numbers name. typed, findings: what is typed and what is wrong, each with its line.
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
        for place in range(len(NUMBERS.findall(self.text))):  # one changes the text before the next
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
        """None for words, and while a JSON file is missing."""
        files = {found[1] for found in OPERAND.finditer(expression)}
        self.operands |= files
        if not files or not all(map(self.results.has, files)):
            return None
        digits = OPERAND.sub(lambda found: repr(self.results.value(*found.groups())), expression)
        if not re.fullmatch(r"[\d.e+*/() -]+", digits):
            raise ValueError(f"{expression} is no expression of FILE:ROW:METRIC, numbers, + - * / and brackets")
        return eval(digits)

    def _others(self) -> None:
        """Find numbers that look like a metric, outside of blocks, code and links, and in no list of numbers."""
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
    """Where the text above a comment begins."""
    return max(0, *(text.rfind(end, 0, comment.start()) for end in ("\n\n", "-->")))


def _listed(comment: re.Match[str]) -> list[tuple[str, str]]:
    """(number, expression) of each line."""
    return re.findall(r"^(.+?) = (.+)$", comment[1], re.MULTILINE)


def _pattern(shown: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\d.,]){re.escape(shown)}(?!\d|[.,]\d)")


def _like(value: float, shown: str) -> str:
    """A value with the decimals, and in percent, as it is shown."""
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
