"""The README's code runs, and its links lead somewhere."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_mp
from keras_mp import policy

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "keras-3-faults.md"]
BLOCKS = re.findall(r"```python\n(.*?)```", PAGES[0].read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def names(monkeypatch):
    monkeypatch.setattr(policy, "_advised", True)
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(1, dtype="mixed_float16")(inputs))
    yield {"keras": keras, "keras_mp": keras_mp, "model": model}
    keras_mp.set_global_policy(None)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_code(number, names):
    block = BLOCKS[number]
    if "jax." in block:
        if keras.backend.backend() != "jax":
            pytest.skip("a loop on JAX")
        names |= {"x": np.ones((2, 4), "float32"), "y": np.ones((2, 1), "float32")}
    exec(compile(block, f"README.md, block {number}", "exec"), names)


def test_there_are_blocks():
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page):
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert links
    for link in links:
        assert link.startswith("https://") or (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_tests_exist(page):
    """Where a page names a test function, the file that it links has it."""
    for path, name in re.findall(
        r"\[`?(?:[\w./]+)`?\]\(([\w./-]+\.py)\) `(test_\w+)`", page.read_text(encoding="utf-8")
    ):
        text = (page.parent / path).read_text(encoding="utf-8")
        assert f"def {name}(" in text, (path, name)
