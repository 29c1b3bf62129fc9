"""The recipes, with commands in place of the real ones that only write down how they were called."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from check_prose import parse_only
from result_files import Results
from result_tables import TABLES
from tables import PAGES, Page

ROOT = Path(__file__).parents[1]
RECIPES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "recipes").glob("*/*") if path.suffix == "")
# `compare` writes a folder, `evaluate` a file.
TOKEN_CRITIC = r"""#!/usr/bin/env bash
printf '%q ' "$@" >> calls; echo >> calls
printf -v command '{\n  "command": "token-critic %s",' "$*"
while (($#)); do
  case "$1 ${2:-}" in
    "--out "*.json) mkdir -p "$(dirname "$2")"; echo "$command" > "$2" ;;
    "--out "*) mkdir -p "$2"; echo "$command" > "$2/comparison.json" ;;
  esac
  shift
done
"""
TORCHRUN = r"""#!/usr/bin/env bash
while [[ $1 != -- ]]; do shift; done
shift
exec "$@"
"""


@pytest.fixture
def run(tmp_path):
    """Run a recipe in an empty tree; returns the calls of token-critic."""
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    (tmp_path / "src/tokencritic/pretrained/fashion-mnist").mkdir(parents=True)
    for name, text in {
        "bin/token-critic": TOKEN_CRITIC,
        "bin/torchrun": TORCHRUN,
        "bin/python": "#!/bin/sh\n",
        "scripts/get_data": "#!/bin/sh\n",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    def call(recipe, *arguments, code=0, **variables):
        (tmp_path / "calls").write_text("")
        environment = os.environ | {"BIN": "bin", **variables}
        command = ["bash", str(tmp_path / recipe), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == code, done.stderr
        return [shlex.split(line) for line in (tmp_path / "calls").read_text().splitlines()]

    return call


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_commands_of_a_recipe_are_understood(run, recipe):
    calls = run(recipe, "out", INCEPTION="weights.pth", LPIPS="weights.pth")
    assert calls
    for words in calls:
        parse_only(words)


def test_what_the_pages_need_is_what_the_recipe_writes(run, tmp_path):
    run("recipes/fashion_mnist/measure", "out")
    for minutes in ("2", "10", "60", "bundled"):
        run("recipes/fashion_mnist/undertrained", f"out/{minutes}", minutes)
    written = {file.stem for file in (tmp_path / "docs/results/fashion_mnist").glob("*.json")}
    assert {file for table in TABLES.values() for file in table.files} <= written
    there = {file.stem for file in (ROOT / "docs/results/fashion_mnist").glob("*.json*")}
    for name, section in PAGES.items():
        page = Page((ROOT / name).read_text(), section, Results(tmp_path))
        assert page.operands <= written | there, name


def test_single_results_can_be_measured_and_a_smoke_test_changes_no_page(run, tmp_path):
    measure, results = "recipes/fashion_mnist/measure", tmp_path / "docs/results/fashion_mnist"
    calls = run(measure, "out", "cost_6", "main_rejection_*")
    assert [words[0] for words in calls] == ["evaluate"] * 4 + ["compare"]
    assert all(words[1] == "fashion-mnist" for words in calls)  # no model was trained
    rows = [f"main_rejection_{sampler}_{kept}" for sampler in ("confidence", "critic") for kept in ("all", "best")]
    names = ["cost_6", *rows]
    assert sorted(file.stem for file in results.glob("*")) == names
    for file in results.glob("*"):  # the command, without the paths of the machine that measured
        (command,) = [line for line in file.read_text().splitlines() if "command" in line]
        assert "token-critic " in command
        assert "--num " in command
        assert "out/" not in command
    shutil.rmtree(results)
    run(measure, "out", "cost_6", SMOKE="1000")
    assert not results.exists()
    assert (tmp_path / "out/results/cost_6.json").exists()
    (tmp_path / "out/model").mkdir()
    (tmp_path / "out/model/pipeline.json").touch()
    tuned = run(measure, "out", "tune")
    assert {(words[0], words[1]) for words in tuned} == {("tune", "out/model")}
    assert not any(words[0] == "tune" for words in run(measure, "out"))  # it would change the model's settings
    assert run(measure, "out", "cost_6", "cost_66", code=2) == []  # a name that does not exist, before any work
    assert run(measure, LIST="1") == []
