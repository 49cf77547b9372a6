"""The program of docs/how-to/other-tools.md runs, from its first block to the last."""

import re
from pathlib import Path

import pytest

from tests.clients.small import quick_on

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "other-tools.md"
NEEDED = ("keras_hub", "keras_tuner", "mlflow", "wandb", "orbax.checkpoint")


@quick_on("torch")
@pytest.mark.filterwarnings("ignore:.*was not loaded")  # of the optimizer of keras-tuner's best
def test_the_page():
    for name in NEEDED:
        pytest.importorskip(name)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 9
    names = {}
    for block in blocks:
        exec(block, names)
    assert float(names["other"].optimizer.loss_scale) > 0
