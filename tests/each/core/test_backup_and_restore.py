"""A `fit` that is killed in the middle of an epoch, and continued from Keras' own backup.

This file is also the program that is killed:
python -m tests.each.core.test_backup_and_restore FOLDER SAVE_FREQ.
"""

import json
import os
import signal
import sys

import keras
import numpy as np
import pytest

import keras_mp
from tests import programs

BATCH, BATCHES, EPOCHS = 8, 8, 4
BAD = 3  # the batch with a nan: a step is skipped in each epoch, so before and after the break
KILLED = (2, 6)  # (epoch, batch)


def data():
    x = np.random.RandomState(0).randn(BATCH * BATCHES, 4).astype("float32")
    y = x.sum(1, keepdims=True)
    x[BAD * BATCH] = np.nan
    return x, y


def compiled():
    """Returns a model without random state: Keras' backup has no seeds of Dropout."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, activation="relu", dtype="mixed_float16"),
            keras.layers.Dense(1, dtype="mixed_float16"),
        ]
    )
    inner = keras.optimizers.Adam(0.01)
    optimizer = keras_mp.LossScaleOptimizer(inner, initial_scale=256.0, dynamic_growth_steps=3)
    model.compile(optimizer, keras.losses.MeanSquaredError())
    return model


def fit(model, begin=0, **options):
    """Trains on the batches from `begin` on."""
    x, y = (a[begin * BATCH :] for a in data())
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, **options)


class Killed(keras.callbacks.Callback):
    """SIGKILL of this process: no handler, no `finally`, no flush."""

    epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == KILLED:
            os.kill(os.getpid(), signal.SIGKILL)


def backup(folder, save_freq):
    return keras.callbacks.BackupAndRestore(folder, save_freq=save_freq, delete_checkpoint=False)


@pytest.mark.processes
@pytest.mark.parametrize("save_freq", ["epoch", 5])
def test_killed_and_continued_is_as_never_killed(save_freq, state, tmp_path):
    """Bit for bit: weights, slots, iterations, scale, counter."""
    folder = tmp_path / "backup"
    module = "tests.each.core.test_backup_and_restore"
    done = programs.completed("-m", module, folder, save_freq, timeout=100, imported=True)
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]

    resumed = compiled()
    saved = json.loads((folder / "training_metadata.json").read_text())
    if save_freq == "epoch":
        assert saved["epoch"] == KILLED[0]
        fit(resumed, epochs=EPOCHS, callbacks=[backup(str(folder), save_freq)])
    else:
        # Restored by the callback, the epoch would begin anew, with the state of its middle.
        assert (saved["epoch"], saved["batch"]) == (2, 3)
        keras_mp.resume(resumed, folder / "latest.weights.h5")
        fit(resumed, begin=saved["batch"] + 1)
        fit(resumed, initial_epoch=saved["epoch"] + 1, epochs=EPOCHS)

    whole = compiled()
    fit(whole, epochs=EPOCHS)
    assert state(resumed.variables) == state(whole.variables)
    assert state(resumed.optimizer.variables) == state(whole.optimizer.variables)
    assert int(whole.optimizer.iterations) == EPOCHS * BATCHES
    assert float(whole.optimizer.loss_scale) == by_hand()


def by_hand():
    """The rule: the scale at the end."""
    scale, counter = 256.0, 0
    for step in range(EPOCHS * BATCHES):
        if step % BATCHES == BAD:
            scale, counter = scale / 2, 0
        elif counter + 1 == 3:
            scale, counter = scale * 2, 0
        else:
            counter += 1
    return scale


if __name__ == "__main__":
    frequency = sys.argv[2] if sys.argv[2] == "epoch" else int(sys.argv[2])
    fit(compiled(), epochs=EPOCHS, callbacks=[backup(sys.argv[1], frequency), Killed()])
