"""The part of the wrapper that saves and restores its state, and the layouts that it reads."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_mp.settings import Settings


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

    @property
    def variables(self) -> list[Any]:
        """Own variables (iteration, learning_rate, step_counter, dynamic_scale), then the inner's.

        The first two are unused; they keep the order of Keras' own class.
        """
        return [*self._variables, *self.inner_optimizer.variables]

    def get_weights(self) -> list[np.ndarray[Any, Any]]:
        """Returns the values of `variables` as NumPy arrays."""
        return [ops.convert_to_numpy(variable) for variable in self.variables]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Sets all `variables`, in their order.

        Args:
            weights: One array a variable, of its shape, as from `get_weights`.

        Raises:
            ValueError: The number of arrays or a shape differs; nothing is set then.
        """
        values = [ops.convert_to_numpy(weight) for weight in weights]
        check(self.name, self.variables, values)
        for variable, value in zip(self.variables, values, strict=True):
            variable.assign(value)

    def save_own_variables(self, store: Any) -> None:
        """Writes the state, in the layout of Keras' own LossScaleOptimizer."""
        for i, variable in enumerate(self.variables):
            store[str(i)] = ops.convert_to_numpy(variable)

    def load_own_variables(self, store: Any) -> None:
        """Restores everything that `store` holds, or raises.

        Reads what this class or Keras' own LossScaleOptimizer wrote, and what the inner optimizer
        wrote by itself (the loss scale then stays as it is). Before `build` the values are kept,
        and restored by it. With a fixed scale the constructor owns the scale: another one in the
        store is not taken, with a warning.

        Raises:
            ValueError: The number or the shapes of the arrays fit none of these.
        """
        saved = {str(key): np.asarray(store[key]) for key in store.keys()}  # noqa: SIM118 - h5 entries
        if not self.built and len(saved) > len(self.variables):
            self._pending = saved
            return
        inner = self.inner_optimizer.variables
        targets = match(self.name, self._variables, inner, inner[: self._unbuilt_inner], saved)
        scale = self.dynamic_scale
        for variable, value in targets:
            if variable is not scale:
                variable.assign(value)
            elif (usable := self._usable_scale(float(value))) is not None:
                scale.assign(usable)

    def _usable_scale(self, saved: float) -> float | None:
        initial = self._settings.initial_scale
        message = None
        if not self._settings.dynamic:
            if saved != initial:
                message = (
                    f"The loss scale is fixed at {initial}; the saved one, {saved}, is not taken."
                )
        elif np.isfinite(saved) and saved > 0:
            return saved
        else:
            message = (
                f"The saved loss scale is {saved}, from which no step recovers (Keras' own class "
                f"gets there); training goes on with the initial one, {initial}."
            )
        if message:
            warnings.warn(message, stacklevel=4)
        return None


def match(
    name: str,
    own: Sequence[Any],
    inner: Sequence[Any],
    inner_unbuilt: Sequence[Any],
    saved: Mapping[str, Any],
) -> list[tuple[Any, Any]]:
    """Returns (variable, array) pairs for the layout that `saved` has.

    Args:
        name: The optimizer's name, for the message.
        own: iteration, learning_rate, step_counter, dynamic_scale.
        inner: The inner optimizer's variables.
        inner_unbuilt: Those of them that it had before `build`.
        saved: Arrays by position, "0", "1", ...

    Raises:
        ValueError: The arrays fit no layout.
    """
    layouts = [
        [*own, *inner],  # this class, Keras' LossScaleOptimizer
        list(inner),  # the inner optimizer by itself
        [*own, *inner_unbuilt],  # this class before its first step
        [*own[:2], *inner_unbuilt],  # Keras' class before its first step
        list(inner_unbuilt),
    ]
    for variables in layouts:
        if set(saved) == {str(i) for i in range(len(variables))} and all(
            _shape(saved[str(i)]) == _shape(variable) for i, variable in enumerate(variables)
        ):
            return [(variable, saved[str(i)]) for i, variable in enumerate(variables)]
    check(name, layouts[0], [saved[key] for key in sorted(saved, key=_position)])
    raise ValueError(f"The saved state of optimizer '{name}' has keys {sorted(saved)[:5]}...")


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


def _position(key: str) -> tuple[int, str]:
    return (int(key), "") if key.isdigit() else (1 << 30, key)
