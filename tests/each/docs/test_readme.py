"""The README's code runs, and its links lead somewhere."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_mp
from keras_mp.policies import compile_advice

ROOT = Path(__file__).parents[3]
RULES = ROOT / "migration" / "README.md"  # its blocks are run by the tests of the rules
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", RULES, ROOT / "CONTRIBUTING.md", *DOCS]
# The blocks of these are one program, from the first to the last.
PROGRAMS = (
    "how-to/custom-loops.md",
    "how-to/deploy.md",
    "how-to/fine-tuning.md",
    "how-to/graph-rewrite.md",
    "how-to/leave-tensorflow.md",
    "how-to/monitoring.md",
    "how-to/precision-repair.md",
    "how-to/sixteen-bit-weights.md",
    "tutorials/quickstart.md",
)
# Its commands and programs are run by test_transcripts.py.
TRANSCRIPTS = ("tutorials/walkthrough-tf23.md",)
# Their programs need other people's tools: tests/clients, and test_fleet_page.py, run them.
CLIENTS = ("how-to/fleets.md", "how-to/other-tools.md")


def place_of(page):
    return page.relative_to(ROOT).as_posix().removeprefix("docs/")


def blocks_of(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    if page != RULES and place_of(page) not in (*PROGRAMS, *TRANSCRIPTS, *CLIENTS)
    for number, block in enumerate(blocks_of(page))
]


@pytest.fixture
def names(monkeypatch):
    monkeypatch.setattr(compile_advice, "_advised", True)
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(1, dtype="mixed_float16")(inputs))
    yield {"keras": keras, "keras_mp": keras_mp, "model": model}
    keras_mp.set_global_policy(None)


@pytest.mark.filterwarnings("ignore:keras_mp.compat:DeprecationWarning")
@pytest.mark.parametrize("block", BLOCKS)
def test_code(block, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "jax." in block:
        if keras.backend.backend() != "jax":
            pytest.skip("a loop on JAX")
        names |= {"x": np.ones((2, 4), "float32"), "y": np.ones((2, 1), "float32")}
    if "import torch" in block and keras.backend.backend() != "torch":
        pytest.skip("modules of torch")
    if "TFSMLayer" in block and keras.backend.backend() != "tensorflow":
        pytest.skip("a layer of TensorFlow")
    exec(block, names)


# What the exporters of Keras, JAX and PyTorch say of themselves.
@pytest.mark.filterwarnings("ignore:The `native_serialization` parameter:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*might cause the trace to be incorrect")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    others = {"jax", "tensorflow", "torch"} - {keras.backend.backend()}
    for block in blocks_of(ROOT / "docs" / name):
        if not any(f"import {other}" in block for other in others):
            exec(block, names)
    keras_mp.set_global_policy(None)
    if "optimizer" in names:
        assert float(names["optimizer"].loss_scale) > 0
    else:
        assert int(names["model"].optimizer.iterations) > 0


def test_recipes_are_those_that_are_tested():
    """What needs several processes is run by the engines of the fault matrix, line by line."""
    page = (ROOT / "docs" / "how-to" / "distribution.md").read_text(encoding="utf-8")
    recipes = re.findall(r"```python recipe\n(.*?)```", page, re.DOTALL)
    tested = [
        line.strip()
        for path in ("tests/engines/torch.py", "tests/each/backends/test_jax_transformations.py")
        for line in (ROOT / path).read_text(encoding="utf-8").splitlines()
    ]
    classes = re.findall(r"^class .*?(?=^\S|\Z)", "\n".join(recipes), re.DOTALL | re.MULTILINE)
    assert len(classes) == 2
    for line in filter(None, map(str.strip, "\n".join(classes).splitlines())):
        assert line in tested


def test_there_are_blocks():
    assert len(BLOCKS) >= 8


def test_every_page_is_linked():
    """Whoever reads the README finds all of them."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert f"({page.relative_to(ROOT).as_posix()}" in readme, page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links(page):
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert links
    for link in links:
        assert link.startswith("https://") or (page.parent / link).exists(), link


def named_tests(page):
    pattern = r"\[`?(?:[\w./]+)`?\]\(([\w./-]+\.py)\) `(test_\w+)`"
    return re.findall(pattern, page.read_text(encoding="utf-8"))


def test_there_are_named_tests():
    assert len([each for page in PAGES for each in named_tests(page)]) > 50


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_named_tests_exist(page):
    """Where a page names a test function, the file that it links has it."""
    for path, name in named_tests(page):
        text = (page.parent / path).read_text(encoding="utf-8")
        assert f"def {name}(" in text, (path, name)


def test_the_tests_that_the_readme_names_exist():
    named = re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", (ROOT / "README.md").read_text("utf-8"))
    assert len(named) >= 5
    for name, path in named:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), (path, name)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
