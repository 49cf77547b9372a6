"""Cases for `fused=True`: optimizers, their rules in NumPy, and gradients."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer

BACKEND = keras.backend.backend()
o = keras.optimizers
SHAPES = ((7, 5), (300,), ())
SCALE = 1024.0
EPSILON = 2.0**-24  # half the relative distance of float32 numbers

# -- the rules of Keras, in float64 ----------------------------------------------------------------
# The state is changed in place and the weight returned; values that Keras computes in float32 for
# all variables together are in float32 here, too.


def adam(state, w, g, lr, t, *, amsgrad=False, b1=0.9, b2=0.999, epsilon=1e-7):
    one, two = (np.float32(1) - np.float32(b) ** np.float32(t) for b in (b1, b2))
    alpha = float(np.float32(lr) * np.sqrt(two) / one)
    state["m"] = state.get("m", 0 * g) + (g - state.get("m", 0 * g)) * (1 - b1)
    v = state["v"] = state.get("v", 0 * g) + (g * g - state.get("v", 0 * g)) * (1 - b2)
    if amsgrad:
        v = state["hat"] = np.maximum(state.get("hat", 0 * g), v)
    return w - alpha * state["m"] / (np.sqrt(v) + epsilon)


def sgd(state, w, g, lr, t, *, momentum=0.0, nesterov=False):
    state["m"] = m = momentum * state.get("m", 0 * g) - lr * g
    return w + (momentum * m - lr * g if nesterov else m)


def adagrad(state, w, g, lr, t, *, epsilon=1e-7, initial=0.1):
    state["a"] = state.get("a", initial + 0 * g) + g * g
    return w - lr * g / np.sqrt(state["a"] + epsilon)


def rmsprop(state, w, g, lr, t, *, momentum, rho=0.9, epsilon=1e-7):
    state["v"] = rho * state.get("v", 0 * g) + (1 - rho) * g * g
    state["m"] = momentum * state.get("m", 0 * g) + lr * g / np.sqrt(state["v"] + epsilon)
    return w - state["m"]


def decay():
    return o.schedules.ExponentialDecay(0.05, 10, 0.9)


def rate(t, start=0.01):
    return start


# name -> optimizer, rule, its arguments, learning rate of step t = 1, ..., weight decay
CASES = {
    "Adam": (lambda: o.Adam(0.01), adam, {}, rate, 0),
    "amsgrad": (lambda: o.Adam(0.01, amsgrad=True), adam, {"amsgrad": True}, rate, 0),
    "betas": (
        lambda: o.Adam(0.01, beta_1=0.8, beta_2=0.99, epsilon=1e-3),
        adam,
        {"b1": 0.8, "b2": 0.99, "epsilon": 1e-3},
        rate,
        0,
    ),
    "schedule": (lambda: o.Adam(decay()), adam, {}, lambda t: 0.05 * 0.9 ** ((t - 1) / 10), 0),
    "AdamW": (lambda: o.AdamW(0.01, weight_decay=0.1), adam, {}, rate, 0.1),
    "SGD": (lambda: o.SGD(0.01), sgd, {}, rate, 0),
    "decay": (lambda: o.SGD(0.01, weight_decay=0.1), sgd, {}, rate, 0.1),
    "momentum": (lambda: o.SGD(0.01, momentum=0.9), sgd, {"momentum": 0.9}, rate, 0),
    "nesterov": (
        lambda: o.SGD(0.01, momentum=0.9, nesterov=True),
        sgd,
        {"momentum": 0.9, "nesterov": True},
        rate,
        0,
    ),
    "Adagrad": (lambda: o.Adagrad(0.01), adagrad, {}, rate, 0),
    "RMSprop": (lambda: o.RMSprop(0.01, momentum=0.9), rmsprop, {"momentum": 0.9}, rate, 0),
}
DEFAULT = {"jax": set(CASES), "tensorflow": {"amsgrad"}, "torch": {"RMSprop"}}[BACKEND]
FUSED = [name for name in CASES if name not in DEFAULT]
# How much two results may differ after 200 steps, relative to the sum of all updates: rounding, and
# on TensorFlow 1 - beta_2, which its Adam kernel computes from beta_2 in float32.
NEAR = 16 * EPSILON
BETAS = {"Adam": 0.999, "schedule": 0.999, "AdamW": 0.999, "betas": 0.99}
fused_only = pytest.mark.skipif(
    not FUSED, reason="JAX compiles the default path to one kernel: see test_fused_rules.py"
)
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="about PyTorch's kernels")
on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="about TensorFlow's kernels")
INF, NAN = float("inf"), float("nan")


def apart(name):
    coarse = BETAS.get(name) if BACKEND == "tensorflow" else None
    return NEAR + (EPSILON / 4 / (1 - coarse) if coarse else 0)


def make(inner, **settings):
    random = np.random.RandomState(0)
    variables = [
        keras.Variable(random.standard_normal(shape).astype("float32"), name=f"v{i}")
        for i, shape in enumerate(SHAPES)
    ]
    if not {"initial_scale", "dynamic_growth_steps"} & set(settings):
        settings["initial_scale"] = SCALE
    optimizer = LossScaleOptimizer(inner, **settings)
    optimizer.build(variables)
    optimizer.scale_loss(1.0)
    return optimizer, variables


def unscaled(step):
    """Returns float32 gradients with magnitudes from 1e-3 to 10."""
    random = np.random.RandomState(step)
    size = 10 ** random.uniform(-3, 1)
    return [np.asarray(size * random.standard_normal(s), "float32") for s in SHAPES]


def apply(optimizer, variables, gradients, scale=SCALE):
    optimizer.apply([ops.array(g * np.float32(scale)) for g in gradients], variables)


def numpy(variables):
    return [np.array(ops.convert_to_numpy(v), "float64") for v in variables]


def floats(optimizer):
    """Returns the slots of the inner optimizer."""
    return [v for v in optimizer.inner_optimizer.variables if "float" in v.dtype and v.ndim]


def distance(found, expected, path):
    """Returns the largest difference relative to the sum of all updates."""
    return max(
        float(np.max(abs(a - b) / (abs(b) + c)))
        for a, b, c in zip(found, expected, path, strict=True)
    )
