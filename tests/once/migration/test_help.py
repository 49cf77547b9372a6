"""The help of each command: it fits 80 columns, however wide the terminal is."""

import argparse

import pytest

from keras_mp.migration.cli import main
from keras_mp.migration.parser import parser


def commands() -> list[str]:
    groups = (one for one in parser()._actions if isinstance(one, argparse._SubParsersAction))
    return [name for group in groups for name in group.choices]


def test_all_are_there() -> None:
    assert {"migrate", "inspect", "plot", "report", "bench", "demo"} <= set(commands())


@pytest.mark.parametrize("columns", ["60", "80", "200"])
@pytest.mark.parametrize("command", ["", *commands()])
def test_lines_fit(
    command: str, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main([*filter(None, [command]), "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5
    assert [line for line in lines if len(line) > 80] == []
