"""The tree of docs/design.md names every file once, and a file imports only files above it."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/tokencritic"
TREE = re.search(r"```\n(bounds\.py .*?)```", (ROOT / "docs/design.md").read_text(), re.DOTALL)[1]


def files_of(tree):
    """Return the modules of a tree in its order: `sampling.loop` for `loop.py` below `sampling/`."""
    found, folder = [], ""
    for indent, name, kind in re.findall(r"^( *)(\w+)(\.py|/)", tree, re.MULTILINE):
        if kind == "/":
            folder = f"{name}."
        else:
            found.append((folder if indent else "") + name)
    return found


class Imports(ast.NodeVisitor):
    """Return the modules of the package that a file imports, except under TYPE_CHECKING, each with its line."""

    def __init__(self):
        self.found = []

    def visit_If(self, node):
        typing_only = ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for child in node.orelse if typing_only else [node.test, *node.body, *node.orelse]:
            self.visit(child)

    def visit_Import(self, node):
        self.found += [(name.name, node.lineno) for name in node.names]

    def visit_ImportFrom(self, node):
        assert node.level == 0, "imports are absolute"
        # `from tokencritic.evaluation import metrics` may name a module or something in one.
        self.found += [(f"{node.module}.{name.name}", node.lineno) for name in node.names]
        self.found.append((node.module, node.lineno))


def imports_of(source):
    """Return names without the prefix of the package, such as `sampling.loop.run_loop`. Other packages are left out."""
    visitor = Imports()
    visitor.visit(ast.parse(source))
    prefix = "tokencritic."
    return [(name.removeprefix(prefix), line) for name, line in visitor.found if name.startswith(prefix)]


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
"""
    found = [name for name, _ in imports_of(source)]
    assert found == ["files", "errors", "plan", "studio.page.show", "studio.page"]


def test_the_tree_names_every_file_once():
    modules = [file.relative_to(PACKAGE).with_suffix("") for file in PACKAGE.rglob("*.py") if file.stem != "__init__"]
    assert sorted(files_of(TREE)) == sorted(".".join(module.parts) for module in modules)


def test_imports_point_upward_only():
    order, downward = files_of(TREE), []
    for place, module in enumerate(order):
        file = PACKAGE / f"{module.replace('.', '/')}.py"
        for name, line in imports_of(file.read_text()):
            if name in order[place + 1 :]:
                downward.append(f"{module}:{line} imports {name}, which stands below it")
    assert not downward, "\n".join(downward)
