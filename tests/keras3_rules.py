"""Helpers for tests of the rules of Keras 3: a program around some lines, and its rewrite."""

import re
from pathlib import Path

from keras_mp.migration.code.rewriting import Options, rewrite
from keras_mp.migration.rules import RULES

HEAD = """\
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import Model, layers
from tensorflow.keras import backend as K
metric = tf.keras.metrics.Mean()
stack = tf.keras.Sequential([layers.Dense(1)])
model = tf.keras.Model(stack.inputs, stack.outputs)
optimizer = tf.keras.optimizers.Adam()
layer = layers.Dense(1)
dropout = layers.Dropout(0.5)
x = tf.keras.Input((4,))
"""
_LINES = HEAD.count("\n") + 1
# A layer around a line.
_LAYER = """\
class Head(layers.Layer):
    def __init__(self):
        self.norm = layers.BatchNormalization()
    def {}:
        {}
"""


def rewritten(lines, *, skip=()):
    """Returns the rewritten lines of a program, without its imports and objects."""
    result = rewrite(f"{HEAD}\n{lines}\n", Options(keras3=True, skip=frozenset(skip)))
    compile(result.text, "program", "exec")
    again = rewrite(result.text, Options(keras3=True, skip=frozenset(skip))).text
    assert again == result.text, "a second run must find nothing to rewrite"
    return result.text.removeprefix(HEAD).strip("\n")


def in_layer(line, function="build(self, input_shape)"):
    """Returns a class of a layer with a line in it."""
    return _LAYER.format(function, line)


def said(lines, rule):
    """Returns a rule's findings for lines below imports and objects: (line, verdict)."""
    findings = rewrite(f"{HEAD}\n{lines}\n", Options(keras3=True)).findings
    return [(f.line - _LINES, f.verdict) for f in findings if f.rule == rule and f.line > _LINES]


def messages(lines, rule):
    """Returns the messages of a rule for lines below imports and objects."""
    findings = rewrite(f"{HEAD}\n{lines}\n", Options(keras3=True)).findings
    return [f.message for f in findings if f.rule == rule]


def verdicts(lines, rule):
    """Returns the verdicts of a rule for lines below imports and objects."""
    return [verdict for _, verdict in said(lines, rule)]


def header(rule):
    """Returns the pairs of before and after in the docstring of a rule's module."""
    text = Path(RULES[rule].load().__file__).read_text(encoding="utf-8")
    assert text.startswith(f'"""{rule}: ')
    pairs = re.findall(r"^before:  (.+)\nafter:   (.+)$", text, re.MULTILINE)
    assert pairs
    return [(_code(before), _code(after)) for before, after in pairs]


def holds(before, after):
    """Returns whether the rules rewrite an example of a docstring as it says."""
    if "input_shape" in before:
        return rewritten(in_layer(before)) == in_layer(after).strip("\n")
    if "self." in before:
        function = "call(self, x, training)"
        return rewritten(in_layer(before, function)) == in_layer(after, function).strip("\n")
    if "super(" in before:
        function = "__init__(self)"
        return rewritten(in_layer(before, function)) == in_layer(after, function).strip("\n")
    return rewritten(before) == after


def _code(line):
    return re.sub(r"\s+# .*", "", line).strip()
