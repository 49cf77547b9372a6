"""Trainings that overflow in float16, repaired in `fit`: they end as in float32 from the start."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp import LossScaleOptimizer, PrecisionRepair
from tests.several_faults import FAULTY
from tests.sick_models import SICK, Remedied

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
STEPS, SKIPS = 8, 2
# Of those with one fault: the learning rate, and how many layers and losses need float32.
ALONE = {
    "attention": (1e-5, 1, 2),
    "MultiHeadAttention": (1e-5, 1, 1),
    "log of 0": (1e-3, 1, 2),
    "label smoothing": (1e-3, 2, 2),
    "norm": (1e-3, 1, 1),
    "cosine of zero vectors": (1e-4, 1, 1),
    "relu in a loop": (1e-4, 1, 2),
    "mask of -1e9": (1e-3, 1, 1),
    "variance": (1e-4, 1, 2),
    "sum pooling": (1e-8, 1, 2),
    "embeddings": (1e-8, 1, 1),
    "inputs beyond 65504": (1e-4, 1, 1),
    "exponential": (1e-5, 2, 2),
}
RATES = {
    "language model": 1e-5,
    "masked attention": 1e-5,
    "pooled images": 1e-8,
    "vision transformer": 1e-6,
}


def case(name):
    """Returns how to make a model, the learning rate, and the least and most that need float32."""
    if name in ALONE:
        return lambda: SICK[name].make(Remedied()), *ALONE[name]
    make, least, most = FAULTY[name]
    return make, RATES.get(name, 1e-4), least, most


class Until(keras.callbacks.Callback):
    """Ends the training after so many steps that were taken."""

    def on_epoch_end(self, epoch, logs=None):
        taken = int(self.model.optimizer.iterations) - int(self.model.optimizer.skipped_steps)
        self.model.stop_training |= taken >= STEPS


def trained(make, rate, policy, *callbacks):
    """Returns the model, and its loss before and after."""
    keras.utils.set_random_seed(0)
    keras_mp.set_global_policy(policy)
    model, loss, x, y = make()
    if policy == "float32" and isinstance(loss, keras.losses.Loss):
        loss._dtype_policy, loss._dtype = keras.DTypePolicy("float32"), "float32"
    # XLA takes long, on TensorFlow; test_callback.py has it.
    jit = False if keras.backend.backend() == "tensorflow" else "auto"
    model.compile(LossScaleOptimizer(keras.optimizers.Adam(rate)), loss, jit_compile=jit)
    x, y = ops.convert_to_tensor(x), ops.convert_to_tensor(y)
    before = float(ops.convert_to_numpy(model.compute_loss(x, y, model(x))))
    data = {"x": x, "y": y, "batch_size": len(x), "verbose": 0}
    model.fit(**data, epochs=STEPS + 8 * SKIPS, callbacks=[*callbacks, Until()])
    return model, before, float(ops.convert_to_numpy(model.compute_loss(x, y, model(x))))


@pytest.mark.parametrize("name", [*ALONE, *FAULTY])
def test_ends_as_in_float32(name):
    make, rate, least, most = case(name)
    _, before, wanted = trained(make, rate, "float32")
    repair = PrecisionRepair(skips=SKIPS)
    model, _, found = trained(make, rate, "mixed_float16", repair)
    assert wanted != before
    assert found == pytest.approx(wanted, rel=0.05), repair.repairs
    done = [*repair.repairs.layers, *repair.repairs.losses]
    assert least <= len(done) <= most, repair.repairs
    assert (
        int(model.optimizer.skipped_steps) <= SKIPS * len(repair.repairs) + 8
    )  # which halve the scale
    assert all(np.isfinite(w).all() for w in model.get_weights())
    float32 = [each for each in model._flatten_layers() if each.path in repair.repairs.layers]
    assert all(layer.compute_dtype == "float32" for layer in float32)
    assert repair.stopped is None
    taken = int(model.optimizer.iterations) - int(model.optimizer.skipped_steps)
    assert taken >= STEPS
