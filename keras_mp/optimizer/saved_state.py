"""`SavedState`: writes and restores the wrapper's state; keeps loaded state until `build`.

Arrays are read one after another: a copy of all may not fit into memory beside the model.
"""

import contextlib
import math
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from keras import ops

from keras_mp.array_types import Optimizer, Store, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.optimizers import state_of
from keras_mp.float_formats import FLOAT32
from keras_mp.scaling.scaler import LossScaler
from keras_mp.settings import float32
from keras_mp.variables.state_layout import check, layouts, match
from keras_mp.variables.variable_factory import ExtraState

NO_STATE = "the file holds none"
NO_SCALE = "the file holds no loss scale: the optimizer that wrote it did not scale the loss"
NOT_BUILT = "the optimizer is not built yet, as before its first step"


@dataclass(frozen=True, slots=True)
class _Stored:
    """An array of a file: its form, and how to read it again."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[], np.ndarray[Any, Any]]


class SavedState:
    """Saves and restores an optimizer's variables; files hold those that Keras' own class has.

    Args:
        optimizer: Not kept; only its name is used, in messages.
        own: Its first four variables: iteration, learning_rate, step_counter, dynamic_scale.
        inner: The inner optimizer.
        scaler: The owner of the loss scale.
        extra: State that Keras' own class does not have.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        own: Sequence[Variable],
        inner: Optimizer,
        scaler: LossScaler,
        extra: ExtraState,
    ) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._own = list(own)
        self._inner = inner
        self._scaler = scaler
        self._extra = extra
        self._unbuilt_inner = 0 if inner.built else len(state_of(inner))
        self._is_being_loaded = keras_hooks.is_loading()
        self._waiting: dict[str, Any] | None = None
        self._misfits: list[str] | None = None

    @property
    def _name(self) -> str:
        optimizer = self._optimizer()
        return "" if optimizer is None else str(optimizer.name)

    @property
    def variables(self) -> list[Variable]:
        """The saved variables, in their order."""
        return [*self._own, *state_of(self._inner)]

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """Returns the values of `variables`."""
        return [ops.convert_to_numpy(variable) for variable in self.variables]

    def set(self, weights: Sequence[Any], everything: list[Variable]) -> None:
        """Sets `variables`, or `everything` if it has as many variables as there are arrays.

        Raises:
            ValueError: The number of arrays or a shape differs; then nothing is set.
        """
        values = [ops.convert_to_numpy(weight) for weight in weights]
        variables = everything if len(values) == len(everything) else self.variables
        try:
            check(variables, values)
        except ValueError as error:
            raise ValueError(
                f"The weights do not fit optimizer '{self._name}', and nothing was set: {error}."
            ) from None
        self._restore(list(zip(variables, values, strict=True)))
        self._waiting = None

    def save(self, store: Store) -> None:
        """Writes the state by position, in the layout of Keras' own class."""
        if self._waiting is not None:
            for key, value in self._waiting.items():
                store[key] = value
            return
        for i, variable in enumerate(self.variables):
            store[str(i)] = ops.convert_to_numpy(variable)

    def load(self, store: Store) -> None:
        """Restores what `store` holds, keeps it until `build`, or warns and changes nothing.

        Each array is read twice, to check it and to assign it, and none is kept.
        """
        saved = {str(key): _entry_of(store, key) for key in store.keys()}  # noqa: SIM118 - h5 entries
        whole, self._is_being_loaded = self._is_being_loaded, False
        if not saved:
            self._refuse(NO_STATE)
            return
        inner, built = state_of(self._inner), self._inner.built
        orders = layouts(self._own, inner) if built else []
        narrow = getattr(self._inner, "_narrow_weights", None)
        if built and narrow is not None:  # state of an optimizer for the same weights in float32
            orders += layouts(self._own, narrow.of_the_rule)
        if whole or not built:
            orders += layouts(self._own, inner[: self._unbuilt_inner])
        try:
            targets = match(orders, saved)
        except ValueError as error:
            if built or not whole:
                self._refuse(str(error) if built else NOT_BUILT)
            else:
                self._wait_for_build({key: each.read() for key, each in saved.items()})
            return
        if built or whole:
            self._waiting = None
            self._restore(targets)
        elif any(not np.array_equal(ops.convert_to_numpy(v), each.read()) for v, each in targets):
            self._refuse(NOT_BUILT)

    def take_waiting(self) -> None:
        """Restores, at the end of `build`, the state that a load kept for it."""
        saved, self._waiting = self._waiting, None
        if saved is None:
            return
        inner = state_of(self._inner)
        orders = layouts(self._own, inner) + layouts(self._own, inner[: self._unbuilt_inner])
        try:
            targets = match(orders, saved)
        except ValueError as error:
            self._warn_not_loaded(str(error), stacklevel=4)
        else:
            self._restore(targets)

    @contextlib.contextmanager
    def noting_misfits(self) -> Iterator[list[str]]:
        """A scope that lists rejected parts of a state, instead of warnings."""
        misfits: list[str] = []
        with keras_hooks.replaced([self], "_misfits", misfits):
            yield misfits

    def _wait_for_build(self, saved: dict[str, Any]) -> None:
        self._waiting = saved
        if self._scaler.settings.dynamic:
            first = {key: saved[key] for key in map(str, range(len(self._own))) if key in saved}
            with contextlib.suppress(ValueError):  # the state of the plain optimizer
                self._restore(match([self._own], first))

    def _refuse(self, why: str) -> None:
        """Rejects a state, whose other parts follow, and warns once."""
        self._extra.ignore_next()
        if self._misfits is not None:
            self._misfits.append(f"the state of optimizer '{self._name}': {why}")
        else:
            self._warn_not_loaded(why)

    def _warn_not_loaded(self, why: str, stacklevel: int = 5) -> None:
        warnings.warn(
            f"The saved state of optimizer '{self._name}' was not loaded: {why}. The optimizer is "
            "unchanged. To resume the training that wrote a weights file, call "
            "keras_mp.resume(model, path) instead of load_weights.",
            stacklevel=stacklevel,
        )

    def _restore(self, targets: list[tuple[Variable, Any]]) -> None:
        scale = self._scaler.scale
        if self._misfits is not None and all(variable is not scale for variable, _ in targets):
            self._misfits.append(NO_SCALE)
        for variable, value in targets:
            array = value.read() if isinstance(value, _Stored) else value
            if variable is not scale:
                variable.assign(array)
            elif self._is_usable(float(array)):
                scale.assign(array)
        self._scaler.restored()

    def _is_usable(self, saved: float) -> bool:
        """Returns whether the loss scale of a file is usable; warns if another one stays."""
        settings = self._scaler.settings
        message = None
        if not settings.dynamic:
            if saved != float32(settings.initial_scale):
                message = (
                    f"The loss scale is fixed at {settings.initial_scale}; the saved one, {saved}, "
                    "is ignored."
                )
        elif FLOAT32.smallest_normal <= saved < math.inf:
            return True
        else:
            message = (
                f"The saved loss scale is {saved}, from which no step recovers (Keras' own class "
                f"can reach it); training continues with the initial one, {settings.initial_scale}."
            )
        if message and self._misfits is not None:
            self._misfits.append(message)
        elif message:
            warnings.warn(message, stacklevel=5)
        return False


def _entry_of(store: Store, key: str) -> _Stored:
    def read() -> np.ndarray[Any, Any]:
        return np.asarray(store[key])

    array = read()
    return _Stored(array.shape, array.dtype, read)
