"""TensorFlow's graphs: gradients divided a few at a time, right before they are used.

A graph runs whatever is ready. All gradients are, once it is known that they are finite, so all of
them would be divided before the first is used: fresh memory as large as the model, read again when
it has long left the processor's cache. Here a gradient waits until the updates of all but the last
few variables are done.
"""

import collections
import contextlib
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_mp.array_types import Gradient, Optimizer, Tensor, Variable
from keras_mp.backends.common.optimizers import with_method

# So many updates may be under way, so that no core waits for the last one.
_OPEN = max(4, 2 * (os.cpu_count() or 1))


class Window:
    """The last few updates, of which the first is to be done before another begins.

    Attributes:
        updates: Of each of the last few variables the operations that write to it.
    """

    def __init__(self) -> None:
        self.updates: collections.deque[list[Any]] = collections.deque(maxlen=_OPEN)

    def opened(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a scope whose operations wait. Eagerly nothing is there to wait for."""
        is_full = len(self.updates) == _OPEN
        scope: contextlib.AbstractContextManager[Any] = tf.control_dependencies(
            self.updates[0] if is_full else []
        )
        return scope


def apply(
    optimizer: Optimizer,
    gradients: list[Gradient],
    variables: list[Variable],
    divided: Callable[[Gradient], Any],
) -> None:
    """Applies gradients that are divided on the way.

    Args:
        optimizer: For which `hands_gradients_on` is true.
        gradients: Of the variables.
        variables: Known to `optimizer`.
        divided: Returns a gradient divided by the loss scale.
    """
    rule, window = optimizer.update_step, Window()

    def update_step(gradient: Gradient, variable: Any, rate: Tensor) -> None:
        with window.opened():
            gradient = divided(gradient)
        rule(gradient, variable, rate)
        window.updates.append(writes(variable))

    with with_method(optimizer, "update_step", update_step):
        optimizer.apply(gradients, variables)


def writes(variable: Any) -> list[Any]:
    """Returns the operations of the graph being built that write to a `tf.Variable`."""
    if tf.executing_eagerly():
        return []
    handle = tf.compat.v1.get_default_graph().capture(variable.handle)
    return [each for each in handle.consumers() if each.type != "ReadVariableOp"]
