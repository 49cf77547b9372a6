"""What the README says of ours, of Keras' own and of torch's loss scaler, beside the others."""

import importlib.util
import re
import sys
from pathlib import Path

import keras
import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("peers", ROOT / "benchmarks" / "peers.py")
peers = importlib.util.module_from_spec(_spec)
sys.modules["peers"] = peers
_spec.loader.exec_module(peers)

CASES = {"keras-mp": "jax", "Keras": "jax", "torch GradScaler": "torch"}


def told(row, name):
    """Returns the cell of the README's table."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    head = next(line for line in lines if line.startswith("| | keras-mp"))
    column = next(i for i, cell in enumerate(head.split("|")) if cell.strip().startswith(name))
    cells = next(line for line in lines if line.startswith(f"| {row} |")).split("|")
    return re.sub(r"\[(.*?)\]\(.*?\)", r"\1", cells[column].strip())


@pytest.mark.parametrize("row", peers.PROBES)
@pytest.mark.parametrize("name", CASES)
def test_the_readme_tells_the_truth(name, row):
    if keras.backend.backend() != CASES[name]:
        pytest.skip(f"it is asked on {CASES[name]}")
    if name == "Keras" and not keras.__version__.startswith("3.15."):
        pytest.skip("the README speaks of Keras 3.15")
    assert peers.PROBES[row](peers.PEERS[name]()) == told(row, name.partition(" ")[0])
