"""KMP016: strings, comments and names of the program's own."""

import pytest

from keras_mp.migration.code.rewriting import rewrite

KEPT = {
    "comment": ("x = 1  # tf.keras.mixed_precision", "a comment"),
    "docstring": ('"""tf.keras.mixed_precision"""', "in a string"),
    "string": ("flags.DEFINE('loss_scale')", "in a string"),
    "f-string": ("f'{x} loss_scale'", "in a string"),
    "own function": ("def set_mixed_precision(): pass", "not a name of TensorFlow's"),
    "own module": (
        "from .mixed_precision import Policy\nPolicy('x')",
        "not a name of TensorFlow's",
    ),
    "torch": ("scaler.loss_scale()", "not a name of TensorFlow's"),
    "another private module": (
        "import tensorflow.python.mixed_precision as m\nm.Policy('x')",
        "not a name of TensorFlow's",
    ),
    "a keyword of a pattern": (
        "match a:\n    case A(loss_scale=1): pass",
        "not a name of TensorFlow's",
    ),
    "ours": ("import keras_mp\nkeras_mp.compat.mixed_precision", "keras_mp's already"),
    "a string as annotation": ("def f(p: 'tf.keras.mixed_precision.Policy'): pass", "in a string"),
}
REPORTED = {
    "a path": "mock.patch('tensorflow.keras.mixed_precision.experimental.Policy')",
    "a path of tf": "resolve('tf.keras.mixed_precision.Policy')",
    "handed on by another module": "x.mixed_precision.Policy('y')",
    "looked up": "getattr(tf.keras, 'mixed_precision')",
    "a name that nobody imports": "tf.keras.mixed_precision.set_global_policy('x')",
}


@pytest.mark.parametrize(("source", "message"), KEPT.values(), ids=KEPT)
def test_is_kept(source, message):
    result = rewrite(source)
    assert result.text == source
    assert {f.verdict for f in result.findings} == {"kept"}
    assert message in result.findings[-1].message


@pytest.mark.parametrize("source", REPORTED.values(), ids=REPORTED)
def test_is_reported(source):
    result = rewrite(source)
    assert result.text == source
    assert [(f.rule, f.verdict) for f in result.findings] == [("KMP016", "manual")]
