"""What docs/explanation/comparison.md says of ours, of Keras' own and of torch's loss scaler."""

import importlib.util
import re
import sys
from pathlib import Path

import keras
import numpy as np
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


def test_keras_own_repairs_nothing():
    """The row "repairs a model that overflows for good", of a model that ours repairs."""
    keras.config.set_dtype_policy("mixed_float16")
    try:
        large = keras.initializers.Constant(4e4)
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(1, kernel_initializer=large)]
        )
    finally:
        keras.config.set_dtype_policy("float32")
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1e-9)), "mse")
    x, y = np.ones((60, 4), "float32"), np.ones((60, 1), "float32")
    model.fit(x, y, batch_size=2, verbose=0)
    assert (keras.ops.convert_to_numpy(model.weights[0]) == 4e4).all()
    assert model.layers[0].compute_dtype == "float16"
    assert told("repairs a model that overflows for good", "Keras") == "no"
    assert told("repairs a model that overflows for good", "keras-mp") == "✓"


def test_grad_scaler_repairs_nothing():
    if keras.backend.backend() != "torch":
        pytest.skip("it is asked on torch")
    import torch

    layer = torch.nn.Linear(4, 1, bias=False)
    torch.nn.init.constant_(layer.weight, 4e4)
    optimizer, scaler = torch.optim.SGD(layer.parameters(), 1e-9), torch.amp.GradScaler("cpu")
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = layer(torch.ones(2, 4)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert (layer.weight == 4e4).all()
    assert told("repairs a model that overflows for good", "torch") == "no"


def test_the_readme_has_rows_of_the_page():
    readme = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Comparison")[2]
    rows = [line for line in readme.partition("\n## ")[0].splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 6
    page = PAGE.read_text(encoding="utf-8").replace("](../../", "](").splitlines()
    for row in rows:
        assert row in page
