"""Started by test_nnx.py with KERAS_NNX_ENABLED: Keras' models are modules of Flax NNX then."""

import sys

import keras

import keras_mp
from tests.clients.small import keras_own, ours, small_model, state


def main(path):
    from flax import nnx

    keras_mp.set_global_policy("mixed_float16")
    assert keras.config.is_nnx_enabled()
    monitor = keras_mp.LossScaleMonitor(trace=True)
    keras.utils.set_random_seed(1)
    model, x, y = small_model(ours())
    assert isinstance(model, nnx.Module)
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[monitor])
    assert list(monitor.trace.scales) == [1024.0, 1024.0, 2048.0, 2048.0]
    assert float(model.optimizer.loss_scale) == 4096.0

    keras.utils.set_random_seed(1)
    theirs = small_model(keras_own())[0]
    theirs.fit(x, y, batch_size=8, verbose=0)
    assert state(theirs.trainable_variables) == state(model.trainable_variables)

    model.save(path)
    loaded = keras.saving.load_model(path)
    assert type(loaded.optimizer) is keras_mp.LossScaleOptimizer
    assert float(loaded.optimizer.loss_scale) == 4096.0
    assert state(loaded.weights) == state(model.weights)
    assert keras_mp.find_overflow(model, x, y, loss_scale=1.0).first is None
    assert "1 step" in str(keras_mp.range_report(model, (x, y), steps=1))

    # A bad batch changes nothing but the scale.
    before = state(model.trainable_variables)
    model.fit(x * float("inf"), y, batch_size=32, verbose=0)
    assert state(model.trainable_variables) == before
    assert float(model.optimizer.loss_scale) == 2048.0
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(sys.argv[1])
