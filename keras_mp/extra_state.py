"""State of the wrapper that Keras' own class does not have, in a place of its own in files.

`save_own_variables` keeps to the arrays that Keras' LossScaleOptimizer knows, as that one drops all
state when their number differs. What is more lies beside them, where it looks at nothing.
"""

from typing import Any

import keras
import numpy as np


class ExtraState(keras.losses.Loss):
    """Scalar variables by name, as a child of the optimizer that Keras' saving finds.

    A loss, because that is the public class with the least to it that saving looks into.
    """

    def __init__(self, variables: dict[str, Any]) -> None:
        super().__init__(name="extra_state")
        self._variables = variables

    def save_own_variables(self, store: Any) -> None:
        """Writes each variable under its name."""
        for name, variable in self._variables.items():
            store[name] = keras.ops.convert_to_numpy(variable)

    def load_own_variables(self, store: Any) -> None:
        """Restores what `store` holds; a variable that it lacks stays, another name is passed over.

        Raises:
            ValueError: An array is no scalar of the kind of its variable.
        """
        saved = {name: np.asarray(store[name]) for name in self._variables if name in store.keys()}  # noqa: SIM118 - h5 entries
        for name, value in saved.items():
            wanted = np.dtype(keras.backend.standardize_dtype(self._variables[name].dtype))
            if value.shape != () or value.dtype.kind != wanted.kind:
                raise ValueError(
                    f"{name} of the optimizer is saved as {value.dtype} of shape {value.shape}, "
                    f"where a scalar of {wanted} was expected."
                )
        for name, value in saved.items():
            self._variables[name].assign(value)
