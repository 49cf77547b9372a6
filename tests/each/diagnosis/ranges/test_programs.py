"""On JAX a report runs a step as one program, and finds what it finds op by op."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_mp.backends.common import compiling
from keras_mp.diagnosis.ranges.report import range_report

pytestmark = [
    pytest.mark.skipif(
        keras.backend.backend() != "jax" or not compiling.makes_programs(),
        reason="only JAX, a later one, on a CPU",
    ),
    pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning"),
]
MIXED = {"dtype": "mixed_float16"}


def model(rate=0.5, value=1.0):
    shared = layers.Dense(4, kernel_initializer=keras.initializers.Constant(value), **MIXED)
    x = inputs = keras.Input((4,), name="x")
    x = layers.Dropout(rate, seed=1, **MIXED)(shared(x))
    x = layers.BatchNormalization(**MIXED)(shared(x) + x)
    made = keras.Model(inputs, layers.Dense(1, dtype="float32", name="out")(x), name="net")
    made.compile("sgd", "mse")
    return made


def data(rows):
    random = np.random.default_rng(0)
    return random.standard_normal((rows, 4), "float32"), random.standard_normal(
        (rows, 1), "float32"
    )


def reported(monkeypatch, made, rows, as_program, **kwargs):
    """Returns a report in batches of 8, and how many programs were compiled."""
    count = 0
    compile_one = compiling.one_program

    def counted(*args):
        nonlocal count
        count += 1
        return compile_one(*args)

    with monkeypatch.context() as patch:
        patch.setattr(compiling, "one_program", counted)
        patch.setattr(compiling, "makes_programs", lambda: as_program)
        found = range_report(made, data(rows), batch_size=8, **kwargs)
    return found, count


def alike(one, other):
    """Rows of the same numbers, but for what a sum in another order rounds otherwise."""
    assert len(one.rows) == len(other.rows) > 8
    for mine, theirs in zip(one.rows, other.rows, strict=True):
        for name in ("path", "kind", "class", "dtype", "count", "zeros", "infs", "nans"):
            assert mine[name] == theirs[name], (mine["path"], mine["kind"], name)
        largest = theirs["largest"]  # None where all are 0
        assert mine["largest"] == (largest and pytest.approx(largest, rel=2e-3))


def test_the_same_rows(monkeypatch):
    """Three batches of 8 and one of 3: one program for each of the two shapes."""
    made = model()
    keras.utils.set_random_seed(0)
    ops, none = reported(monkeypatch, made, 27, False)
    keras.utils.set_random_seed(0)
    one, two = reported(monkeypatch, made, 27, True)
    assert (none, two) == (0, 2)
    alike(one, ops)


def test_gradients_that_overflow_are_looked_at_again_without_compiling(monkeypatch):
    made = model(rate=0.0)
    ops, _ = reported(monkeypatch, made, 8, False, loss_scale=2.0**24)
    one, count = reported(monkeypatch, made, 8, True, loss_scale=2.0**24)
    assert count == 1
    assert any(row["infs"] or row["nans"] for row in one.rows if "gradient" in row["kind"])
    assert one.initial_scale == ops.initial_scale
    alike(one, ops)


def test_layers_that_overflow(monkeypatch):
    made = model(rate=0.0, value=3e4)
    ops, _ = reported(monkeypatch, made, 8, False)
    one, count = reported(monkeypatch, made, 8, True)
    assert count == 1
    assert one.advice["float32_layers"] == ops.advice["float32_layers"] != []


def test_what_cannot_be_compiled_runs_op_by_op(monkeypatch):
    """And is asked once only: the second batch has the same shapes."""
    asked = []

    def refuses(*args):
        asked.append(args)
        raise RuntimeError("no")

    made = model(rate=0.0)
    ops, _ = reported(monkeypatch, made, 16, False)
    monkeypatch.setattr(compiling, "one_program", refuses)
    alike(range_report(made, data(16), batch_size=8), ops)
    assert len(asked) == 1
