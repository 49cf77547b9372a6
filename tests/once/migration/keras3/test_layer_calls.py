"""KMP112: calls of layers with what is no tensor."""

import pytest

from tests.keras3_rules import header, holds, rewritten, verdicts

OWN = "class Own(layers.Layer):\n    def call(self, x, mask, training=None): pass\n"
REWRITES = {
    "made where it is called": (
        "layers.Dropout(0.5)(x, True)",
        "layers.Dropout(0.5)(x, training=True)",
    ),
    "of a cell": (
        "layers.LSTMCell(3)(x, s, training)",
        "layers.LSTMCell(3)(x, s, training=training)",
    ),
    "of a class of the program": (
        f"{OWN}own = Own()\nown(x, None, True)",
        f"{OWN}own = Own()\nown(x, None, training=True)",
    ),
    "derived from one": (
        f"{OWN}class Two(Own): pass\nTwo()(x, m, False)",
        f"{OWN}class Two(Own): pass\nTwo()(x, m, training=False)",
    ),
}
FINE = {
    "tensors": "layers.MultiHeadAttention(1, 2)(x, x)",
    "keyword": "dropout(x, training=True)",
    "unknown": "def f(layer): layer(x, True)",
    "one": "dropout(True)",
    "None": "dropout(x, None)",
    "its own __call__": "class C(layers.Layer):\n    def __call__(self, x, t): pass\nC()(x, True)",
    "no layer": "keras.losses.MeanSquaredError()(x, True)",
}


@pytest.mark.parametrize(("before", "after"), header("KMP112"))
def test_the_header(before, after):
    assert holds(before, after)


@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(before, after):
    assert rewritten(before) == after


@pytest.mark.parametrize("line", FINE.values(), ids=FINE)
def test_leaves_alone(line):
    assert rewritten(line) == line
    assert verdicts(line, "KMP112") == []


@pytest.mark.parametrize(
    "line",
    [
        "model(x, True)",
        "dropout(x, True, 1)",
        "dropout(x, True, training=False)",
        "dropout(x, 1, *a)",
    ],
)
def test_reports_where_the_parameter_is_not_known(line):
    assert rewritten(line) == line
    assert verdicts(line, "KMP112") == ["manual"]
