"""The part of the wrapper that saves and restores its state, and the layouts that it reads."""

import contextlib
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_mp.settings import FLOAT32_TINY, Settings, float32

_OWN = 4  # iteration, learning_rate, step_counter, dynamic_scale


class KeepsState:
    """`variables` and their way in and out of files."""

    name: str
    built: bool
    inner_optimizer: Any
    dynamic_scale: Any
    _settings: Settings
    _variables: list[Any]
    _unbuilt_inner: int
    _pending: dict[str, Any] | None
    _restored: Callable[[Any], None] | None

    @property
    def variables(self) -> list[Any]:
        """Own variables (iteration, learning_rate, step_counter, dynamic_scale), the inner's, more.

        The first two are unused; they keep the order of Keras' own class. Last come those that it
        does not have (`skipped_steps`, `hysteresis_left`, ...).
        """
        return [*self._shared_variables(), *self._variables[_OWN:]]

    def _shared_variables(self) -> list[Any]:
        """Those that Keras' own class has, too."""
        return [*self._variables[:_OWN], *self.inner_optimizer.variables]

    def get_weights(self) -> list[np.ndarray[Any, Any]]:
        """Returns the values of `variables` as NumPy arrays, of those that Keras' own class has."""
        return [ops.convert_to_numpy(variable) for variable in self._shared_variables()]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Sets `variables`, in their order.

        Args:
            weights: One array a variable, of its shape: as from `get_weights` of this class or of
                Keras' own, or of all `variables`.

        Raises:
            ValueError: The number of arrays or a shape differs; nothing is set then.
        """
        values = [ops.convert_to_numpy(weight) for weight in weights]
        shared = self._shared_variables()
        variables = self.variables if len(values) == len(self.variables) else shared
        check(self.name, variables, values)
        self._restore(list(zip(variables, values, strict=True)))
        self._pending = None

    def save_own_variables(self, store: Any) -> None:
        """Writes the state, in the layout of Keras' own LossScaleOptimizer."""
        values = self._pending
        if values is None:
            values = {str(i): array for i, array in enumerate(self.get_weights())}
        for key, value in values.items():
            store[key] = value

    def load_own_variables(self, store: Any) -> None:
        """Restores everything that `store` holds, or raises.

        Reads what this class or Keras' own LossScaleOptimizer wrote, and what the inner optimizer
        wrote by itself (the loss scale then stays as it is). Before `build` the values are kept,
        and restored by it. With a fixed scale the constructor owns the scale: another one in the
        store is not taken, with a warning.

        Raises:
            ValueError: The number, shapes or kinds of the arrays fit none of these.
        """
        saved = {str(key): np.asarray(store[key]) for key in store.keys()}  # noqa: SIM118 - h5 entries
        if not saved:
            warnings.warn(
                f"There is no state of optimizer '{self.name}' to load; it stays as it is.",
                stacklevel=2,
            )
            return
        own, inner = self._variables[:_OWN], self.inner_optimizer.variables
        if self.built:
            unbuilt = inner[: self._unbuilt_inner]
            self._restore(match(self.name, layouts(own, inner) + layouts(own, unbuilt), saved))
            return
        self._pending = None
        try:
            self._restore(match(self.name, layouts(own, inner), saved))
        except ValueError:
            self._pending = saved
            first = {key: saved[key] for key in map(str, range(len(own))) if key in saved}
            if self._settings.dynamic:
                with contextlib.suppress(ValueError):  # the state of the plain optimizer
                    self._restore(match(self.name, [own], first))

    def _restore(self, targets: list[tuple[Any, Any]]) -> None:
        scale = self.dynamic_scale
        for variable, value in targets:
            if variable is not scale:
                variable.assign(value)
            elif (usable := self._usable_scale(float(value))) is not None:
                scale.assign(usable)
        if self._restored is not None:
            self._restored(self)

    def _usable_scale(self, saved: float) -> float | None:
        initial = self._settings.initial_scale
        message = None
        if not self._settings.dynamic:
            if saved != float32(initial):
                message = (
                    f"The loss scale is fixed at {initial}; the saved one, {saved}, is not taken."
                )
        elif FLOAT32_TINY <= saved < math.inf:
            return saved
        else:
            message = (
                f"The saved loss scale is {saved}, from which no step recovers (Keras' own class "
                f"gets there); training goes on with the initial one, {initial}."
            )
        if message:
            warnings.warn(message, stacklevel=4)
        return None


def layouts(own: Sequence[Any], inner: Sequence[Any]) -> list[list[Any]]:
    """Returns the orders in which state of these variables is found in files.

    Args:
        own: iteration, learning_rate, step_counter, dynamic_scale.
        inner: The inner optimizer's variables.
    """
    return [
        [*own, *inner],  # this class, Keras' LossScaleOptimizer
        list(inner),  # the inner optimizer by itself
        [*own[:2], *inner],  # Keras' LossScaleOptimizer before its first step
    ]


def match(
    name: str, orders: Sequence[Sequence[Any]], saved: Mapping[str, Any]
) -> list[tuple[Any, Any]]:
    """Returns (variable, array) pairs for the first of `orders` that `saved` has.

    Args:
        name: The optimizer's name, for the message.
        orders: Of the variables, as `layouts` gives them.
        saved: Arrays by position, "0", "1", ...

    Raises:
        ValueError: The arrays fit none. The message compares them with the first.
    """
    for variables in orders:
        if set(saved) == {str(i) for i in range(len(variables))} and all(
            _shape(saved[str(i)]) == _shape(variable) and _kind(saved[str(i)]) == _kind(variable)
            for i, variable in enumerate(variables)
        ):
            return [(variable, saved[str(i)]) for i, variable in enumerate(variables)]
    check(name, orders[0], [saved[key] for key in sorted(saved, key=_position)])
    raise ValueError(
        f"The saved state of optimizer '{name}' is of another kind of optimizer: its arrays are "
        f"{', '.join(f'{key} ({saved[key].dtype})' for key in sorted(saved, key=_position)[:8])}."
    )


def check(name: str, variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Raises ValueError unless there is one array of the right shape for each variable."""
    if len(values) != len(variables):
        raise ValueError(
            f"Optimizer '{name}' has {len(variables)} variables, but {len(values)} arrays were "
            "given. Nothing was loaded. Another optimizer class, or another model?"
        )
    for i, (variable, value) in enumerate(zip(variables, values, strict=True)):
        if _shape(variable) != _shape(value):
            raise ValueError(
                f"Variable {i} of optimizer '{name}', {variable.path}, has shape "
                f"{_shape(variable)}, but the array for it has shape {_shape(value)}. Nothing was "
                "loaded."
            )


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape)


def _kind(value: Any) -> bool:
    """Whether `value` counts something: the kind tells a step counter from a slot."""
    return "int" in str(value.dtype)


def _position(key: str) -> tuple[int, str]:
    return (int(key), "") if key.isdigit() else (1 << 30, key)
