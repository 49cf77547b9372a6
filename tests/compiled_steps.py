"""The step of an optimizer, compiled by the backend."""

import keras
from keras import ops


def settled(optimizer):
    """Returns a LossScaleOptimizer after one step.

    It remembers which of its methods were called, and torch.compile guards on that: without this
    step, the second compiled one would recompile.
    """
    optimizer.scale_loss(1.0)
    optimizer._scaler.protocol.taken_as_scaled()
    return optimizer


def compiled_step(optimizer, variables, jit_compile=True, fullgraph=False):
    """Returns a function that takes a compiled step with a list of gradients.

    Args:
        optimizer: A built optimizer; on JAX the step holds its state, as in `fit`.
        variables: A list of Keras variables.
        jit_compile: On TensorFlow: whether to use XLA.
        fullgraph: On PyTorch: whether a graph break is an error.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(lambda g: optimizer.apply(g, variables), jit_compile=jit_compile)
    if keras.backend.backend() == "torch":
        import torch

        torch._dynamo.reset()
        compiled = torch.compile(
            lambda g: optimizer.apply(g, variables), fullgraph=fullgraph, backend="aot_eager"
        )
        return lambda gradients: compiled([ops.convert_to_tensor(g) for g in gradients])
    import jax

    compiled = jax.jit(optimizer.stateless_apply, donate_argnums=(0, 2))

    def step(gradients):
        given = [v.value for v in optimizer.variables], gradients, [v.value for v in variables]
        trained, state = compiled(*given)
        for variable, value in zip(
            [*variables, *optimizer.variables], [*trained, *state], strict=True
        ):
            variable.assign(value)

    return step
