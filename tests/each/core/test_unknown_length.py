"""Data of unknown length: what `fit` runs at its end, without a batch, is no step."""

import keras
import numpy as np
import pytest

from keras_mp import LossScaleOptimizer

o = keras.optimizers
FIXED = {"dynamic": False, "initial_scale": 8.0}
SETTINGS = {
    "dynamic": {},
    "fixed": FIXED,
    "unguarded": {**FIXED, "skip_nonfinite": False},
    "skips are not counted": {"count_skipped_steps": False},
}


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_only_batches_are_steps(settings, fused, data, make_model, state):
    """The same as with arrays, whose length is known; TensorFlow finds out by running a step."""

    def trained(*batches, **arguments):
        optimizer = LossScaleOptimizer(o.SGD(0.01, weight_decay=0.5), fused=fused, **settings)
        model = make_model()
        model.compile(optimizer, "mse", jit_compile=False)
        model.fit(*batches, shuffle=False, verbose=0, **arguments)
        return model

    x, y = data
    batches = ((x[i : i + 8], y[i : i + 8]) for i in range(0, len(x), 8))
    model = trained(batches)
    assert int(model.optimizer.iterations) == len(x) // 8
    known = trained(x, y, batch_size=8)
    assert state(model.trainable_variables) == state(known.trainable_variables)
    assert np.isfinite(np.concatenate([v.numpy().ravel() for v in model.weights])).all()
