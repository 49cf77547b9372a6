"""Which expressions are objects of Keras."""

import libcst as cst
import pytest

from keras_mp.migration.code.parsed import Program
from keras_mp.migration.keras3.objects import Objects

HEAD = """\
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers
"""
# Program, whose last expression is asked for -> kind; None where nothing is known.
KINDS = {
    "made": ("layers.Dense(1)", "layers.Layer"),
    "a name": ("a = layers.Dense(1)\na", "layers.Layer"),
    "two alike": ("a = layers.Dense(1)\nif b: a = layers.LSTM(2)\na", "layers.Layer"),
    "two unlike": ("a = layers.Dense(1)\nif b: a = keras.metrics.Mean()\na", None),
    "something else, too": ("a = layers.Dense(1)\na = f(a)\na", None),
    "or None": ("a = None\nif b: a = layers.Dense(1)\na", "layers.Layer"),
    "only None": ("a = None\na", None),
    "either": ("layers.Dense(1) if b else layers.LSTM(1)", "layers.Layer"),
    "a parameter": ("def f(a):\n    a", None),
    "a parameter that is assigned": ("def f(a):\n    a = a or layers.Dense(1)\n    a", None),
    "annotated": ("def f(a: keras.Model):\n    a", "Model"),
    "global": ("a = keras.Sequential()\ndef f():\n    a", "Sequential"),
    "an own class": ("class A(keras.Model): pass\nA()", "Model"),
    "derived twice": ("class A(keras.Model): pass\nclass B(A): pass\nB()", "Model"),
    "not of Keras": ("class A: pass\nA()", None),
    "of itself": ("class A(A): pass\nA()", None),
    "self": ("class A(keras.Model):\n    def f(self):\n        self", "Model"),
    "self by another name": ("class A(keras.Model):\n    def f(me):\n        me", "Model"),
    "in an inner function": (
        "class A(keras.Model):\n    def f(self):\n        def g():\n            self",
        "Model",
    ),
    "a static method": ("class A(keras.Model):\n    @staticmethod\n    def f(s):\n        s", None),
    "super": ("class A(keras.Model):\n    def f(self):\n        super()", "Model"),
    "an attribute": (
        "class A:\n    def __init__(self): self.a = keras.Model()\n"
        "    def f(self):\n        self.a",
        "Model",
    ),
    "that of another class": (
        "class A:\n    def f(self): self.a = keras.Model()\n"
        "class B:\n    def f(self):\n        self.a",
        None,
    ),
    "the optimizer of a model": ("keras.Model().optimizer", "optimizers.Optimizer"),
    "a layer of a model": ("keras.Model().layers[0]", "layers.Layer"),
    "its layers": ("keras.Model().layers[1:]", None),
    "one of some of them": ("keras.Model().layers[1:][0]", "layers.Layer"),
    "in a loop": ("for a in keras.Model().layers:\n    a", "layers.Layer"),
    "with its number": ("for i, a in enumerate(keras.Model().layers):\n    a", "layers.Layer"),
    "of two": ("for a, b in zip(keras.Model().layers, c):\n    a", "layers.Layer"),
    "backwards": ("for a in reversed(keras.Model().layers):\n    a", "layers.Layer"),
    "in a list": ("m = [keras.metrics.Mean()]\nfor a in m:\n    a", "metrics.Metric"),
    "a loaded model": ("keras.models.load_model(p)", "Model"),
    "an application": ("tf.keras.applications.ResNet50()", "Model"),
    "weights": ("layers.Dense(1).trainable_weights[0]", "Variable"),
    "an input": ("keras.Input((3,))", "KerasTensor"),
    "a call of a layer": ("layers.Dense(1)(keras.Input((3,)))", "KerasTensor"),
    "of another function": ("layers.Dense(1)(f())", None),
    "returned": ("def f():\n    return keras.Model()\nf()", "Model"),
    "returned or not": ("def f():\n    if a: return keras.Model()\n    return b\nf()", None),
    "returned with a decorator": ("@d\ndef f():\n    return keras.Model()\nf()", None),
    "returned by itself": ("def f():\n    return f()\nf()", None),
    "yielded": ("def f():\n    yield keras.Model()\nf()", None),
    "a name of itself": ("a = a\na", None),
    "the class": ("keras.Model", None),
    "a local name": ("keras = other\nkeras.Model()", None),
}


@pytest.mark.parametrize(("lines", "kind"), KINDS.values(), ids=KINDS)
def test_kinds(lines, kind):
    program = Program(HEAD + lines + "\n")
    last = _Last()
    program.module.visit(last)
    found = Objects(program).of(last.found)
    assert (found.kind if found is not None else None) == kind


class _Last(cst.CSTVisitor):
    def visit_Expr(self, node):
        self.found = node.value
