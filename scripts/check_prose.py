"""Check pages and docstrings. `make lint` runs this script.

    python scripts/check_prose.py [FILE ...]

- Pages: lines of prose have at most 120 characters, links and anchors resolve, and commands parse.
- README: at most 200 lines, and 30 words per sentence.
- Pages and source files: no phrase of `PHRASES`.

Prints one line per finding, and exits with 1 if there are any.
"""

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokencritic.cli import arguments as cli_arguments
from tokencritic.cli.main import COMMANDS, load_command
from tokencritic.errors import InputError

ROOT = Path(__file__).parents[1]
LONGEST_LINE, LONGEST_README, LONGEST_SENTENCE = 120, 200, 30
# Regular expressions of phrases to avoid, and what to write instead.
PHRASES = {
    r"model inside": "bundled model",
    r"t(?:ake|akes|aken|ook) (?:\w+ )?back\b": "re-mask",
    r"dr(?:aw|aws|awn) again": "resample",
    r"dr(?:aw|awn) at once": "sample in parallel",
    r"(?:network|generator|critic)'?s? pass(?:es)?\b": "network evaluation, NFE",
    r"passes (?:an|per) image": "NFE",
    r"told (?:the ratio|how much)": "ratio-conditioned",
    r"hands? over": "critic window",
    r"noise by the odds": "Gumbel noise on the logits",
    r"goes on where it was|(?:command )?is given again": "rerun the command to resume",
    r"what came, what would be right": "got, expected",
}


class _ParsedError(Exception):
    """Raised after a command line was parsed, so that the command does not run."""


def pages() -> list[Path]:
    """Return all Markdown pages."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.md"))]


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines outside of code blocks, comments, tables and pictures, numbered from 1."""
    fenced = commented = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("<!--") or commented:
            commented = "-->" not in line
        elif line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.lstrip().startswith(("|", "![")):
            yield number, line


def long_lines(page: Path) -> Iterator[str]:
    for number, line in prose(page.read_text()):
        if len(line) > LONGEST_LINE:
            yield f"{number}: {len(line)} characters; at most {LONGEST_LINE}"


def readme_limits(page: Path) -> Iterator[str]:
    text = page.read_text()
    if (count := len(text.splitlines())) > LONGEST_README:
        yield f"1: {count} lines; at most {LONGEST_README}"
    paragraphs = re.split(r"\n\s*\n|\n(?=[-#])", "\n".join(line for _, line in prose(text)))
    for sentence in (s for p in paragraphs for s in re.split(r"(?<=[.:!?])\s+", re.sub(r"\]\([^)]*\)", "]", p))):
        if len(words := sentence.split()) > LONGEST_SENTENCE:
            yield f"1: a sentence of {len(words)} words; at most {LONGEST_SENTENCE}: {' '.join(words[:8])} ..."


def phrases(file: Path) -> Iterator[str]:
    for number, line in enumerate(file.read_text().splitlines(), 1):
        for pattern, better in PHRASES.items():
            if found := re.search(pattern, line, re.IGNORECASE):
                yield f"{number}: {found[0]!r}; write {better!r}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub generates them."""
    headings = (line.lstrip("# ").lower() for _, line in prose(page.read_text()) if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> Iterator[str]:
    for number, line in prose(page.read_text()):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            other = (page.parent / path) if path else page
            if not other.exists() or (anchor and other.suffix == ".md" and anchor not in anchors(other)):
                yield f"{number}: the link {target} leads nowhere"


def commands(page: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the calls of token-critic in the shell blocks of a page, with their line numbers."""
    text = page.read_text()
    for block in re.finditer(r"```bash\n(.*?)```", text, re.DOTALL):
        first = text[: block.start(1)].count("\n") + 1
        lines = block[1].splitlines()
        for number, line in enumerate(lines):
            if "token-critic " not in line or line.lstrip().startswith("#"):
                continue
            whole, rest = line, number
            while whole.endswith("\\"):
                rest += 1
                whole = whole[:-1] + lines[rest]
            yield first + number, shlex.split(whole.split("token-critic ", 1)[1], comments=True)


def unknown_commands(page: Path) -> Iterator[str]:
    for number, words in commands(page):
        if any(word.startswith("$") or word == "..." for word in words):
            continue
        try:
            parse_only(words)
        except InputError as error:
            yield f"{number}: token-critic {' '.join(words[:3])} ...: {error}"


def parse_only(words: list[str]) -> None:
    """Parse a command line with the parser of its command, without running it. Raises InputError if it is invalid."""
    if words[0] not in COMMANDS:
        if words[0] not in ("--help", "--version"):
            raise InputError(f"{words[0]} is not a command")
        return
    command = load_command(words[0])
    original = cli_arguments.parse
    remaining = 2 if words[0] == "train" else 1  # `train` parses its model and preset first

    def parse(*given: Any) -> Any:
        nonlocal remaining
        found = original(*given)
        remaining -= 1
        if not remaining:
            raise _ParsedError
        return found

    places = [module for module in (cli_arguments, command) if "parse" in vars(module)]
    for module in places:
        vars(module)["parse"] = parse
    try:
        with contextlib.redirect_stdout(None):  # the output of --help
            command.main(words[1:])
    except (_ParsedError, SystemExit):
        pass
    finally:
        for module in places:
            vars(module)["parse"] = original


def main() -> None:
    chosen = [Path(name).resolve() for name in sys.argv[1:]]
    checked, findings = chosen or pages(), []
    for page in checked:
        checks = [long_lines, phrases, dead_links, unknown_commands] if page.suffix == ".md" else [phrases]
        checks += [readme_limits] if page.name == "README.md" and page.parent == ROOT else []
        findings += [f"{os.path.relpath(page, ROOT)}:{found}" for check in checks for found in check(page)]
    for source in [] if chosen else sorted((ROOT / "src").rglob("*.py")):
        findings += [f"{os.path.relpath(source, ROOT)}:{found}" for found in phrases(source)]
    print("\n".join(findings) or "prose: no findings")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
