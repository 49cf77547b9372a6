"""Data whose end is found by asking for one batch too many: what is counted are the batches."""

import keras
import numpy as np
import pytest

from keras_mp import LossScaleMonitor, LossScaleOptimizer

BACKEND = keras.backend.backend()
GOOD, BAD = 1.0, np.inf
BATCHES = [GOOD, GOOD, BAD, BAD, GOOD]
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data")
on_tensorflow = pytest.mark.skipif(
    BACKEND != "tensorflow", reason="only there a function runs on where there is no batch"
)


def batches():
    for target in BATCHES:
        yield np.ones((2, 4), "float32"), np.full((2, 1), target, "float32")


def dataset():
    import tensorflow as tf

    signature = (tf.TensorSpec((2, 4)), tf.TensorSpec((2, 1)))
    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def compiled(make_model, *, steps_per_execution=1, jit_compile="auto", **options):
    optimizer = LossScaleOptimizer(
        keras.optimizers.SGD(0.01, momentum=0.5),
        initial_scale=256.0,
        dynamic_growth_steps=3,
        diagnose=True,
        max_consecutive_skips=9,
        **options,
    )
    model = make_model()
    loss = keras.losses.MeanSquaredError()
    model.compile(optimizer, loss, jit_compile=jit_compile, steps_per_execution=steps_per_execution)
    return model


def check(model, monitor, epochs):
    """All that is counted, after `epochs` of BATCHES."""
    optimizer, steps = model.optimizer, epochs * len(BATCHES)
    for name, expected in {
        "_steps": steps,
        "iterations": steps,
        "skipped_steps": 2 * epochs,
        "consecutive_skips": 0,
        "nonfinite_kind": 0,
        "dynamic_counter": 1,
    }.items():
        assert int(getattr(optimizer, name)) == expected, name
    found = {each.path: (each.steps, each.first_step) for each in optimizer.nonfinite_variables()}
    assert found == {v.path: (2 * epochs, 3) for v in model.trainable_variables}
    assert optimizer.first_overflow().step == 3
    trace = monitor.trace
    assert trace.steps.tolist() == list(range(1, steps + 1))
    assert trace.is_skipped.tolist() == [target == BAD for target in BATCHES] * epochs
    assert trace.epochs.tolist() == [epoch for epoch in range(epochs) for _ in BATCHES]
    assert optimizer._statistics.runs.take_most() in (0, 2)  # the monitor asks each epoch


@pytest.mark.parametrize("rows", [2, 1024])
def test_a_generator(make_model, rows, caplog):
    model, monitor = compiled(make_model), LossScaleMonitor(trace=True, rows=rows)
    for epoch in range(3):
        model.fit(
            batches(),
            initial_epoch=epoch,
            epochs=epoch + 1,
            shuffle=False,
            verbose=0,
            callbacks=[monitor],
        )
        assert model.history.history["skipped_steps"] == [2]
    check(model, monitor, 3)
    assert caplog.text == ""


@on_tensorflow
@pytest.mark.parametrize(
    ("jit_compile", "steps_per_execution"), [(False, 1), (False, 3), (True, 1)]
)
def test_a_dataset(make_model, jit_compile, steps_per_execution, caplog):
    model = compiled(make_model, jit_compile=jit_compile, steps_per_execution=steps_per_execution)
    monitor = LossScaleMonitor(trace=True, rows=4)
    history = model.fit(dataset(), epochs=3, shuffle=False, verbose=0, callbacks=[monitor]).history
    assert history["skipped_steps"] == [2, 2, 2]
    check(model, monitor, 3)
    assert caplog.text == ""


@on_tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_nothing_is_assigned_without_a_batch(make_model, state, jit_compile):
    """Not one of the optimizer's variables, whatever they count."""
    import tensorflow as tf

    model = compiled(make_model, jit_compile=jit_compile, hysteresis=2)
    optimizer = model.optimizer
    optimizer._log_steps(4)
    iterator = iter(dataset())
    model.make_train_function()
    for _ in BATCHES:
        model.train_function(iterator)
    names = [variable.path for variable in optimizer.variables]
    before = dict(zip(names, state(optimizer.variables), strict=True))
    for _ in range(2):
        with pytest.raises(tf.errors.OutOfRangeError):
            model.train_function(iterator)
    assert dict(zip(names, state(optimizer.variables), strict=True)) == before
