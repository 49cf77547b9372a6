"""KMP104: arguments that Keras 3 rejects or ignores."""

import pytest

from keras_mp.migration.keras3 import names
from keras_mp.migration.keras3.argument_advice import ARGUMENTS, Asked
from tests.keras3_rules import in_layer, messages, rewritten, verdicts

REPORTED = {
    "ignored": ("tf.keras.optimizers.SGD(0.1, decay=1e-6)", "it is ignored"),
    "a variable": ("tf.keras.optimizers.SGD(tf.Variable(0.1))", "must be a number"),
    "a variable by name": ("r = tf.Variable(0.1)\ntf.keras.optimizers.SGD(r)", "must be a number"),
    "a tensor": ("keras.optimizers.Adam(learning_rate=tf.constant(0.1))", "must be a number"),
    "of a layer": ("layers.Dense(1, batch_input_shape=(2, 3))", "keras.Input(batch_shape=...)"),
    "of any layer": ("layers.LSTM(1, dynamic=True)", "run_eagerly=True"),
    "its own": ("layers.LSTM(1, time_major=True)", "transpose"),
    "of fit": ("model.fit(1, workers=4)", "PyDataset"),
    "of a generator": ("model.fit_generator(1, workers=4)", "PyDataset"),
    "of compile": ("model.compile('adam', 'mse', target_tensors=[t])", "to fit"),
    "computed": ("tf.keras.utils.get_source_inputs(x, node_index=1)", "parameters are now tensor"),
    "of a callback": ("keras.callbacks.ModelCheckpoint('a.h5', period=2)", "save_freq"),
    "of apply_gradients": (
        "optimizer.apply_gradients(g, experimental_aggregate_gradients=False)",
        "always sums",
    ),
}
FINE = {
    "taken with a warning": "layers.LeakyReLU(alpha=0.1)",
    "taken by this one": "layers.InputLayer(batch_input_shape=(2, 3))",
    "weights of an embedding": "layers.Embedding(2, 3, weights=[w])",
    "a schedule": "keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(1, 2, 3))",
    "a number": "tf.keras.optimizers.SGD(0.1, clipnorm=1.0)",
    "an unknown object": "def f(model): model.fit(1, workers=4)",
    "an own class": "class Own(Model):\n    def fit(self, **k): pass\nOwn().fit(1, workers=4)",
    "**kwargs": "layers.Dense(1, **options)",
}


@pytest.mark.parametrize(("line", "advice"), REPORTED.values(), ids=REPORTED)
def test_is_reported_with_what_to_do(line, advice):
    found = messages(line, "KMP104")
    assert len(found) == 1
    assert advice in found[0]
    assert line.split("\n")[-1].split("(")[0] in rewritten(line) or "generator" in line


@pytest.mark.parametrize("line", FINE.values(), ids=FINE)
def test_is_left_alone(line):
    assert verdicts(line, "KMP104") == []


def test_of_the_constructor_of_a_class_above():
    program = in_layer("super().__init__(dynamic=True)", "__init__(self)")
    assert verdicts(program, "KMP104") == ["manual"]


def test_is_kept_where_errors_are_caught():
    program = "try:\n    model.fit(1, workers=2)\nexcept TypeError:\n    model.fit(1)"
    assert verdicts(program, "KMP104") == ["kept"]


def test_what_is_computed_has_advice_or_is_told_by_its_parameters():
    """Of callables that take no further keywords, all that is gone is reported."""
    parameters = names.table()["parameters"]
    strict = {
        name: of["gone"] for name, of in parameters.items() if "more" not in of and "gone" in of
    }
    assert len(strict) > 40
    assert strict["utils.to_categorical"] == ["dtype", "y"]


def test_the_table_names_callables_that_are_there():
    for scope in ARGUMENTS:
        name = scope.removesuffix(".__init__")
        first = name.rpartition(".")[0]
        is_there = name in names.today("tf.keras") or names.kind(name) is not None
        is_method = names.kind(first) is not None or first in ("Model", "layers.Layer")
        assert is_there or is_method, scope


def test_no_advice_is_empty():
    for scope, arguments in ARGUMENTS.items():
        for name, action in arguments.items():
            if isinstance(action, Asked):
                assert action.what, (scope, name)
