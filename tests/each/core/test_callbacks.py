"""Keras' callbacks with a wrapped optimizer."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer


def lso(**options):
    inner = keras.optimizers.Adam(0.01, **options)
    return LossScaleOptimizer(inner, initial_scale=256.0, dynamic_growth_steps=3)


def rate(model):
    return float(ops.convert_to_numpy(model.optimizer.learning_rate))


def test_reduce_lr_on_plateau(fit, data):
    callback = keras.callbacks.ReduceLROnPlateau("loss", patience=0, min_delta=1e9, factor=0.5)
    model = fit(lso(), *data, epochs=3, callbacks=[callback])
    assert rate(model) == pytest.approx(0.01 * 0.5**2)


def test_learning_rate_scheduler(fit, data):
    callback = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.1)
    assert rate(fit(lso(), *data, epochs=2, callbacks=[callback])) == pytest.approx(1e-4)


def test_swap_ema_weights(fit, data, weights):
    """As with the plain optimizer, in values."""
    seen = {}

    def run(name, optimizer):
        swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
        model = fit(optimizer, *data, epochs=2, callbacks=[swap])
        seen[name] = weights(model)

    run("ours", lso(use_ema=True, ema_momentum=0.5))
    run("plain", keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.5))
    assert np.allclose(seen["ours"], seen["plain"], rtol=1e-5, atol=1e-7)


def test_backup_and_restore(fit, data, weights, state, tmp_path):
    """Interrupted and resumed is bit for bit the uninterrupted run, scale and counter included."""

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    whole = fit(lso(), *data, epochs=4, policy="mixed_float16")
    backup = str(tmp_path / "backup")
    callbacks = [keras.callbacks.BackupAndRestore(backup), Interrupt()]
    with pytest.raises(KeyboardInterrupt):
        fit(lso(), *data, epochs=4, policy="mixed_float16", callbacks=callbacks)
    callbacks = [keras.callbacks.BackupAndRestore(backup)]
    resumed = fit(lso(), *data, epochs=4, policy="mixed_float16", callbacks=callbacks)
    assert weights(resumed).tolist() == weights(whole).tolist()
    assert state(resumed.optimizer.variables) == state(whole.optimizer.variables)


def test_model_checkpoint(fit, data, state, tmp_path):
    path = str(tmp_path / "model.keras")
    model = fit(lso(), *data, callbacks=[keras.callbacks.ModelCheckpoint(path)])
    loaded = keras.saving.load_model(path)
    assert state(loaded.optimizer.variables) == state(model.optimizer.variables)


def test_csv_logger_with_a_schedule(fit, data, tmp_path):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)
    optimizer = LossScaleOptimizer(keras.optimizers.Adam(schedule))
    logger = keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))
    fit(optimizer, *data, epochs=2, callbacks=[logger])
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 3


def test_reading_the_scale_in_a_batch_callback(fit, data, backend):
    """On JAX the compiled step holds the state, until `self.model` or jax_state_sync() asks for it.

    Reading it before is an error that names the remedy, where Keras' own class has a TypeError.
    """
    optimizer, seen = lso(), []

    class Read(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if backend == "jax":
                with pytest.raises(RuntimeError, match=r"model\.jax_state_sync\(\)"):
                    _ = optimizer.loss_scale
                with pytest.raises(RuntimeError, match=r"model\.jax_state_sync\(\)"):
                    _ = optimizer.dynamic_counter
            assert self.model.optimizer is optimizer
            seen.append((float(optimizer.loss_scale), int(optimizer.dynamic_counter)))

    fit(optimizer, *data, callbacks=[Read()])
    assert seen[:4] == [(256.0, 1), (256.0, 2), (512.0, 0), (512.0, 1)]
    assert len(seen) == 8


@pytest.mark.filterwarnings("ignore:Sharding info not provided")
def test_orbax_checkpoint(fit, make_model, data, state, tmp_path):
    """Keras' own OrbaxCheckpoint (3.13 or so on) and back."""
    if not hasattr(keras.callbacks, "OrbaxCheckpoint"):
        pytest.skip("this Keras has no OrbaxCheckpoint")
    pytest.importorskip("orbax.checkpoint", reason="orbax-checkpoint is not installed")
    folder = str(tmp_path / "orbax")
    callback = keras.callbacks.OrbaxCheckpoint(directory=folder, save_freq="epoch")
    model = fit(lso(), *data, callbacks=[callback])
    loaded = keras.saving.load_model(folder)
    assert type(loaded.optimizer) is LossScaleOptimizer
    assert state(loaded.optimizer.variables) == state(model.optimizer.variables)
    assert state(loaded.trainable_variables) == state(model.trainable_variables)
