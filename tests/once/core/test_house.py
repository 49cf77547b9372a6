"""Each module says what it is for, in a sentence."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODULES = sorted(
    path for room in ("keras_mp", "compat", "migration") for path in (ROOT / room).rglob("*.py")
)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_modules(path):
    text = path.read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(text))
    assert said, "it has no docstring"
    assert said.splitlines()[0][-1] in ".:?", "its first line is no sentence"
