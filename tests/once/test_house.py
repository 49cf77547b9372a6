"""Each module says what it is for, and none grows without a word."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    path for room in ("keras_mp", "compat", "migration") for path in (ROOT / room).rglob("*.py")
)
LONGEST = 500
# Of its lines 110 are the docstring of the class that everybody looks up.
LONGER = {"keras_mp/loss_scale_optimizer.py": 510}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_modules(path):
    text = path.read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(text))
    assert said, "it has no docstring"
    assert said.splitlines()[0][-1] in ".:?", "its first line is no sentence"
    assert len(text.splitlines()) <= LONGER.get(path.relative_to(ROOT).as_posix(), LONGEST)
