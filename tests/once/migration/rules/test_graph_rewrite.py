"""KMP010: the graph rewrite."""

import pytest

from keras_mp.migration.code.rewriting import rewrite
from tests.source_rules import header

NAME = "enable_mixed_precision_graph_rewrite"
COMPAT = f"keras_mp.compat.train.experimental.{NAME}"
SPACES = (
    "tf.train.experimental",
    "tf.compat.v1.train.experimental",
    "tf.compat.v1.mixed_precision",
    "tf.compat.v2.train.experimental",
)
CALLS = {
    "(opt, 'dynamic')": "keras_mp.graph_rewrite.enable(opt, 'dynamic')",
    "(opt=opt, loss_scale=8)": "keras_mp.graph_rewrite.enable(opt=opt, loss_scale=8)",
    "(opt, scale)": f"{COMPAT}(opt, scale)",
    "(opt, 0.5)": f"{COMPAT}(opt, 0.5)",
    "(*a)": f"{COMPAT}(*a)",
}


def line(code):
    text = rewrite(
        f"import tensorflow as tf\nfrom tensorflow.train.experimental import {NAME}\n{code}\n"
    ).text
    return text.splitlines()[-1]


@pytest.mark.parametrize(("before", "after"), header("KMP010"))
def test_the_header(before, after):
    assert line(before) == after


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(("call", "after"), CALLS.items(), ids=CALLS)
def test_rewrites(space, call, after):
    assert line(f"{space}.{NAME}{call}") == after


@pytest.mark.parametrize("space", SPACES)
def test_those_of_tf_1_are_reported(space):
    source = f"import tensorflow as tf\nopt = {space}.{NAME}(opt)\nmodel.compile(opt)\n"
    verdicts = [f.verdict for f in rewrite(source).findings]
    assert verdicts == ["person" if ".v1." in space else "rewritten"]


@pytest.mark.parametrize(
    "after",
    [
        "opt = {}(opt)",
        "{}(opt)\nmodel.compile(opt)",
        "opt = {}(opt)\nmodel.compile(); tf.GradientTape()",
    ],
    ids=["nothing is compiled", "the result is not used", "a loop of its own"],
)
def test_what_would_not_be_rewritten_is_reported(after):
    code = after.format(f"tf.train.experimental.{NAME}")
    result = rewrite(f"import tensorflow as tf\n{code}\n")
    assert "keras_mp.graph_rewrite.enable(opt)" in result.text
    assert [f.verdict for f in result.findings] == ["person"]


def test_slots_of_keras_2():
    code = f"opt = tf.train.experimental.{NAME}(opt)\nopt.get_slot(v, 'm')\nmodel.compile(opt)"
    result = rewrite(f"import tensorflow as tf\n{code}\n")
    assert f"opt = {COMPAT}(opt)" in result.text


def test_passed_on():
    result = rewrite(f"import tensorflow as tf\nwrap = tf.train.experimental.{NAME}\n")
    assert result.text.splitlines()[-1] == f"wrap = {COMPAT}"
    assert [f.verdict for f in result.findings] == ["person"]


def test_disabling():
    name = "disable_mixed_precision_graph_rewrite"
    assert line(f"tf.train.experimental.{name}()") == "keras_mp.graph_rewrite.disable()"
    assert line(f"undo = tf.train.experimental.{name}") == (
        f"undo = keras_mp.compat.train.experimental.{name}"
    )


def test_the_class_of_tf_1_is_reported():
    name = "tf.compat.v1.mixed_precision.MixedPrecisionLossScaleOptimizer"
    result = rewrite(f"import tensorflow as tf\nopt = {name}(opt, 8)\n")
    assert [(f.rule, f.verdict) for f in result.findings] == [("KMP010", "person")]
