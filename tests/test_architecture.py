"""Imports point upward only: a module uses what stands above it in the tree of docs/design.md."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/tokencritic"
TREE = re.search(r"```\n(errors\.py .*?)```", (ROOT / "docs/design.md").read_text(), re.DOTALL)[1]
ORDER = re.findall(r"^(\w+)(?:\.py|/)", TREE, re.MULTILINE)  # what is indented belongs to the line above


def rooms(folder):
    """The modules and packages at the top of the package."""
    for path in folder.iterdir():
        if (path.suffix == ".py" and path.name != "__init__.py") or (path / "__init__.py").is_file():
            yield path.stem


class Imports(ast.NodeVisitor):
    """The rooms that a module imports from, anywhere in it but under TYPE_CHECKING, each with its line."""

    def __init__(self, inside):
        self.inside, self.found = inside, []  # inside: the package that the module lies in, as parts of its name

    def visit_If(self, node):
        typing_only = ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for child in node.orelse if typing_only else [node.test, *node.body, *node.orelse]:
            self.visit(child)

    def visit_Import(self, node):
        for name in node.names:
            self.add(name.name, node)

    def visit_ImportFrom(self, node):
        above = self.inside[: len(self.inside) - node.level + 1] if node.level else []
        module = ".".join([*above, *([node.module] if node.module else [])])
        if module == "tokencritic":  # `from tokencritic import pipeline`
            for name in node.names:
                self.add(f"tokencritic.{name.name}", node)
        else:
            self.add(module, node)

    def add(self, module, node):
        package, _, rest = module.partition(".")
        if package == "tokencritic":
            self.found.append((rest.partition(".")[0], node.lineno))


def imports_of(source, inside=("tokencritic",)):
    visitor = Imports(list(inside))
    visitor.visit(ast.parse(source))
    return visitor.found


def test_imports_are_found_wherever_they_stand():
    source = """
import torch, tokencritic.files
from typing import TYPE_CHECKING
from tokencritic import errors
if TYPE_CHECKING:
    from tokencritic.cli import main
else:
    import tokencritic.plan
def later():
    from tokencritic.studio.page import show
from ..masking import put
from . import loop
"""
    found = imports_of(source, ("tokencritic", "sampling"))
    assert [room for room, _ in found] == ["files", "errors", "plan", "studio", "masking", "sampling"]


def test_the_tree_names_every_module_once_with_studio_and_cli_last():
    assert sorted(ORDER) == sorted(rooms(PACKAGE))
    assert ORDER[-2:] == ["studio", "cli"]


def test_imports_point_upward_only():
    downward = []
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        if parts == ("__init__",):
            continue  # it imports lazily, and only to offer names
        for room, line in imports_of(file.read_text(), ("tokencritic", *parts[:-1])):
            # A name that is no room, such as `__version__`, is the package's own.
            if room in ORDER and ORDER.index(room) > ORDER.index(parts[0]):
                downward.append(f"{file.relative_to(PACKAGE)}:{line} imports {room}")
    assert not downward, "\n".join(downward)
