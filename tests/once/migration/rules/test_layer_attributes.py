"""KMP017: private names of layers about dtypes."""

import pytest

from keras_mp.migration.code.rewriting import rewrite
from tests.source_rules import header, rewritten, said

LAYER = "class Own(tf.keras.layers.Layer):\n    def call(self, x):\n        return {}\n"


@pytest.mark.parametrize(("before", "after"), header("KMP017"))
def test_the_header(before, after):
    assert rewritten(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tf.cast(x, self._compute_dtype)", "tf.cast(x, self.compute_dtype)"),
        ("tf.cast(x, self.inner[0]._compute_dtype)", "tf.cast(x, self.inner[0].compute_dtype)"),
        ("x if f(x)._compute_dtype.lower() else 0", "x if f(x).compute_dtype.lower() else 0"),
    ],
)
def test_public_names_take_their_place(before, after):
    assert rewritten(LAYER.format(before)) == LAYER.format(after).strip()
    assert said(LAYER.format(before), "KMP017") == [(3, "rewritten")]


def test_a_program_that_says_nothing_else_is_read():
    source = "def f(layer):\n    return layer._compute_dtype\n"
    assert rewrite(source).text == "def f(layer):\n    return layer.compute_dtype\n"


def test_what_the_program_assigns_is_its_own():
    code = "class Own:\n    def __init__(self):\n        self._compute_dtype = 'float16'\n"
    code += "    def dtype(self):\n        return self._compute_dtype"
    assert rewritten(code) == code
    assert said(code, "KMP017") == [(5, "kept")]


def test_attributes_of_a_dtype_are_reported():
    code = "size = layer._compute_dtype_object.size"
    assert rewritten(code) == code
    assert said(code, "KMP017") == [(1, "manual")]


def test_arguments_of_other_names_stay():
    assert rewritten("f(autocast=False, experimental=1)") == "f(autocast=False, experimental=1)"
