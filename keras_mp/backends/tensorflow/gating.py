"""TensorFlow under XLA: variables that keep their values on a skipped step.

XLA copies the state for a `tf.cond` around a step, but fuses a choice into the assignment that it
guards; graph executors do the opposite. So the way depends on who compiles the function. Both give
the same bits.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_mp.array_types import Gradients, Optimizer, Tensor, Variable
from keras_mp.backends.common.optimizers import averages, updated_variables, with_method


def under_xla() -> bool:
    """Returns whether a `tf.function(jit_compile=True)` is being traced.

    A function that was traced by itself before, and is called from such a one, cannot know: it
    works, only slower.
    """
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                return True
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)
    return False


def variables_to_gate(
    optimizer: Optimizer, gradients: Gradients, variables: Sequence[Variable]
) -> list[Any]:
    """Returns the `tf.Variable`s that a step writes, if it can be gated and XLA compiles it.

    Empty otherwise: if `tf.distribute` wraps the variables, if rows are written, and if averages of
    weights are kept, which XLA rounds differently across a choice.
    """
    if not under_xla() or tf.distribute.has_strategy() or averages(optimizer):
        return []
    if any(isinstance(gradient, tf.IndexedSlices) for gradient in gradients):
        return []
    state = map(_tf_variable, updated_variables(optimizer, variables))
    return list({id(v): v for v in state}.values())


def _tf_variable(variable: Variable) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable


@contextlib.contextmanager
def gated(variables: Sequence[Variable], finite: Tensor) -> Iterator[None]:
    """A scope in which assignments to `variables` keep the old value unless `finite` is true."""
    with contextlib.ExitStack() as scopes:
        for variable in variables:
            for name, method in _methods(variable, finite).items():
                scopes.enter_context(with_method(variable, name, method))
        yield


def _methods(variable: Variable, finite: Tensor) -> dict[str, Any]:
    write = variable.assign

    def assign(value: Tensor, *args: Any, **kwargs: Any) -> Any:
        value = tf.convert_to_tensor(value, variable.dtype)
        return write(tf.where(finite, value, variable), *args, **kwargs)

    def assign_add(delta: Any, *args: Any, **kwargs: Any) -> Any:
        return assign(variable + tf.convert_to_tensor(delta, variable.dtype), *args, **kwargs)

    def assign_sub(delta: Any, *args: Any, **kwargs: Any) -> Any:
        return assign(variable - tf.convert_to_tensor(delta, variable.dtype), *args, **kwargs)

    return {"assign": assign, "assign_add": assign_add, "assign_sub": assign_sub}
