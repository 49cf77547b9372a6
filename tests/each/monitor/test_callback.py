"""`LossScaleMonitor`: logs, traces, folders, and when it stops a training."""

import csv
import json
import logging
import math

import keras
import numpy as np
import pytest
from matplotlib.colors import to_rgba

from keras_mp import LossScaleMonitor, LossScaleOptimizer, SharedLossScale
from keras_mp.monitor.callback import _by_logs
from keras_mp.monitor.run_folder import RunFolder
from keras_mp.monitor.trace import Trace
from keras_mp.rendering.style import DARK, LIGHT
from tests import programs

BACKEND = keras.backend.backend()


def lso(**options):
    given = {"initial_scale": 256.0, "dynamic_growth_steps": 3, **options}
    return LossScaleOptimizer(keras.optimizers.SGD(0.01), **given)


@pytest.fixture
def run(fit, data):
    """A function that fits with overflows at some of the 8 steps of each epoch."""

    def run(monitor, bad=(3,), *, optimizer=None, **options):
        x, y = data
        y = y.copy()
        for step in bad:
            y[step * 8] = np.inf
        callbacks = monitor if isinstance(monitor, list) else [monitor]
        return fit(optimizer or lso(), x, y, callbacks=callbacks, **options)

    return run


def by_hand(steps, bad, scale=256.0):
    """(scale before, kind) of each step, and the scale after all."""
    rows, counter = [], 0
    for step in range(steps):
        skipped = step % 8 in bad
        rows.append((scale, 2 * skipped))  # the inf of the data times a relu that is 0
        counter = 0 if skipped else counter + 1
        if skipped:
            scale = max(scale / 2, 1.0)
        elif counter == 3:
            scale, counter = scale * 2, 0
    return rows, scale


@pytest.mark.parametrize("compile", [{}, {"run_eagerly": True}], ids=["default", "eager"])
def test_logs(run, tmp_path, compile):
    log = tmp_path / "log.csv"
    model = run([LossScaleMonitor(), keras.callbacks.CSVLogger(log)], (3, 4), epochs=2, **compile)
    history = model.history.history
    assert history["skipped_steps"] == [2, 2]
    assert history["loss_scale"] == [by_hand(8, (3, 4))[1], by_hand(16, (3, 4))[1]]
    with log.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["skipped_steps"] for row in rows] == ["2", "2"]
    assert Trace.load(log).scales.tolist() == history["loss_scale"]


@pytest.mark.parametrize("rows", [1, 3, 1024])
def test_trace(run, rows):
    """Whatever the table's length: read in time, nothing twice, nothing lost."""
    monitor = LossScaleMonitor(trace=True, rows=rows)
    run(monitor, (0, 3, 7), epochs=2)
    expected, _ = by_hand(16, (0, 3, 7))
    trace = monitor.trace
    assert list(zip(trace.scales.tolist(), trace.kinds.tolist(), strict=True)) == expected
    assert trace.steps.tolist() == list(range(1, 17))
    assert trace.epochs.tolist() == [0] * 8 + [1] * 8


def test_several_steps_in_one_call(run):
    if BACKEND == "torch":
        pytest.skip("Keras refuses steps_per_execution > 1 on torch")
    monitor = LossScaleMonitor(trace=True, rows=4)
    run(monitor, steps_per_execution=4)
    assert monitor.trace.kinds.tolist() == [0, 0, 0, 2, 0, 0, 0, 0]


def test_a_table_that_is_too_short_is_no_secret(run, caplog):
    if BACKEND == "torch":
        pytest.skip("Keras refuses steps_per_execution > 1 on torch")
    monitor = LossScaleMonitor(trace=True, rows=2)
    run(monitor, steps_per_execution=4)
    assert "2 steps are missing in the trace" in caplog.text
    assert monitor.trace.steps.tolist() == [3, 4, 7, 8]


