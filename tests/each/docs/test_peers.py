"""What docs/explanation/comparison.md says of ours, of Keras' own and of torch's loss scaler."""

import importlib.util
import re
import sys
from pathlib import Path

import keras
import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "explanation" / "comparison.md"
_spec = importlib.util.spec_from_file_location("peers", ROOT / "benchmarks" / "peers.py")
peers = importlib.util.module_from_spec(_spec)
sys.modules["peers"] = peers
_spec.loader.exec_module(peers)

CASES = {"keras-mp": "jax", "Keras": "jax", "torch GradScaler": "torch"}


def told(row, name):
    """Returns the cell of the page's table."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    head = next(line for line in lines if line.startswith("| | keras-mp"))
    column = next(i for i, cell in enumerate(head.split("|")) if cell.strip().startswith(name))
    cells = next(line for line in lines if line.startswith(f"| {row} |")).split("|")
    return re.sub(r"\[(.*?)\]\(.*?\)", r"\1", cells[column].strip())


@pytest.mark.parametrize("row", peers.PROBES)
@pytest.mark.parametrize("name", CASES)
def test_the_page_tells_the_truth(name, row):
    if keras.backend.backend() != CASES[name]:
        pytest.skip(f"it is asked on {CASES[name]}")
    if name == "Keras" and not keras.__version__.startswith("3.15."):
        pytest.skip("the page speaks of Keras 3.15")
    assert peers.PROBES[row](peers.PEERS[name]()) == told(row, name.partition(" ")[0])


def test_the_readme_has_rows_of_the_page():
    readme = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Comparison")[2]
    rows = [line for line in readme.partition("\n## ")[0].splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 6
    page = PAGE.read_text(encoding="utf-8").replace("](../../", "](").splitlines()
    for row in rows:
        assert row in page
