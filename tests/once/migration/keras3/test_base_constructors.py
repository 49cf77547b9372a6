"""KMP113: self given to a constructor of Keras."""

import pytest

from tests.keras3_rules import header, holds, rewritten, verdicts

CLASS = "class H({}):\n    def __init__(self):\n        {}"


@pytest.mark.parametrize(("before", "after"), header("KMP113"))
def test_the_header(before, after):
    assert holds(before.replace("Head", "Head"), after)


@pytest.mark.parametrize("base", ["Model", "layers.Layer", "keras.callbacks.Callback"])
def test_rewrites(base):
    before = CLASS.format(base, "super().__init__(self)")
    assert rewritten(before) == CLASS.format(base, "super().__init__()")
    assert verdicts(before, "KMP113") == ["rewritten"]


@pytest.mark.parametrize(
    "program",
    [
        CLASS.format("Model", "super().__init__()"),
        CLASS.format("object", "super().__init__(self)"),
        CLASS.format("Model", "Model.__init__(self)"),
        CLASS.format("Model", "super().__init__(name=self)"),
    ],
)
def test_leaves_alone(program):
    assert rewritten(program) == program
    assert verdicts(program, "KMP113") == []