def test_a_second_fit_goes_on(run, fit, data):
    monitor = LossScaleMonitor(trace=True)
    model = run(monitor)
    model.fit(*data, batch_size=8, shuffle=False, verbose=0, callbacks=[monitor])
    assert monitor.trace.steps.tolist() == list(range(1, 17))
    assert monitor.trace.skipped == 1


def test_a_model_that_was_traced_before(fit, data):
    """Its train function is made anew, with the table."""
    model = fit(lso(), *data)
    monitor = LossScaleMonitor(trace=True)
    model.fit(*data, batch_size=8, shuffle=False, verbose=0, callbacks=[monitor])
    assert monitor.trace.steps.tolist() == list(range(1, 9))


def test_a_folder(run, tmp_path):
    folder = tmp_path / "runs" / "first"
    monitor = LossScaleMonitor(folder)
    model = run(monitor, (3, 5), optimizer=lso(diagnose=True), policy="mixed_float16")
    found = RunFolder.read(folder)
    assert found.trace.kinds.tolist() == [0, 0, 0, 2, 0, 2, 0, 0]
    assert found.trace.variables[3] == "out/bias"
    assert found.run["backend"] == BACKEND
    assert (found.run["steps"], found.run["skipped"], found.run["loss_scale"]) == (8, 2, 128.0)
    assert found.run["optimizer"]["initial_scale"] == 256.0
    layers = {each["path"]: each["policy"] for each in found.run["layers"]}
    assert layers["hidden"] == "mixed_float16"
    counts = {each["variable"]: each["count"] for each in found.run["overflows"]}
    assert counts == {v.path: 2 for v in model.trainable_variables}
    assert {each["first_step"] for each in found.run["overflows"]} == {4}
    # A run that is resumed there goes on.
    model.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=8, verbose=0, callbacks=[monitor])
    assert len(RunFolder.read(folder).trace) == 9
    json.loads((folder / "run.json").read_text())


def test_a_text(run):
    monitor = LossScaleMonitor()
    run(monitor, optimizer=lso(diagnose=True))
    lines = str(monitor).splitlines()
    assert lines[:2] == ["loss scale 512", "1 step skipped"]
    assert lines[2].startswith("first overflow: step 4, out/")
    assert lines[2].endswith("(nan), scale 512 -> 256")


