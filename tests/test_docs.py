"""Code in the README and the docs runs as printed."""

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


def test_the_prose_check_finds_what_it_looks_for(tmp_path):
    page = tmp_path / "page.md"
    good = (
        "# A page\n\nRe-masked tokens are resampled, see [above](#a-page).\n\n```bash\ntoken-critic sample MODEL\n```\n"
    )
    bad = {
        good.replace("Re-masked tokens", "Tokens taken back"): "'taken back'; write 're-mask'",
        good + "word " * 30: "characters; at most 120",
        good.replace("(#a-page)", "(#another-page)"): "the link #another-page leads nowhere",
        good.replace("sample MODEL", "sample MODEL --stepz 3"): "--stepz",
        good.replace("sample MODEL", "paint MODEL"): "paint is not a command",
    }
    for text, finding in {good: "prose: no findings", **bad}.items():
        page.write_text(text)
        command = [sys.executable, str(ROOT / "scripts" / "check_prose.py"), str(page)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert finding in done.stdout, done.stderr
        assert done.returncode == (text != good)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
