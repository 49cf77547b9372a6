"""Steps under switches that hold for a whole process, each in one of its own."""

import keras
import pytest

from tests import programs

SWITCHES = {
    "torch": {
        "default dtype": "import torch; torch.set_default_dtype(torch.float64)",
        "default device": "import torch; torch.set_default_device('meta')",
        "deterministic": "import torch; torch.use_deterministic_algorithms(True)",
        "inference": "import torch; torch.inference_mode().__enter__()",
        "anomalies": "import torch; torch.autograd.set_detect_anomaly(True)",
    },
    "jax": {
        "x64": "import jax; jax.config.update('jax_enable_x64', True)",
        "strict": "import jax; jax.config.update('jax_numpy_dtype_promotion', 'strict')",
        "ranks": "import jax; jax.config.update('jax_numpy_rank_promotion', 'raise')",
        "nans": "import jax; jax.config.update('jax_debug_nans', True)",
        "not jitted": "import jax; jax.config.update('jax_disable_jit', True)",
    },
    "tensorflow": {
        "NumPy": "import tensorflow as tf; "
        "tf.experimental.numpy.experimental_enable_numpy_behavior()",
        "deterministic": "import tensorflow as tf; tf.random.set_seed(0); "
        "tf.config.experimental.enable_op_determinism()",
        "eager": "import tensorflow as tf; tf.config.run_functions_eagerly(True)",
    },
}[keras.backend.backend()]
STEPS = """
import sys, warnings
exec(sys.argv[1])
import keras, numpy as np
from keras import ops
from keras_mp import LossScaleOptimizer, MasterWeights
from tests.compiled_steps import compiled_step
o = keras.optimizers
CASES = {
    "default": (o.Adam, {}, {"hysteresis": 2, "diagnose": True}),
    "fused": (o.AdamW, {}, {"fused": True, "diagnose": True}),
    "momentum": (o.SGD, {"momentum": 0.9}, {"fused": True}),
    "Adagrad": (o.Adagrad, {}, {"fused": True}),
    "fixed": (o.Adam, {}, {"dynamic": False}),
    "clipnorm": (o.Adam, {"clipnorm": 1.0}, {}),
    "average": (o.SGD, {"use_ema": True, "ema_overwrite_frequency": 2}, {}),
    "sums": (o.SGD, {"gradient_accumulation_steps": 2}, {}),
}
def weights(optimizer, gradients, compiled=False, dtype="float32"):
    variable = keras.Variable(np.ones((2, 3)), dtype=dtype)
    optimizer.build([variable])
    step = lambda given: optimizer.apply(given, [variable])
    if compiled:
        step = compiled_step(optimizer, [variable])
    for each in gradients:
        step([ops.convert_to_tensor(each, dtype)])
    return ops.convert_to_numpy(ops.cast(variable, "float32"))
good = [np.full((2, 3), n, "float32") for n in (0.5, -0.25, 0.125)]
bad = np.full((2, 3), np.inf, "float32")
bad[0, 0] = -np.inf
refused = []
for name, (inner, options, settings) in CASES.items():
    try:
        expected = weights(inner(**options), good)
    except Exception:
        refused.append(name)
        continue
    for compiled in {False, keras.backend.backend() != "torch" and name in ("default", "fused")}:
        optimizer = LossScaleOptimizer(
            inner(**options), initial_scale=4.0, count_skipped_steps=False, **settings
        )
        optimizer.scale_loss(1.0)
        steps = [4 * each for each in good]
        steps.insert(1, bad)
        if "hysteresis" not in settings and settings.get("dynamic", True):
            steps[2:] = [each / 2 for each in steps[2:]]
        found = weights(optimizer, steps, compiled)
        np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=name)
        assert int(optimizer.skipped_steps) == 1, name
        assert float(optimizer.loss_scale) == 8 * abs(float(steps[-1][0, 0])), name
assert refused in ([], ["average"]), refused  # by plain Keras
optimizer = LossScaleOptimizer(MasterWeights(o.SGD(0.5)), initial_scale=4.0)
optimizer.scale_loss(1.0)
assert weights(optimizer, [good[0], bad], dtype="bfloat16").max() < 1
"""


@pytest.mark.parametrize("switch", SWITCHES)
def test_steps_are_those_of_plain_keras(switch):
    programs.run("-c", STEPS, SWITCHES[switch], imported=True, timeout=200)
