"""TensorFlow under XLA: variables that keep their values through a step that is not to be taken.

XLA makes copies of the state for a `tf.cond` around a step, but fuses a choice into the assignment
that it guards; executors of graphs do the opposite. So which is taken depends on who compiles the
function. Both give the same bits.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_mp.array_types import Gradients, Optimizer, Tensor, Variable
from keras_mp.backends.common.optimizers import averages, updated_variables


def under_xla() -> bool:
    """Returns whether a `tf.function(jit_compile=True)` is being traced.

    A function that was traced before for itself, and is called from such a one, does not know: it
    runs as well, only slower.
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

    Empty otherwise: where `tf.distribute` wraps the variables, where rows are written, and where
    averages of weights are kept, which XLA rounds otherwise across a choice.
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
    """Has every assignment to `variables` keep the old value unless `finite` is true."""
    for variable in variables:
        for name, method in _methods(variable, finite).items():
            object.__setattr__(variable, name, method)
    try:
        yield
    finally:
        for variable in variables:
            for name in ("assign", "assign_add", "assign_sub"):
                object.__delattr__(variable, name)


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
