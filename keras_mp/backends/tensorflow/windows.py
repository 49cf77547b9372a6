"""TensorFlow's graphs: divides gradients a few at a time, right before they are used.

A graph runs every op that is ready. Once all gradients are known to be finite, it would divide all
of them before the first is used: newly allocated memory as large as the model, read again when it
has left the processor's cache. Here a gradient waits until the updates of all but the last few
variables are done.
"""

import collections
import contextlib
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_mp.array_types import Gradient, Optimizer, Tensor, Variable
from keras_mp.backends.common.optimizers import with_method

# So many updates may run at once, so that no core waits for the last one.
_OPEN = max(4, 2 * (os.cpu_count() or 1))


class Window:
    """The last few updates; the first of them must be done before another begins.

    Attributes:
        updates: The operations that write to each of the last few variables.
    """

    def __init__(self) -> None:
        self.updates: collections.deque[list[Any]] = collections.deque(maxlen=_OPEN)

    def opened(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a scope whose operations wait. Eagerly there is nothing to wait for."""
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
    """Applies gradients, and divides them right before.

    Args:
        optimizer: One that forwards gradients unchanged to the rule.
        gradients: In the order of `variables`.
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
