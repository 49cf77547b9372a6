"""KMP015: names that have no counterpart."""

import pytest

from keras_mp.migration.code.rewriting import rewrite


@pytest.mark.parametrize(
    "name",
    [
        "tf.keras.mixed_precision.no_such_name",
        "tf.keras.mixed_precision.experimental.policy.with_input_dtype",
        "tf.contrib.mixed_precision.ExponentialUpdateLossScaleManager",
    ],
)
def test_is_left_alone_and_reported(name):
    source = f"import tensorflow as tf\nx = {name}(1)\n"
    result = rewrite(source)
    assert result.text == source
    assert [(f.line, f.rule, f.verdict) for f in result.findings] == [(2, "KMP015", "manual")]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("FixedLossScaleManager", "dynamic=False, initial_scale=loss_scale"),
        ("ExponentialUpdateLossScaleManager", "hysteresis=decr_every_n_nan_or_inf (2)"),
        ("LossScaleOptimizer", "keras_mp.LossScaleOptimizer(optimizer) around an optimizer"),
    ],
)
def test_what_replaces_names_of_contrib(name, said):
    source = f"import tensorflow as tf\nx = tf.contrib.mixed_precision.{name}(1)\n"
    (finding,) = rewrite(source).findings
    assert "of TF 1.15" in finding.message
    assert said in finding.message


@pytest.mark.parametrize("code", ["del {}", "{} = fake", "with x as {}: pass", "for {} in x: pass"])
def test_what_is_assigned_or_deleted_is_left_alone_and_reported(code):
    source = f"import tensorflow as tf\n{code.format('tf.keras.mixed_precision.Policy')}\n"
    result = rewrite(source)
    assert result.text == source
    assert [(f.rule, f.verdict) for f in result.findings] == [("KMP015", "manual")]


@pytest.mark.parametrize("name", ["DTypePolicy", "dtype_policy", "set_dtype_policy"])
def test_what_only_keras_3_has_is_kept(name):
    source = f"import keras\nx = keras.mixed_precision.{name}('float32')\n"
    result = rewrite(source)
    assert result.text == source
    assert [(f.rule, f.verdict) for f in result.findings] == [("KMP015", "kept")]


def test_other_names_of_the_same_module_are_not_ours():
    source = "import tensorflow as tf\nstate = tf.train.experimental.PythonState  # loss_scale\n"
    assert [f.verdict for f in rewrite(source).findings] == ["kept"]
