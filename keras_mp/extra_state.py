"""State of the wrapper that Keras' own class does not have, in a place of its own in files.

`save_own_variables` keeps to the arrays that Keras' LossScaleOptimizer knows, as that one drops all
state when their number differs. What is more lies beside them, where it looks at nothing.
"""

from typing import Any

import keras
import numpy as np


class ExtraState(keras.losses.Loss):
    """Variables by name, as a child of the optimizer that Keras' saving finds.

    A loss, because that is the public class with the least to it that saving looks into.
    """

    def __init__(self) -> None:
        super().__init__(name="extra_state")
        self._variables: dict[str, Any] = {}
        self._pending: dict[str, Any] = {}

    def add(self, name: str, variable: Any) -> None:
        """Adds a variable; it takes the value that was restored before there was a place for it."""
        self._variables[name] = variable
        if name in self._pending:
            self._restore({name: self._pending.pop(name)})

    def save_own_variables(self, store: Any) -> None:
        """Writes each variable under its name."""
        for name, variable in self._variables.items():
            store[name] = keras.ops.convert_to_numpy(variable)

    def load_own_variables(self, store: Any) -> None:
        """Restores what `store` holds; a variable that it lacks stays.

        What has no variable yet waits for it: some come with `build`.

        Raises:
            ValueError: An array has not the shape or the kind of its variable; nothing is restored.
        """
        saved = {str(name): np.asarray(store[name]) for name in store.keys()}  # noqa: SIM118 - h5 entries
        self._pending = {k: v for k, v in saved.items() if k not in self._variables}
        self._restore({k: v for k, v in saved.items() if k in self._variables})

    def _restore(self, saved: dict[str, Any]) -> None:
        for name, value in saved.items():
            variable = self._variables[name]
            wanted = np.dtype(keras.backend.standardize_dtype(variable.dtype))
            if value.shape != tuple(variable.shape) or value.dtype.kind != wanted.kind:
                raise ValueError(
                    f"{name} of the optimizer is saved as {value.dtype} of shape {value.shape}, "
                    f"where {wanted} of shape {tuple(variable.shape)} was expected."
                )
        for name, value in saved.items():
            self._variables[name].assign(value)
