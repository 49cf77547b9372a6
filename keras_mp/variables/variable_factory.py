"""`VariableFactory` creates the variables for the parts of a LossScaleOptimizer.

`ExtraState` is those that only our wrapper has. `save_own_variables` writes only the arrays of
Keras' LossScaleOptimizer, because Keras drops all state when their number differs. So these are
stored beside them, where Keras does not look.
"""

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_mp.array_types import Optimizer, Store, Variable
from keras_mp.backends.protocol import Backend

_NOTE = "note_"


class ExtraState(keras.losses.Loss):
    """Variables by name, in a child of the optimizer that Keras' saving visits.

    A loss, because that is the smallest public class that saving visits.

    Attributes:
        notes: Arrays by name that files keep, too, and that no step looks at.
    """

    def __init__(self) -> None:
        super().__init__(name="extra_state")
        self.notes: dict[str, Any] = {}
        self._variables: dict[str, Any] = {}
        self._pending: dict[str, Any] = {}
        self._groups: list[frozenset[str]] = []
        self._ignores_next = False
        self._restored: Callable[[], None] | None = None

    def add(self, **variables: Variable) -> None:
        """Adds variables by name. They are restored together, or not at all if one does not fit.

        Values that were restored before their variables existed are assigned now.
        """
        self._variables |= variables
        self._groups.append(frozenset(variables))
        self._restore({k: self._pending.pop(k) for k in variables if k in self._pending})

    def call_when_restored(self, function: Callable[[], None]) -> None:
        """Calls `function` whenever values were restored."""
        self._restored = function

    def ignore_next(self) -> None:
        """Ignores the next load: the rest of that state was rejected."""
        self._ignores_next = True

    def forget_waiting(self) -> None:
        """Drops values that wait for a variable: after a step they are out of date."""
        if self._pending:
            self._pending.clear()

    def save_own_variables(self, store: Store) -> None:
        """Writes each variable under its name, and values that still wait for one."""
        for name, value in self._pending.items():
            store[name] = value
        for name, value in self.notes.items():
            store[_NOTE + name] = value
        for name, variable in self._variables.items():
            store[name] = keras.ops.convert_to_numpy(variable)

    def load_own_variables(self, store: Store) -> None:
        """Restores what `store` holds; a variable that it lacks is unchanged.

        Values wait for variables that do not exist yet: some are created by `build`.

        Values that do not fit their variable (another number of trainable variables) are dropped
        with a warning: they are only statistics.
        """
        ignored, self._ignores_next = self._ignores_next, False
        if ignored:
            return
        saved = {str(name): np.asarray(store[name]) for name in store.keys()}  # noqa: SIM118 - h5 entries
        noted = [name for name in saved if name.startswith(_NOTE)]
        self.notes |= {name.removeprefix(_NOTE): saved.pop(name) for name in noted}
        self._pending = {k: v for k, v in saved.items() if k not in self._variables}
        self._restore({k: v for k, v in saved.items() if k in self._variables})

    def _restore(self, saved: dict[str, Any]) -> None:
        others = {name: found for name in saved if (found := self._misfit(name, saved[name]))}
        for group in self._groups:
            if group & set(others):
                others |= {name: name for name in saved if name in group and name not in others}
        for name in saved:
            if name not in others:
                self._variables[name].assign(saved[name])
        if others:
            warnings.warn(
                "Extra state of the optimizer does not fit, and is unchanged: "
                f"{', '.join(others.values())}.",
                stacklevel=3,
            )
        if saved and self._restored is not None:
            self._restored()

    def _misfit(self, name: str, value: Any) -> str | None:
        """Returns how `value` differs from its variable; None if it fits."""
        variable = self._variables[name]
        wanted = np.dtype(keras.backend.standardize_dtype(variable.dtype))
        if value.shape == tuple(variable.shape) and value.dtype.kind == wanted.kind:
            return None
        return (
            f"{name} ({value.dtype} of shape {value.shape}, not {wanted} of shape "
            f"{tuple(variable.shape)})"
        )


# Attributes without a leading underscore: two are those of tf.keras' optimizer.
_PUBLIC = ("step_counter", "dynamic_scale", "hysteresis_left", "skipped_in_round")


class VariableFactory:
    """Adds variables to an optimizer: to its list, its attributes and its extra state.

    Parts get it while they create their variables. They do not keep it, because it holds the
    optimizer.

    Attributes:
        backend: Keras' backend, which reads the variables.
    """

    def __init__(self, optimizer: Optimizer, extra_state: ExtraState, backend: Backend) -> None:
        self._optimizer = optimizer
        self._extra_state = extra_state
        self.backend = backend

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

    def add_extra(self, name: str, initial: float = 0) -> Variable:
        """Returns a new scalar of the extra state, which Keras' own class does not have."""
        variable = self.add(name, initial)
        self.save_extra(**{name: variable})
        return variable

    def save_extra(self, **variables: Variable) -> None:
        """Saves these variables in files; they are restored together or not at all."""
        self._extra_state.add(**variables)
