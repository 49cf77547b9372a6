"""KMP116: shapes that are tuples, dtypes that are strings."""

import pytest

from tests.keras3_rules import header, holds, in_layer, rewritten, verdicts

REWRITES = {
    "of a KerasTensor": ("x.shape.as_list()", "list(x.shape)"),
    "get_shape": ("a = x.get_shape()", "a = x.shape"),
    "rank": ("x.shape.rank", "len(x.shape)"),
    "a dimension": ("x.shape[1].value", "x.shape[1]"),
    "of a layer": ("layer.dtype.name", "layer.dtype"),
    "of weights": ("[w.dtype.name for w in model.weights]", "[w.dtype for w in model.weights]"),
}
FINE = {
    "of a tensor": "def f(t): return t.shape.as_list(), t.dtype.name",
    "of a function of the program": "def build(self, shape): return shape.as_list()",
    "in call": "class L(layers.Layer):\n    def call(self, t): return t.shape.as_list()",
    "as it is": "x.shape[1], x.dtype",
}


@pytest.mark.parametrize(("before", "after"), header("KMP116"))
def test_the_header(before, after):
    assert holds(before, after)


@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(before, after):
    assert rewritten(before) == after
    assert set(verdicts(before, "KMP116")) == {"rewritten"}


@pytest.mark.parametrize("line", FINE.values(), ids=FINE)
def test_leaves_alone(line):
    assert rewritten(line) == line
    assert verdicts(line, "KMP116") == []


def test_a_shape_that_is_made_anew_is_left_alone():
    program = in_layer("input_shape = tf.TensorShape(input_shape); n = input_shape.as_list()")
    assert verdicts(program, "KMP116") == []


def test_of_compute_output_shape():
    program = in_layer("return s.as_list()", "compute_output_shape(self, s)")
    assert "return list(s)" in rewritten(program)


@pytest.mark.parametrize(
    "line", ["layer.kernel.dtype.base_dtype", "x.dtype.is_floating", "x.shape.num_elements()"]
)
def test_reports(line):
    assert rewritten(line) == line
    assert verdicts(line, "KMP116") == ["manual"]
