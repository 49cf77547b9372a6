"""What a step costs more when it is watched, counted in what the frameworks are given."""

import keras
import numpy as np
import pytest

from benchmarks import monitor as benchmark
from keras_mp import LossScaleMonitor, LossScaleOptimizer
from keras_mp.statistics.step import SkipStreak
from keras_mp.statistics.step_statistics import StepLog

BACKEND = keras.backend.backend()
STEPS = 8  # an epoch of `data` has

# The most that a step may have more of, whatever the number of variables.
MOST = {
    "jax": {
        "trace": {"equations": 35},
        "diagnose": {"equations": 50},
        "diagnose, trace": {"equations": 80},
    },
    "tensorflow": {
        "trace": {"nodes": 35},
        "diagnose": {"nodes": 70},
        "diagnose, trace": {"nodes": 100},
    },
    # Of a step that is taken; torch knows that, and notes less.
    "torch": {
        "trace": {"calls": 25},
        "diagnose": {"calls": 5},
        "diagnose, trace": {"calls": 30},
    },
}[BACKEND]
MOST_SKIPPED = {"trace": 25, "diagnose": 40, "diagnose, trace": 65}
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="reads what XLA says")
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="counts calls of aten")


@pytest.mark.parametrize("watch", MOST)
def test_ops_added(watch):
    few, many = (benchmark.added(variables, watch) for variables in (10, 40))
    for name, most in MOST[watch].items():
        assert 0 < few[name] <= most
        # JAX then looks at each gradient by itself, and else at 16 together.
        alone = "diagnose" in watch and BACKEND == "jax"
        assert few[name] <= many[name] <= few[name] + (30 if alone else 0)


@pytest.mark.parametrize("watch", MOST)
@on_jax
def test_bytes_added(watch):
    """Two counters a variable, and a row; the table is changed in place, however long it is.

    With `diagnose` each gradient has a sum of its own; without, up to 16 of one shape share one.
    """
    few, many = (benchmark.added(variables, watch)["bytes"] for variables in (10, 40))
    assert 0 < few < 1000
    assert many - few <= 30 * (75 if "diagnose" in watch else 0)


@on_jax
def test_a_longer_table_costs_nothing():
    short, long = (benchmark.costs(10, rows) for rows in (16, 1 << 20))
    assert short == long


@pytest.mark.parametrize("watch", MOST)
@on_torch
def test_ops_added_by_a_skipped_step(watch):
    few, many = (benchmark.added(variables, watch, skipped=True) for variables in (10, 40))
    assert 0 < few["calls"] <= MOST_SKIPPED[watch]
    assert many == few


@pytest.mark.parametrize("skipped", [False, True], ids=["taken", "skipped"])
@pytest.mark.parametrize("watch", MOST)
@on_torch
def test_no_wait_for_the_device_is_added(watch, skipped):
    """Neither by a read, nor by a number that is sent there."""
    more = benchmark.added(10, watch, skipped=skipped)
    assert (more["waits"], more["sent"]) == (0, 0)


@on_torch
def test_waits_are_seen():
    """The count finds the branch of each step, and the numbers that Keras' Adam sends."""
    found = benchmark.costs(3)
    assert found["waits"] > 0
    assert found["sent"] > 0


@pytest.fixture
def reads(monkeypatch):
    """The names of what was read from the device, in turn."""
    seen = []

    def noted(name, function):
        def read(*args):
            seen.append(name)
            return function(*args)

        return read

    for name in ("loss_scale", "skipped_steps", "consecutive_skips", "nonfinite_kind"):
        wanted = property(noted(name, getattr(LossScaleOptimizer, name).fget))
        monkeypatch.setattr(LossScaleOptimizer, name, wanted)
    for owner, name in (
        (StepLog, "since"),
        (SkipStreak, "take_most"),
        (LossScaleOptimizer, "nonfinite_variables"),
        (LossScaleOptimizer, "first_overflow"),
    ):
        monkeypatch.setattr(owner, name, noted(name, getattr(owner, name)))
    return seen


AT_START = ["skipped_steps"]
AN_EPOCH = ["skipped_steps", "loss_scale"]


@pytest.mark.parametrize("epochs", [1, 3])
def test_reads_once_an_epoch(fit, data, reads, epochs):
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.01), diagnose=True)
    fit(optimizer, *data, callbacks=[LossScaleMonitor()], epochs=epochs)
    assert reads == AT_START + epochs * AN_EPOCH


@pytest.mark.parametrize(("rows", "within"), [(STEPS, 0), (4, 1), (3, 2), (1, STEPS - 1)])
def test_reads_of_a_trace(fit, data, reads, rows, within):
    """Once an epoch, and before the table is full."""
    epochs = 2
    fit(
        LossScaleOptimizer(keras.optimizers.SGD(0.01)),
        *data,
        callbacks=[LossScaleMonitor(trace=True, rows=rows)],
        epochs=epochs,
    )
    an_epoch = within * ["since"] + [*AN_EPOCH, "since"]
    assert reads == [*AT_START, "since", *epochs * an_epoch]


def test_reads_to_stop(fit, data, reads):
    """Once in `max_consecutive_skips` steps."""
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.01), max_consecutive_skips=3)
    fit(optimizer, *data, callbacks=[LossScaleMonitor()])
    check = ["take_most"]
    assert reads == check + AT_START + 2 * check + AN_EPOCH + check


def test_a_table_is_read_in_two_transfers(fit, data, monkeypatch):
    """The number of steps, and the rows; the variables are left where they are."""
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.01))
    fit(optimizer, *data, callbacks=[LossScaleMonitor(trace=True)])
    shapes = []
    convert = keras.ops.convert_to_numpy

    def noted(tensor):
        shapes.append(tuple(tensor.shape))
        return convert(tensor)

    monkeypatch.setattr(keras.ops, "convert_to_numpy", noted)
    optimizer._statistics.log.since(0)
    assert shapes == [(), (1024, 3)]


@on_jax
@pytest.mark.parametrize("trace", [False, True])
def test_a_longer_epoch_asks_no_oftener_for_the_state(fit, data, monkeypatch, trace):
    """Which assigns each variable; `Callback.model` of Keras asks whenever it is read."""
    asked = []
    sync = keras.Model.jax_state_sync

    def noted(model):
        asked.append(model)
        sync(model)

    monkeypatch.setattr(keras.Model, "jax_state_sync", noted)

    def times(epochs_of_data):
        asked.clear()
        longer = [np.tile(a, (epochs_of_data, 1)) for a in data]
        optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.01), max_consecutive_skips=100)
        fit(optimizer, *longer, callbacks=[LossScaleMonitor(trace=trace)])
        return len(asked)

    assert 0 < times(1) == times(2)


@on_torch
@pytest.mark.parametrize("diagnose", [False, True])
@pytest.mark.parametrize("trace", [False, True])
def test_a_watched_epoch_waits_no_oftener(fit, data, trace, diagnose):
    """But for what is read at its start and its end: as often as without, whatever its length."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        number = 0

        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            self.number += "_local_scalar_dense" in str(op)
            return op(*args, **(kwargs or {}))

    def waits(epochs_of_data, watched):
        optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.01), diagnose=watched and diagnose)
        callbacks = [LossScaleMonitor(trace=trace)] if watched else []
        longer = [np.tile(a, (epochs_of_data, 1)) for a in data]
        with Count() as count:
            fit(optimizer, *longer, callbacks=callbacks)
        return count.number

    once, twice = (waits(n, watched=True) - waits(n, watched=False) for n in (1, 2))
    assert 0 < once == twice