@pytest.mark.parametrize("monitor_first", [True, False])
def test_a_run_that_is_resumed_from_a_backup(run, tmp_path, monitor_first):
    """In a new process, as it were: the trace goes on, whichever callback comes first."""

    class Dies(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2 and not (tmp_path / "died").exists():
                (tmp_path / "died").write_text("")
                raise KeyboardInterrupt

    def callbacks():
        chosen = [
            LossScaleMonitor(tmp_path / "run"),
            keras.callbacks.BackupAndRestore(tmp_path / "backup"),
        ]
        return [*(chosen if monitor_first else chosen[::-1]), Dies()]

    with pytest.raises(KeyboardInterrupt):
        run(callbacks(), (3,), epochs=3)
    model = run(callbacks(), (3,), epochs=3)
    trace = Trace.load(tmp_path / "run")
    expected, _ = by_hand(24, (3,))
    assert trace.steps.tolist() == list(range(1, 25))
    assert list(zip(trace.scales.tolist(), trace.kinds.tolist(), strict=True)) == expected
    assert model.history.history["skipped_steps"] == [1]


class Restores(keras.callbacks.Callback):
    """Goes back to step 5, and to a scale of 8, after a batch of the second epoch."""

    def __init__(self, batch):
        super().__init__()
        self.batch, self.epoch = batch, 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (1, self.batch):
            if hasattr(self.model, "jax_state_sync"):
                self.model.jax_state_sync()
            self.model.optimizer._steps.assign(5)
            self.model.optimizer.dynamic_scale.assign(8.0)


@pytest.mark.parametrize("rows", [3, 1024])
@pytest.mark.parametrize("batch", [1, 6], ids=["caught up since", "fewer steps than before"])
def test_a_restore_within_an_epoch(run, tmp_path, batch, rows):
    monitor = LossScaleMonitor(tmp_path / "run", rows=rows)
    optimizer = lso(dynamic_growth_steps=99)
    run([monitor, Restores(batch)], (), optimizer=optimizer, epochs=2)
    steps = 5 + 7 - batch
    assert int(optimizer.skipped_steps) == 0
    for trace in (monitor.trace, Trace.load(tmp_path / "run")):
        assert trace.steps.tolist() == list(range(1, steps + 1))
        assert trace.scales.tolist() == [256.0] * 5 + [8.0] * (steps - 5)
        assert trace.epochs.tolist() == [0] * 5 + [1] * (steps - 5)


@pytest.mark.parametrize("rows", [3, 1024])
def test_batches_that_make_no_step(run, tmp_path, rows):
    """As in a train_step that trains two models in turn: nothing is read twice."""

    class Between(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            monitor.on_train_batch_begin(batch)

    monitor = LossScaleMonitor(tmp_path, rows=rows)
    run([monitor, Between()], (3,), epochs=2)
    expected, _ = by_hand(16, (3,))
    trace = monitor.trace
    assert list(zip(trace.scales.tolist(), trace.kinds.tolist(), strict=True)) == expected
    assert trace.epochs.tolist() == [0] * 8 + [1] * 8
    assert len((tmp_path / "trace.jsonl").read_text().splitlines()) == 16


# Keras 3.10 ends its threads in __del__, and complains of itself there.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_epoch(run, fit, data):
    """What was recorded until then is read when training goes on."""

    class Dies(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 3:
                raise KeyboardInterrupt

    monitor, optimizer = LossScaleMonitor(trace=True), lso(max_consecutive_skips=9)
    with pytest.raises(KeyboardInterrupt):
        run([monitor, Dies()], optimizer=optimizer)
    model = monitor.model
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()
    for _ in range(2):
        model.fit(*data, batch_size=8, shuffle=False, verbose=0, callbacks=[monitor])
    assert monitor.trace.steps.tolist() == list(range(1, 20))


def test_nothing_to_trace(fit, data):
    fixed = LossScaleOptimizer(keras.optimizers.SGD(0.01), False, 8.0, skip_nonfinite=False)
    with pytest.raises(ValueError, match="nothing to trace"):
        fit(fixed, *data, callbacks=[LossScaleMonitor(trace=True)])


def test_before_any_training():
    assert str(LossScaleMonitor()) == "LossScaleMonitor, not used in fit yet"


def test_a_loop_of_ones_own_gives_no_logs(run):
    monitor = LossScaleMonitor()
    run(monitor)
    monitor.on_epoch_end(1)
    assert str(monitor) == "loss scale 512\n1 step skipped"


def test_a_plot(run, tmp_path):
    monitor = LossScaleMonitor(trace=True)
    run(monitor)
    for of_page, dark in ((LIGHT, {}), (DARK, {"dark": True})):
        figure = monitor.plot(tmp_path / "scale.png", **dark)
        assert figure.get_facecolor() == to_rgba(of_page.ground)
        assert (tmp_path / "scale.png").read_bytes().startswith(b"\x89PNG")


def test_another_optimizer_is_refused(fit, data):
    told = r"compiled with keras_mp.LossScaleOptimizer.* is keras.optimizers.SGD: wrap it, keras_mp"
    with pytest.raises(TypeError, match=told):
        fit(keras.optimizers.SGD(), *data, callbacks=[LossScaleMonitor()])


def test_that_of_keras_is_told_from_ours(fit, data):
    """Their names are one: compile wraps so where the policy of the model is mixed_float16."""
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    told = r"is keras.optimizers.LossScaleOptimizer, which Keras.*keras_mp.auto_wrap\(\)"
    with pytest.raises(TypeError, match=told):
        fit(optimizer, *data, callbacks=[LossScaleMonitor()])


@pytest.mark.parametrize("rows", [0, 1.5, None])
def test_rows(rows):
    with pytest.raises(ValueError, match="rows must be an integer of at least 1"):
        LossScaleMonitor(rows=rows)


def test_an_unwritable_folder_is_told_at_once(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        run(LossScaleMonitor(tmp_path / "file" / "run"))


def test_tensorboard_of_keras(run, tmp_path):
    """It writes what is in the logs, if it comes after the monitor."""
    if BACKEND != "tensorflow":
        pytest.skip("keras.callbacks.TensorBoard needs TensorFlow")
    run([LossScaleMonitor(), keras.callbacks.TensorBoard(tmp_path)])
    [events] = (tmp_path / "train").glob("*.v2")
    content = events.read_bytes()
    assert b"epoch_loss_scale" in content
    assert b"epoch_skipped_steps" in content


class Counts(keras.callbacks.Callback):
    batches = 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1


def test_too_many_skips_stop_the_training(run, caplog):
    monitor, counts = LossScaleMonitor(), Counts()
    optimizer = lso(max_consecutive_skips=3, diagnose=True)
    with caplog.at_level(logging.ERROR, logger="keras_mp"):
        run([monitor, counts], range(8), optimizer=optimizer, epochs=5)
    assert counts.batches < 2 * 8
    assert monitor.stopped in caplog.text
    assert "steps in a row were skipped; the loss scale is" in monitor.stopped
    assert "the gradient of out/" in monitor.stopped


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "in a SharedLossScale"])
def test_two_monitors_see_the_same(run, shared):
    """Neither takes from the other: not the skips that it saw, nor the batch to run again."""
    monitors = [LossScaleMonitor(), LossScaleMonitor()]
    optimizer = lso(max_consecutive_skips=3)
    group = SharedLossScale(optimizer, lso()) if shared else None
    model = run(monitors, (3, 4, 5), optimizer=optimizer, epochs=1)
    first, second = (monitor.stopped for monitor in monitors)
    assert first == second
    assert first.startswith("3 steps in a row were skipped")
    assert ("of the last batch" in first) == (BACKEND != "tensorflow")
    assert "follow" not in getattr(model.train_function, "__qualname__", "")
    assert [monitor._batch.get() for monitor in monitors] == [None, None]
    # Each on a model of its own, afterwards.
    others = [run(monitor, (), optimizer=lso(max_consecutive_skips=3)) for monitor in monitors]
    assert [monitor.stopped for monitor in monitors] == [None, None]
    assert (len(others), group is None) == (2, not shared)


def test_a_loss_that_no_scale_can_cure(run):
    """The data hold an inf: the loss is not finite at scale 1 either."""
    monitor = LossScaleMonitor()
    run(monitor, range(8), optimizer=lso(max_consecutive_skips=3), epochs=5)
    assert "which no loss scale can cure" in monitor.stopped


def test_gradients_that_a_smaller_scale_might_cure(fit, data):
    """A fixed scale that is too high: the loss is finite."""
    monitor = LossScaleMonitor()
    optimizer = LossScaleOptimizer(
        keras.optimizers.SGD(0.01), dynamic=False, initial_scale=2.0**127, max_consecutive_skips=3
    )
    fit(optimizer, data[0] * 1e3, data[1], callbacks=[monitor], epochs=5)
    assert "which no loss scale can cure" not in monitor.stopped
    assert "finite" in monitor.stopped


def test_a_run_of_skips_that_has_ended_by_the_time_it_is_looked_at(run):
    monitor = LossScaleMonitor()
    run(monitor, (1, 2, 3, 4), optimizer=lso(max_consecutive_skips=4))
    assert monitor.stopped.startswith("4 steps in a row were skipped")


def test_the_loss_of_training_counts_not_that_of_validation(run, data):
    monitor = LossScaleMonitor()
    optimizer = lso(max_consecutive_skips=8)
    x, y = data
    model = run(monitor, range(8), optimizer=optimizer, epochs=1)
    monitor = LossScaleMonitor()
    model.fit(x, y * np.inf, validation_data=(x, y), batch_size=8, verbose=0, callbacks=[monitor])
    assert "which no loss scale can cure" in monitor.stopped


def test_a_batch_that_cannot_be_run_again(run, monkeypatch):
    """As of a train_step of its own that takes batches of another form: it is told all the same."""

    def refuse(*arguments, **options):
        raise ValueError("expects 1 input")

    monkeypatch.setattr("keras_mp.diagnosis.overflow_search.search.find_in_batch", refuse)
    monitor = LossScaleMonitor()
    run(monitor, range(8), optimizer=lso(max_consecutive_skips=2))
    assert "steps in a row were skipped" in monitor.stopped
    assert "which no loss scale can cure" in monitor.stopped
    assert ("expects 1 input" in monitor.stopped) == (BACKEND != "tensorflow")


@pytest.mark.parametrize(
    ("logs", "told"),
    [
        ({}, "Whether the loss is finite is not in the logs."),
        ({"loss": 1.0}, "The loss of this epoch is finite, so it is gradients that overflow."),
        ({"loss": math.nan}, "at least one step of this epoch is not finite, which no loss scale"),
    ],
)
def test_what_the_logs_say_of_the_loss(logs, told):
    assert told in _by_logs(logs)


def test_fewer_skips_do_not(run):
    monitor = LossScaleMonitor()
    run(monitor, (2, 3), optimizer=lso(max_consecutive_skips=3), epochs=2)
    assert monitor.stopped is None


def test_the_model_is_left_as_it_was_found(run):
    model = run(LossScaleMonitor(), optimizer=lso(max_consecutive_skips=3))
    model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
    assert "follow" not in getattr(model.train_function, "__qualname__", "")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_trainings_that_were_interrupted_leave_no_batch_behind(run, fit, data):
    if BACKEND == "tensorflow":
        pytest.skip("a batch cannot be had there")

    class Dies(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    first, second = LossScaleMonitor(), LossScaleMonitor()
    with pytest.raises(KeyboardInterrupt):
        run([first, Dies()], optimizer=lso(max_consecutive_skips=3))
    model = first.model
    assert first._batch.get() is not None
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data, verbose=0, callbacks=[second, Dies()])
    assert first._batch.get() is None
    second._batch.end()
    assert "follow" not in model.train_function.__qualname__


def test_metrics_are_asked_for_where_a_training_stops_only(run, monkeypatch):
    asked = []
    original = keras.Model.get_metrics_result
    monkeypatch.setattr(
        keras.Model, "get_metrics_result", lambda self: asked.append(0) or original(self)
    )
    run(LossScaleMonitor(), (), optimizer=lso(max_consecutive_skips=9))
    expected = len(asked)
    run(LossScaleMonitor(), (), optimizer=lso(max_consecutive_skips=1))
    assert len(asked) == 2 * expected


DEVICES = {
    "tensorflow": """
import keras, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
scope = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope
""",
    "jax": """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import contextlib, keras
keras.distribution.set_distribution(keras.distribution.DataParallel())
scope = contextlib.nullcontext
""",
}
MONITORED = """
import numpy as np
import keras_mp
x = np.ones((64, 4), "float32")
y = x[:, :1].copy()
y[20] = np.inf  # in the second of four steps
with scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    optimizer = keras_mp.LossScaleOptimizer(
        keras.optimizers.SGD(0.01), initial_scale=64, diagnose=True, max_consecutive_skips=9
    )
    model.compile(optimizer, "mse")
monitor = keras_mp.LossScaleMonitor(trace=True)
history = model.fit(x, y, batch_size=16, shuffle=False, verbose=0, epochs=2, callbacks=[monitor])
assert history.history["skipped_steps"] == [1, 1], history.history
assert history.history["loss_scale"] == [32.0, 16.0], history.history
assert monitor.trace.scales.tolist() == [64, 64, 32, 32, 32, 32, 16, 16], monitor.trace
assert monitor.trace.is_skipped.tolist() == [False, True, False, False] * 2
assert optimizer.first_overflow().step == 2
"""


@pytest.mark.processes
def test_several_devices():
    if BACKEND == "torch":
        pytest.skip("each process has a monitor of its own")
    programs.run("-c", DEVICES[BACKEND] + MONITORED, imported=True)
