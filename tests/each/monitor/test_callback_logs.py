"""What `LossScaleMonitor` puts into the logs, batch by batch, and who is too early to see it."""

import csv
import re

import keras
import numpy as np
import pytest

from keras_mp import LossScaleMonitor, LossScaleOptimizer

BACKEND = keras.backend.backend()
NEW = {"loss_scale", "skipped_steps"}


def lso():
    return LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=64.0)


class Writer(keras.callbacks.Callback):
    """Writes what is in the logs of each batch, as the callbacks of W&B and MLflow do."""

    def __init__(self):
        super().__init__()
        self.batches, self.epochs = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append(dict(logs))

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(dict(logs))


class Early(Writer):
    """Of another package, by the looks of it."""

    __module__ = "wandb.integration.keras"


@pytest.fixture
def bad_data(data):
    """Its batches 2 and 5, of 8, overflow."""
    x, y = data
    y = y.copy()
    y[[2 * 8, 5 * 8]] = np.inf
    return x, y


@pytest.mark.parametrize("compile", [{}, {"run_eagerly": True}], ids=["default", "eager"])
def test_by_batch(fit, bad_data, compile):
    monitor, writer = LossScaleMonitor(by_batch=True), Writer()
    fit(lso(), *bad_data, epochs=2, callbacks=[monitor, writer], **compile)
    assert [logs["skipped_steps"] for logs in writer.batches] == [0, 0, 1, 1, 1, 2, 2, 2] * 2
    halved = [64.0] * 2 + [32.0] * 3 + [16.0] * 5 + [8.0] * 3 + [4.0] * 3
    assert [logs["loss_scale"] for logs in writer.batches] == halved
    assert [logs["skipped_steps"] for logs in writer.epochs] == [2, 2]
    assert [logs["loss_scale"] for logs in writer.epochs] == [16.0, 4.0]


def test_only_on_request(fit, bad_data):
    """Keras waits for the logs of each batch where a callback has the method."""
    monitor, writer = LossScaleMonitor(), Writer()
    assert monitor.on_train_batch_end.__func__ is keras.callbacks.Callback.on_train_batch_end
    fit(lso(), *bad_data, callbacks=[monitor, writer])
    assert not any(NEW & set(logs) for logs in writer.batches)
    assert [NEW & set(logs) for logs in writer.epochs] == [NEW]


def test_reads_once_a_batch(fit, bad_data, monkeypatch):
    """Of each number, and once more at the start and the end."""
    seen = []
    for name in sorted(NEW):
        read = getattr(LossScaleOptimizer, name).fget
        wanted = property(lambda self, name=name, read=read: seen.append(name) or read(self))
        monkeypatch.setattr(LossScaleOptimizer, name, wanted)
    fit(lso(), *bad_data, callbacks=[LossScaleMonitor(by_batch=True)])
    assert seen == ["skipped_steps"] + ["skipped_steps", "loss_scale"] * (8 + 1)


def test_tensorboard_of_keras(fit, bad_data, tmp_path):
    if BACKEND != "tensorflow":
        pytest.skip("keras.callbacks.TensorBoard needs TensorFlow")
    board = keras.callbacks.TensorBoard(tmp_path, update_freq="batch")
    fit(lso(), *bad_data, callbacks=[LossScaleMonitor(by_batch=True), board])
    [events] = (tmp_path / "train").glob("*.v2")
    content = events.read_bytes()
    assert content.count(b"batch_loss_scale") == content.count(b"batch_skipped_steps") == 8


def test_who_comes_too_early_is_told(fit, bad_data, tmp_path):
    """Once, with what to write; CSVLogger keeps to the columns of the first epoch."""
    log, early, late = tmp_path / "log.csv", Early(), Writer()
    callbacks = [keras.callbacks.CSVLogger(log), early, LossScaleMonitor(), late]
    told = "CSVLogger, Early will not see loss_scale and skipped_steps: LossScaleMonitor, which"
    with pytest.warns(UserWarning, match=told) as warned:
        fit(lso(), *bad_data, epochs=2, callbacks=callbacks)
    [message] = [str(each.message) for each in warned if "LossScaleMonitor" in str(each.message)]
    assert message.endswith("Put it first: callbacks=[monitor, CSVLogger, Early].")
    with log.open(newline="") as file:
        assert not NEW & set(next(csv.reader(file)))
    assert [NEW & set(logs) for logs in (*early.epochs, *late.epochs)] == [set()] * 2 + [NEW] * 2


@pytest.mark.parametrize("early", [[], [Writer()], [keras.callbacks.TerminateOnNaN()]])
def test_no_warning_of_others(fit, bad_data, tmp_path, early, recwarn):
    log = tmp_path / "log.csv"
    callbacks = [*early, LossScaleMonitor(), keras.callbacks.CSVLogger(log)]
    fit(lso(), bad_data[0], bad_data[0][:, :1], callbacks=callbacks)
    assert not [each for each in recwarn if re.search("LossScaleMonitor", str(each.message))]
    with log.open(newline="") as file:
        assert set(next(csv.reader(file))) > NEW
