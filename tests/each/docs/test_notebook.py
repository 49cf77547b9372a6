"""The notebook runs on every backend, and shows what is stored in it."""

import json
import subprocess
import sys

import pytest

from tests import notebook
from tests.backends import on_one

STORED = notebook.read()


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    done = subprocess.run(
        [sys.executable, "-m", "tests.notebook", "--print"],
        cwd=notebook.ROOT,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@on_one
def test_it_shows_what_is_stored(ran):
    remedy = "run KERAS_BACKEND=jax python -m tests.notebook and read the diff"
    assert ran == notebook.shown(STORED), remedy


def test_it_installs_nothing_where_the_package_is():
    first = "".join(notebook.cells_of(STORED)[0]["source"])
    assert 'if importlib.util.find_spec("keras_mp") is None:' in first


def test_each_cell_of_code_was_run():
    counts = [cell["execution_count"] for cell in notebook.cells_of(STORED)]
    assert counts == [*range(1, len(counts) + 1)]
    assert (STORED["nbformat"], STORED["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in STORED["cells"]}) == len(STORED["cells"])
