"""Gradients of a model's weights, on every backend, without an optimizer."""

import keras
import numpy as np
from keras import ops


def gradients(model, x, upstream):
    """Returns the gradients of sum(upstream * model(x)) by the paths of the trainable variables.

    Args:
        model: A built model with one output.
        x: Its input.
        upstream: The gradient of its output: a number or an array.
    """
    variables = model.trainable_variables
    upstream = ops.convert_to_tensor(upstream, "float32")
    match keras.backend.backend():
        case "jax":
            found = _jax(model, x, upstream)
        case "tensorflow":
            import tensorflow as tf

            with tf.GradientTape() as tape:
                total = ops.sum(model(x, training=True) * upstream)
            found = tape.gradient(total, [v.value for v in variables])
        case "torch":
            for variable in variables:
                variable.value.grad = None
            ops.sum(model(x, training=True) * upstream).backward()
            found = [v.value.grad for v in variables]
    return {
        v.path: np.array(ops.convert_to_numpy(g)) for v, g in zip(variables, found, strict=True)
    }


def _jax(model, x, upstream):
    import jax

    others = [v.value for v in model.non_trainable_variables]

    def total(values):
        outputs, _ = model.stateless_call(values, others, x, training=True)
        return ops.sum(outputs * upstream)

    return jax.jit(jax.grad(total))([v.value for v in model.trainable_variables])
