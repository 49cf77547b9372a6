"""The guide to source migration says what the rules do."""

from pathlib import Path

import pytest

from keras_mp.compat.names import NAMES
from keras_mp.migration.rules import RULES, id_of
from tests import guide
from tests.guide import GUIDE as README, KERAS_3


def test_its_tables_are_those_of_the_rules():
    text = README.read_text(encoding="utf-8")
    assert text == guide.guide(text), "run python -m tests.guide"


def test_the_page_about_keras_3_has_the_rules():
    text = KERAS_3.read_text(encoding="utf-8")
    assert text == guide.page(text), "run python -m tests.guide"
    rows = [line for line in text.split("\n") if line.startswith("| KMP")]
    assert [row[2:8] for row in rows] == [name for name in RULES if RULES[name].package == "keras3"]


def test_its_tables_are_written(tmp_path, monkeypatch):
    text = README.read_text(encoding="utf-8")
    row = next(line for line in text.split("\n") if f"`{next(iter(NAMES))}" in line)
    old = tmp_path / "README.md", tmp_path / "keras-3.md"
    old[0].write_text(text.replace(f"{row}\n", ""), encoding="utf-8")
    old[1].write_text(KERAS_3.read_text(encoding="utf-8").replace("| KMP101 |", "| |"), "utf-8")
    monkeypatch.setattr(guide, "GUIDE", old[0])
    monkeypatch.setattr(guide, "KERAS_3", old[1])
    guide.main()
    assert old[0].read_text(encoding="utf-8") == text
    assert old[1].read_text(encoding="utf-8") == KERAS_3.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_it_has_every_old_name(name):
    rows = [line for line in README.read_text(encoding="utf-8").split("\n") if f"`{name}" in line]
    assert len(rows) == 1
    assert "keras_mp" in rows[0] or "dtype_policy" in rows[0]


def test_every_rule_has_its_module_and_its_tests():
    modules = {
        (folder, path.stem)
        for folder in {rule.package for rule in RULES.values()}
        for path in (README.parent / folder).glob("*.py")
        if path.read_text(encoding="utf-8").startswith('"""KMP')
    }
    assert modules == {(rule.package, rule.module) for rule in RULES.values()}
    assert [rule.load().__doc__[:6] for rule in RULES.values()] == list(RULES) == sorted(RULES)
    assert [id_of(rule.load()) for rule in RULES.values()] == list(RULES)
    tests = {
        (path.parent.name, path.stem[5:]) for path in Path(__file__).parent.glob("*/test_*.py")
    }
    assert modules <= tests
