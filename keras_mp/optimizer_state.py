"""The part of the wrapper that saves and restores its state."""

import contextlib
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_mp.backends import keras_hooks
from keras_mp.extra_state import ExtraState
from keras_mp.settings import FLOAT32_TINY, Settings, float32
from keras_mp.state_layout import check, layouts, match

_OWN = 4  # iteration, learning_rate, step_counter, dynamic_scale
NO_STATE = "the file holds none"
NO_SCALE = "the file holds no loss scale: the optimizer that wrote it scaled no loss"
NOT_BUILT = "the optimizer is not built yet, as before its first step"


class KeepsState:
    """`variables` and their way in and out of files."""

    name: str
    built: bool
    inner_optimizer: Any
    dynamic_scale: Any
    extra_state: ExtraState
    _settings: Settings
    _variables: list[Any]
    _unbuilt_inner: int
    _pending: dict[str, Any] | None
    _is_being_loaded: bool
    _misfits: list[str] | None
    _group: Any

    def _prepare_state(self) -> None:
        self._pending = None
        self._is_being_loaded = keras_hooks.is_loading()
        object.__setattr__(self, "_misfits", None)

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
        try:
            check(variables, values)
        except ValueError as error:
            raise ValueError(
                f"The weights do not fit optimizer '{self.name}', and nothing was set: {error}."
            ) from None
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
        """Restores what `store` holds, or warns and changes nothing.

        Takes what this class or Keras' own LossScaleOptimizer wrote, and what the inner optimizer
        wrote by itself (the loss scale then stays as it is). As a plain Keras optimizer it takes
        nothing before `build`, and nothing of another optimizer or of other variables: a warning
        says so. With a fixed scale the constructor owns the scale: another one in the store is not
        taken, with a warning.

        An optimizer that Keras makes from a config while it loads a whole model, or a copy, belongs
        to the state that follows: this may wait for `build`.
        """
        saved = {str(key): np.asarray(store[key]) for key in store.keys()}  # noqa: SIM118 - h5 entries
        whole, self._is_being_loaded = self._is_being_loaded, False
        if not saved:
            self._refuse(NO_STATE)
            return
        own, inner = self._variables[:_OWN], self.inner_optimizer.variables
        built = self.built or self.inner_optimizer.built
        orders = layouts(own, inner) if built else []
        if whole or not built:
            orders += layouts(own, inner[: self._unbuilt_inner])
        try:
            targets = match(orders, saved)
        except ValueError as error:
            if built or not whole:
                self._refuse(str(error) if built else NOT_BUILT)
            else:
                self._wait_for_build(saved)
            return
        if built or whole:
            self._pending = None
            self._restore(targets)
        elif any(not np.array_equal(ops.convert_to_numpy(v), value) for v, value in targets):
            self._refuse(NOT_BUILT)

    def _wait_for_build(self, saved: dict[str, Any]) -> None:
        self._pending = saved
        own = self._variables[:_OWN]
        if self._settings.dynamic:
            first = {key: saved[key] for key in map(str, range(len(own))) if key in saved}
            with contextlib.suppress(ValueError):  # the state of the plain optimizer
                self._restore(match([own], first))

    def _take_waiting(self) -> None:
        """Restores, at the end of `build`, what a load left waiting for it."""
        saved, self._pending = self._pending, None
        if saved is None:
            return
        own, inner = self._variables[:_OWN], self.inner_optimizer.variables
        try:
            targets = match(layouts(own, inner) + layouts(own, inner[: self._unbuilt_inner]), saved)
        except ValueError as error:
            self._warn_not_loaded(str(error))
        else:
            self._restore(targets)

    def _refuse(self, why: str) -> None:
        """Takes nothing of a state, whose other parts follow, and says so once."""
        self.extra_state.ignore_next()
        if self._misfits is not None:
            self._misfits.append(f"the state of optimizer '{self.name}': {why}")
        else:
            self._warn_not_loaded(why)

    def _warn_not_loaded(self, why: str) -> None:
        warnings.warn(
            f"The saved state of optimizer '{self.name}' was not loaded: {why}. The optimizer "
            "stays as it is. To continue the training that wrote a weights file, call "
            "keras_mp.resume(model, path) in place of load_weights.",
            stacklevel=4,
        )

    @contextlib.contextmanager
    def _noting_misfits(self) -> Iterator[list[str]]:
        """A scope in which what of a state is not taken is noted in a list, not warned of."""
        found: list[str] = []
        object.__setattr__(self, "_misfits", found)  # past Keras' tracking of lists
        try:
            yield found
        finally:
            object.__setattr__(self, "_misfits", None)

    def _restore(self, targets: list[tuple[Any, Any]]) -> None:
        scale = self.dynamic_scale
        if self._misfits is not None and all(variable is not scale for variable, _ in targets):
            self._misfits.append(NO_SCALE)
        for variable, value in targets:
            if variable is not scale:
                variable.assign(value)
            elif (usable := self._usable_scale(float(value))) is not None:
                scale.assign(usable)
        if self._group is not None:
            self._group.follow(self)

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
        if message and self._misfits is not None:
            self._misfits.append(message)
        elif message:
            warnings.warn(message, stacklevel=4)
        return None
