"""State of the wrapper that Keras' own class does not have, in a place of its own in files.

`save_own_variables` keeps to the arrays that Keras' LossScaleOptimizer knows, as that one drops all
state when their number differs. What is more lies beside them, where it looks at nothing.
"""

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_mp.array_types import Store, Variable

_NOTE = "note_"


class ExtraState(keras.losses.Loss):
    """Variables by name, as a child of the optimizer that Keras' saving finds.

    A loss, because that is the public class with the least to it that saving looks into.

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
        """Adds variables by name, which are restored together or, where one does not fit, not.

        They take the values that were restored before there was a place for them.
        """
        self._variables |= variables
        self._groups.append(frozenset(variables))
        self._restore({k: self._pending.pop(k) for k in variables if k in self._pending})

    def call_when_restored(self, function: Callable[[], None]) -> None:
        """Has `function` called whenever values were restored."""
        self._restored = function

    def ignore_next(self) -> None:
        """Has the next load take nothing: it is of a state whose other parts were not taken."""
        self._ignores_next = True

    def forget_waiting(self) -> None:
        """Drops what still waits for a variable: after a step it is of the past."""
        if self._pending:
            self._pending.clear()

    def save_own_variables(self, store: Store) -> None:
        """Writes each variable under its name, and what still waits for its variable."""
        for name, value in self._pending.items():
            store[name] = value
        for name, value in self.notes.items():
            store[_NOTE + name] = value
        for name, variable in self._variables.items():
            store[name] = keras.ops.convert_to_numpy(variable)

    def load_own_variables(self, store: Store) -> None:
        """Restores what `store` holds; a variable that it lacks stays.

        What has no variable yet waits for it: some come with `build`.

        What does not fit its variable (another number of trainable variables) is not taken, with a
        warning: it only tells of the past.
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
                "Extra state of the optimizer does not fit, and stays as it is: "
                f"{', '.join(others.values())}.",
                stacklevel=3,
            )
        if saved and self._restored is not None:
            self._restored()

    def _misfit(self, name: str, value: Any) -> str | None:
        """Returns in what `value` differs from the variable that it is for; None if it fits."""
        variable = self._variables[name]
        wanted = np.dtype(keras.backend.standardize_dtype(variable.dtype))
        if value.shape == tuple(variable.shape) and value.dtype.kind == wanted.kind:
            return None
        return (
            f"{name} ({value.dtype} of shape {value.shape}, not {wanted} of shape "
            f"{tuple(variable.shape)})"
        )
