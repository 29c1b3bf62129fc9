import re

import torch

from tokencritic import __version__
from tokencritic.cli import doctor
from tokencritic.cli.main import main


def test_it_names_versions_devices_and_caches(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("TOKENCRITIC_CACHE", str(tmp_path))
    monkeypatch.setattr(torch, "compile", lambda call: call)  # the real one takes seconds
    assert main(["doctor", "--device", "cpu"]) == 0
    facts = dict(re.split(r"  +", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert facts["token-critic"] == __version__
    assert facts["torch"] == torch.__version__
    assert facts["devices"].endswith("cpu")
    assert facts["bfloat16"] == facts["compile"] == "usable on cpu"
    assert facts["fused attention"].endswith("on cpu")
    assert facts["cache: measurements"] == str(tmp_path)
    assert re.fullmatch(r"[\d.]+ of [\d.]+ GiB of the host's|unknown", facts["free memory"])


def test_what_does_not_work_is_said_and_is_no_error(capsys, monkeypatch):
    def broken(*_):
        raise OSError("no C++ compiler\nand much more")

    monkeypatch.setattr(torch, "compile", broken)
    assert doctor._compile(torch.device("cpu")) == "not usable: no C++ compiler"
    assert doctor._version("no-such-package") == "not installed"
    assert main(["doctor", "--device", "nowhere"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
