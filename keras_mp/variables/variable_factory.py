"""`VariableFactory`: creates the variables for the parts of a LossScaleOptimizer."""

from typing import Any

import keras

from keras_mp.array_types import Optimizer, Variable
from keras_mp.variables.extra_state import ExtraState

# Attributes without a leading underscore: two are those of tf.keras' optimizer.
_PUBLIC = ("step_counter", "dynamic_scale", "hysteresis_left", "skipped_in_round")


class VariableFactory:
    """Adds variables to an optimizer: to its list, its attributes and its extra state.

    Parts get it while they create their variables. They do not keep it, because it holds the
    optimizer.
    """

    def __init__(self, optimizer: Optimizer, extra_state: ExtraState) -> None:
        self._optimizer = optimizer
        self._extra_state = extra_state

    def add(
        self, name: str, initial: float = 0, dtype: str = "int", shape: tuple[int, ...] = ()
    ) -> Variable:
        """Returns a new variable with the value `initial`."""

        # keras.initializers.Constant multiplies, which JAX would compile before training starts.
        def values(shape: tuple[int, ...], dtype: str) -> Any:
            return keras.ops.full(shape, initial, dtype)

        variable = self._optimizer.add_variable(
            shape=shape,
            dtype=dtype,
            initializer=values,
            aggregation="only_first_replica",
            name=name,
        )
        # The attribute's name is the variable's key in the object graphs of TensorFlow.
        setattr(self._optimizer, name if name in _PUBLIC else f"_{name}", variable)
        return variable

    def add_extra(
        self, name: str, initial: float = 0, dtype: str = "int", shape: tuple[int, ...] = ()
    ) -> Variable:
        """Returns a new variable of the extra state, which Keras' own class does not have."""
        variable = self.add(name, initial, dtype, shape)
        self.save_extra(**{name: variable})
        return variable

    def save_extra(self, **variables: Variable) -> None:
        """Saves these variables in files; they are restored together or not at all."""
        self._extra_state.add(**variables)
