"""What the README and the docs print must run as printed."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    (page.name, code) for page in PAGES for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]


@pytest.mark.parametrize(("page", "code"), BLOCKS, ids=[page for page, _ in BLOCKS])
def test_python_blocks_run(page, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "block.py").write_text(code)
    runpy.run_path(str(tmp_path / "block.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_plug_in_example_runs_and_its_critic_wins():
    shares = [float(x) for x in re.findall(r"([\d.]+)% perfect", run("examples/plug_in.py"))]
    assert len(shares) == 3
    assert shares[1] > max(shares[0], shares[2]) + 10


def test_the_exact_world_example_writes_its_figure(tmp_path):
    out = run("examples/exact_world.py", "--samples", "200", "--out", str(tmp_path / "figure.png"))
    assert "a generator that is 20 % wrong, 4 steps, each at its best setting" in out
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
