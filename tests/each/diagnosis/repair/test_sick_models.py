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
# The learning rate of each, and which layers and losses need float32. Where the backends
# differ, they round a sum or a sigmoid in float16 differently.
CASES = {
    "attention": (1e-5, "embed attention"),
    "MultiHeadAttention": (1e-5, "attend"),
    "log of 0": (1e-3, {"torch": "log", "else": "prob log"}),
    "label smoothing": (1e-3, "prob smoothed"),
    "norm": (1e-3, "l2norm"),
    "cosine of zero vectors": (1e-4, "cosine"),
    "relu in a loop": (1e-4, "rnn1 rnn2"),
    "mask of -1e9": (1e-3, "masked"),
    "variance": (1e-4, "first statistics"),
    "sum pooling": (1e-8, "pool"),
    "embeddings": (1e-8, "bag"),
    "inputs beyond 65504": (1e-4, "rate"),
    "exponential": (1e-5, "rate exponential"),
    # Several faults at once:
    "norm and log": (1e-4, "h1 l2norm prob log"),
    "pooled images": (1e-8, "pool statistics"),
    "masked attention": (1e-2, "attend masked"),
    "vision transformer": (1e-7, {"tensorflow": "block1", "else": "block1/down"}),
    "language model": (1e-5, "add"),
    "U-Net": (1e-4, "scaled"),
    "discriminator": (1e-4, "statistics"),
    "recurrent encoder": (1e-4, "rnn masked"),
    "counts": (1e-4, "rate logarithm count"),
    "pairs": (1e-2, "cosine prob smoothed"),
}


def case(name):
    """Returns how to make a model: the same numbers on all backends."""

    def make():
        found = FAULTY[name]() if name in FAULTY else SICK[name].make(Remedied())
        draw = np.random.default_rng(0)
        for weight in found[0].trainable_weights:
            value = ops.convert_to_numpy(weight)
            if np.unique(value).size > 2 and value.min() < 0:  # drawn by the backend
                drawn = draw.normal(0.0, np.prod(value.shape[:-1]) ** -0.5, value.shape)
                weight.assign(drawn.astype("float32"))
        return found

    return make


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


@pytest.mark.parametrize("name", CASES)
def test_ends_as_in_float32(name):
    rate, needed = CASES[name]
    if isinstance(needed, dict):
        needed = needed.get(keras.backend.backend(), needed["else"])
    make = case(name)
    _, before, wanted = trained(make, rate, "float32")
    repair = PrecisionRepair(skips=SKIPS)
    model, _, found = trained(make, rate, "mixed_float16", repair)
    assert wanted < before
    assert found < before
    assert found == pytest.approx(wanted, rel=0.05), repair.repairs
    assert {*repair.repairs.layers, *repair.repairs.losses} == {*needed.split()}, repair.repairs
    skipped = int(model.optimizer.skipped_steps)
    assert skipped <= SKIPS * len(repair.repairs) + 8  # which halve the scale
    assert all(np.isfinite(w).all() for w in model.get_weights())
    float32 = [each for each in model._flatten_layers() if each.path in repair.repairs.layers]
    assert all(layer.compute_dtype == "float32" for layer in float32)
    assert repair.stopped is None
    assert int(model.optimizer.iterations) - skipped >= STEPS
