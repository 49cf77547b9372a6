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


HEAD = f"import tensorflow as tf\nfrom tensorflow.train.experimental import {NAME}\n"
OF_V1 = [
    "opt = tf.compat.v1.train.AdamOptimizer()",
    "opt = tf.train.GradientDescentOptimizer(0.1)",
    "if x:\n    opt = tf.compat.v1.train.AdamOptimizer()\nelse:\n    opt = other",
]


def line(code, before="opt = tf.keras.optimizers.Adam()\n"):
    return rewrite(f"{HEAD}{before}{code}\n").text.splitlines()[-1]


@pytest.mark.parametrize(("before", "after"), header("KMP010"))
def test_the_header(before, after):
    assert line(before) == after


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(("call", "after"), CALLS.items(), ids=CALLS)
def test_rewrites(space, call, after):
    if call == "(*a)" and ".v1." in space:
        after = f"{space}.{NAME}(*a)"
    assert line(f"{space}.{NAME}{call}") == after


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("made", OF_V1)
def test_optimizers_of_tf_1_are_left_alone(space, made):
    head = "import tensorflow as tf"
    source = f"{head}\n{made}\nopt = {space}.{NAME}(opt)\nmodel.compile(opt)\n"
    result = rewrite(source)
    assert result.text == source
    assert [f.verdict for f in result.findings if f.rule == "KMP010"] == ["manual"]


@pytest.mark.parametrize("space", SPACES)
def test_of_unknown_optimizers_those_of_the_old_functions_are_left_alone(space):
    source = f"import tensorflow as tf\nopt = {space}.{NAME}(opt)\nmodel.compile(opt)\n"
    result = rewrite(source)
    assert (result.text == source) == (".v1." in space)


def test_the_loss_scale_of_such_an_optimizer_is_left_alone():
    scale = "tf.compat.v1.mixed_precision.FixedLossScale(256.)"
    source = (
        "import tensorflow as tf\nopt = tf.compat.v1.train.AdamOptimizer()\n"
        f"opt = tf.compat.v1.mixed_precision.{NAME}(opt, {scale})\n"
    )
    result = rewrite(source)
    assert result.text == source
    assert [(f.rule, f.verdict) for f in result.findings] == [
        ("KMP010", "manual"),
        ("KMP007", "kept"),
    ]


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
    assert [f.verdict for f in result.findings] == ["manual"]


def test_slots_of_keras_2():
    code = f"opt = tf.train.experimental.{NAME}(opt)\nopt.get_slot(v, 'm')\nmodel.compile(opt)"
    result = rewrite(f"import tensorflow as tf\n{code}\n")
    assert f"opt = {COMPAT}(opt)" in result.text


def test_passed_on():
    result = rewrite(f"import tensorflow as tf\nwrap = tf.train.experimental.{NAME}\n")
    assert result.text.splitlines()[-1] == f"wrap = {COMPAT}"
    assert [f.verdict for f in result.findings] == ["manual"]


def test_disabling():
    name = "disable_mixed_precision_graph_rewrite"
    assert line(f"tf.train.experimental.{name}()") == "keras_mp.graph_rewrite.disable()"
    assert line(f"undo = tf.train.experimental.{name}") == (
        f"undo = keras_mp.compat.train.experimental.{name}"
    )


def test_the_class_of_tf_1_is_reported():
    name = "tf.compat.v1.mixed_precision.MixedPrecisionLossScaleOptimizer"
    result = rewrite(f"import tensorflow as tf\nopt = {name}(opt, 8)\n")
    assert [(f.rule, f.verdict) for f in result.findings] == [("KMP010", "manual")]
