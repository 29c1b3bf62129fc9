"""The notebook runs from top to bottom, without a network."""

import json
import socket
from pathlib import Path

import pytest
from PIL import Image
from studio.toy import toy_pipe

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebook.ipynb"
MODEL = 'MODEL = "fashion-mnist"'


def cells():
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(sources):
    """Run the cells in one namespace, and return the value of each cell's last line, as a notebook shows it."""
    names, shown = {}, []
    for number, source in enumerate(sources):
        *lines, last = source.split("\n")
        try:
            shows = compile(last, f"cell {number}", "eval")
        except SyntaxError:
            lines, shows = [*lines, last], None
        exec(compile("\n".join(lines), f"cell {number}", "exec"), names)
        shown.append(None if shows is None else eval(shows, names))
    return shown


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("the notebook asks the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def test_every_cell_runs_on_a_small_model(tmp_path):
    pipe = toy_pipe()
    pipe.save_pretrained(tmp_path / "model")
    sources = cells()
    assert sum(MODEL in source for source in sources) == 1
    shown = run([source.replace(MODEL, f"MODEL = {str(tmp_path / 'model')!r}") for source in sources])
    assert sum(isinstance(value, Image.Image) for value in shown) == 5


def test_it_runs_on_the_embedded_model():
    shown = run(cells())
    assert sum(isinstance(value, Image.Image) for value in shown) == 5
