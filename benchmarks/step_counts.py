"""What a step of an optimizer consists of: counts that need no quiet machine.

- JAX: bytes that the compiled step reads and writes, and instructions of its HLO;
- TensorFlow: nodes of the traced graph; with XLA the instructions of the optimized HLO;
- torch: calls of aten, and times that Python waits for the device, as if the CPU were one.

Used by `benchmarks/step.py`, and by tests that hold the counts to bounds.
"""

import unittest.mock
from typing import Any

import numpy as np

from benchmarks import monitor


def of(optimizer: Any, variables: int, elements: int, **modes: Any) -> dict[str, float]:
    """Returns the counts of a step of `optimizer`, a plain one or one that scales the loss.

    Args:
        optimizer: Not built yet.
        variables: How many to train.
        elements: Of each.
        modes: `skipped=True` on torch puts an inf into the gradients, `xla=True` on TensorFlow
            counts what XLA makes of the step, `dtype` is that of variables and gradients.
    """
    import keras

    dtype = modes.get("dtype", "float32")
    trained = [keras.Variable(np.ones(elements), dtype=dtype) for _ in range(variables)]
    optimizer.build(trained)
    optimizer.scale_loss(1.0)
    gradient = np.full(elements, 1.0, "float32")
    if modes.get("skipped"):
        gradient[0] = np.inf
    gradients = [keras.ops.cast(gradient, dtype) for _ in trained]
    match keras.backend.backend():
        case "jax":
            return _of_jax(optimizer, gradients, trained)
        case "tensorflow" if modes.get("xla"):
            return _of_xla(optimizer, gradients, trained)
        case "tensorflow":
            return dict(monitor._of_tensorflow(optimizer, gradients, trained))
    from keras_mp.backends import bits_torch, fused_torch

    device = unittest.mock.patch.object(fused_torch, "_is_host", return_value=False)
    with device, unittest.mock.patch.object(bits_torch, "_is_eager", return_value=False):
        return dict(monitor._of_torch(optimizer, gradients, trained))


def _of_jax(optimizer: Any, gradients: list[Any], variables: list[Any]) -> dict[str, float]:
    import jax

    given = [[v.value for v in optimizer.variables], gradients, [v.value for v in variables]]
    # Nothing is given away: copies that XLA makes of donated arrays are its own affair.
    compiled = jax.jit(optimizer.stateless_apply).lower(*given).compile()
    numbers = sum(gradient.size for gradient in gradients)
    return {
        "bytes a parameter": compiled.cost_analysis()["bytes accessed"] / numbers,
        "instructions": instructions(compiled.as_text()),
    }


def _of_xla(optimizer: Any, gradients: list[Any], variables: list[Any]) -> dict[str, float]:
    import tensorflow as tf

    @tf.function(jit_compile=True, autograph=False)
    def step(gradients: list[Any]) -> None:
        optimizer.apply(gradients, variables)

    text = step.experimental_get_compiler_ir(gradients)(stage="optimized_hlo")
    return {"instructions": instructions(text), "conditionals": text.count(" conditional(")}


def instructions(hlo: str) -> int:
    """Returns how many instructions there are in the text of an HLO module."""
    return sum(" = " in line for line in hlo.splitlines())
