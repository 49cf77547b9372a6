"""Gradients by tensors inside a model: adds zeros to a tensor, and differentiates by these.

The zeros have the dtype of the tensor, so the gradient is that of the framework's backward pass,
infs included.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import keras
from keras import ops

from keras_mp.diagnosis.dry_run.calls import Call, Key
from keras_mp.diagnosis.dry_run.observers import Observer, unobserved
from keras_mp.diagnosis.dry_run.tensors import floats, map_floats
from keras_mp.graph_rewrite.tensors import dtype_of, shape_of


class TensorKey(NamedTuple):
    """Identifies a float tensor in every run of a step.

    Attributes:
        call: The key of a call.
        side: Whether the tensor is an input or an output of the call.
        number: Its index among the float tensors on that side, from 0.
    """

    call: Key
    side: Literal["input", "output"]
    number: int


def zeros_like(x: Any) -> Any:
    """Returns a variable of zeros with the shape and dtype of a tensor, which no layer casts."""
    return keras.Variable(
        ops.zeros(x.shape), dtype=dtype_of(x), trainable=True, autocast=False, name="zeros"
    )


class Perturber(Observer):
    """Adds zeros to chosen tensors of a step.

    Attributes:
        zeros: Variables or tensors, by the tensor that they are added to.
    """

    def __init__(self, zeros: Mapping[TensorKey, Any]) -> None:
        self.zeros = zeros

    def op(self, call: Call) -> Any:
        """Runs an op on its arguments plus zeros, and returns its result plus zeros."""
        return self._run(call)

    def layer(self, call: Call) -> Any:
        """Runs a layer as `op` runs an op."""
        return self._run(call)

    def _run(self, call: Call) -> Any:
        with unobserved():
            given = self._plus(call.key, "input", (call.args, call.kwargs))
        result = call.with_arguments(*given).run()
        with unobserved():
            return self._plus(call.key, "output", result)

    def _plus(self, key: Key, side: Literal["input", "output"], value: Any) -> Any:
        """Returns nested `value` with the zeros for it added, if there are any."""
        if not any(TensorKey(key, side, i) in self.zeros for i in range(len(floats(value)))):
            return value
        count = -1

        def plus(x: Any) -> Any:
            nonlocal count
            count += 1
            zeros = self.zeros.get(TensorKey(key, side, count))
            if zeros is None or shape_of(x) != shape_of(zeros) or dtype_of(x) != dtype_of(zeros):
                return x
            return ops.add(x, zeros.value if isinstance(zeros, keras.Variable) else zeros)

        return map_floats(plus, value)
