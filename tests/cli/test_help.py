"""The help of every command says what each flag is."""

import argparse

import pytest
from jsonargparse import ArgumentParser

from tokencritic.cli.main import COMMANDS, main
from tokencritic.presets import MODELS

HELPS = [[command] for command in COMMANDS] + [["train", model, "fashion-mnist"] for model in MODELS]


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_every_flag_is_explained(words, monkeypatch, capsys):
    parsers, form = [], ArgumentParser.format_help
    monkeypatch.setattr(ArgumentParser, "format_help", lambda parser: parsers.append(parser) or form(parser))
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    flags = [action for action in parsers[-1]._actions if action.help != argparse.SUPPRESS]
    assert len(flags) >= 1
    assert [action.dest for action in flags if not (action.help or "").strip()] == []
    text = capsys.readouterr().out
    assert "default: null" not in text
    assert "default: None" not in text
