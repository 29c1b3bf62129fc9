"""An output path that cannot be written is refused before a model is loaded."""

import pytest

from tokencritic.cli.main import main
from tokencritic.cli.outputs import check_file, check_folder
from tokencritic.errors import InputError

COMMANDS = {
    "demo": "demo absent/model --out {}",
    "sample": "sample absent/model --out {}",
    "trace": "sample absent/model --trace {}/steps.gif",
    "refine": "refine absent/model a.png --out {}",
    "edit": "edit absent/model a.png --out {}",
    "diagnose": "diagnose absent/model --out {}",
    "evaluate": "evaluate absent/model --out {}/result.json",
    "compare": "compare absent/model --out {}",
    "sweep": "sweep absent/model --out {}",
    "tune": "tune absent:model --out {}",
    "cache": "evaluate absent/model --cache {}",
    "tokenize": "tokenize absent/model absent --out {}",
    "export": "export absent {}",
    "import": "import maskgit --generator absent --tokenizer absent --out {}",
    "train": "train classifier fashion-mnist --data absent --run {}",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_below_a_file_is_refused_first(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("text")
    assert main(COMMANDS[command].format("file/below").split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert f"{tmp_path}/file is a file; expected a folder" in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("text")
    cases = {
        (check_folder, tmp_path / "file"): "is a file; expected a folder to write",
        (check_file, tmp_path): "is a folder; expected a file to write",
        (check_file, ""): "expected a file to write",
        (check_folder, tmp_path / ("x" * 300)): "File name too long",
        (check_file, tmp_path / "nul\0"): "cannot be written",
        (check_folder, "/proc/new"): "/proc cannot be written to",
    }
    for (check, path), message in cases.items():
        with pytest.raises(InputError, match=message):
            check("--out", path)
    check_folder("--out", tmp_path / "new/folder")
    check_file("--out", tmp_path / "new/file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
