"""`decay`, `sparse_variables` and Addons' weight decay, for any Keras 3 optimizer.

A mixin, because a wrapper around an optimizer cannot do this: callbacks must read and set the
learning rate before decay, and rows are kept, and weights decayed, within a step.
"""

import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from keras import ops

from keras_mp import backends
from keras_mp.backends import keras_hooks


class LegacyOptions:
    """What every optimizer of `tf.keras` could do, before the update rule of the next class.

    Args:
        *args: As of the Keras class of the same name.
        decay: The learning rate of a step is `learning_rate / (1 + decay * iterations)`, also
            where `learning_rate` is a schedule. `learning_rate` itself stays as it was set, so
            that callbacks go on reading and setting it; an `InverseTimeDecay` has the same rates
            but cannot be set. (`weight_decay`, which is of Keras 3, is multiplied by
            `learning_rate` before this decay.)
        sparse_variables: Regular expressions, searched for in `variable.path`; a warning names one
            that no variable has. For the variables found, the class's rule for sparse gradients
            holds: as a rule, rows that are not in the batch keep their values and their slots.
            Meant for `Embedding` layers. `tf.keras` had such rules up to 2.10 and in
            `optimizers.legacy`; under a loss scale of TF 2.2 or older, and in the optimizers of
            2.11 and later, it had none.
        decoupled_weight_decay: `w -= decoupled_weight_decay * w` before each update, as in
            TensorFlow Addons: not multiplied by the learning rate, as Keras' `weight_decay` is.
        **kwargs: As of the Keras class; also `lr` for `learning_rate`, and `epsilon=None` for its
            default.

    On TensorFlow the rows are those that the gradient names (`tf.IndexedSlices`). One that is
    named twice counts once, with the sum, as in `tf.keras` but not in Keras 3.15; so it does
    without `sparse_variables`, too. JAX and PyTorch have dense gradients: there a row is in the
    batch if any element of its gradient is not zero. A step costs what a dense one does, and one
    pass more over variable and slots.

    Raises:
        ValueError: A number below zero.
    """

    name: str
    built: bool
    iterations: Any
    _backend: Any

    def __init__(
        self,
        *args: Any,
        decay: float = 0.0,
        sparse_variables: Iterable[str] = (),
        decoupled_weight_decay: float = 0.0,
        **kwargs: Any,
    ) -> None:
        if "lr" in kwargs:  # its name before TF 2.3
            kwargs["learning_rate"] = kwargs.pop("lr")
        if kwargs.get("epsilon", 0) is None:  # the default, in Keras 2
            del kwargs["epsilon"]
        super().__init__(*args, **kwargs)
        for name, value in (("decay", decay), ("decoupled_weight_decay", decoupled_weight_decay)):
            if not value >= 0:
                raise ValueError(f"{name} must be zero or more, but got {value!r}.")
        self.decay = decay
        self.decoupled_weight_decay = decoupled_weight_decay
        self.sparse_variables = (
            (sparse_variables,) if isinstance(sparse_variables, str) else tuple(sparse_variables)
        )
        self._sparse_indices: tuple[int, ...] = ()
        # Past Keras' tracking. Looked up once: torch.compile cannot trace an import.
        object.__setattr__(self, "_backend", backends.current())

    def build(self, variables: Sequence[Any]) -> None:
        """Creates the slots, and looks for `sparse_variables` among `variables`."""
        if self.built:
            return
        paths = [getattr(variable, "path", variable.name) for variable in variables]
        for pattern in self.sparse_variables:
            if not any(re.search(pattern, path) for path in paths):
                warnings.warn(  # it may have been frozen since
                    f"sparse_variables has {pattern!r}, but no variable of that path is trained: "
                    f"{', '.join(paths)}. The pattern has no effect; correct it, or leave it out.",
                    stacklevel=2,
                )
        self._sparse_indices = tuple(
            index
            for index, path in enumerate(paths)
            if any(re.search(pattern, path) for pattern in self.sparse_variables)
        )
        super().build(variables)  # type: ignore[misc]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Takes a step with one variable; Keras calls it."""
        touched = None
        if keras_hooks.variable_index(self, variable) in self._sparse_indices:
            touched = self._backend.touched_rows(gradient, variable)
        gradient = self._backend.to_dense_gradient(gradient, variable)
        if self.decoupled_weight_decay and self._use_weight_decay(variable):  # type: ignore[attr-defined]
            self._shrink(variable, touched)
        kept = [] if touched is None else self._row_state(variable)
        before = [ops.copy(ops.convert_to_tensor(item)) for item in kept]
        self._dense_step(gradient, variable, self._decayed(learning_rate))
        for item, value in zip(kept, before, strict=True):
            after = ops.convert_to_tensor(item)
            self.assign(item, ops.where(touched, after, value))  # type: ignore[attr-defined]

    def _dense_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Takes a step with one variable and its dense gradient: the rule itself."""
        super().update_step(gradient, variable, learning_rate)  # type: ignore[misc]

    def _row_state(self, variable: Any) -> list[Any]:
        """Returns which of `variable` and its slots stay in rows that are not in the batch."""
        return []

    def _shrink(self, variable: Any, touched: Any) -> None:
        loss = ops.cast(self.decoupled_weight_decay, variable.dtype) * variable
        if touched is not None:
            loss = ops.where(touched, loss, 0)
        self.assign_sub(variable, loss)  # type: ignore[attr-defined]

    def _slots(self, variable: Any, *names: str) -> list[Any]:
        index = keras_hooks.variable_index(self, variable)
        return [slots[index] for slots in (getattr(self, name) for name in names) if slots]

    def _decayed(self, learning_rate: Any) -> Any:
        if not self.decay:
            return learning_rate
        rate = ops.convert_to_tensor(learning_rate)
        return rate / (1 + self.decay * ops.cast(self.iterations, rate.dtype))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, JSON-serializable."""
        config: dict[str, Any] = super().get_config()  # type: ignore[misc]
        return {
            **config,
            "decay": self.decay,
            # Always written: a Keras without keras_mp then refuses the config, where `decay` alone
            # would be ignored with a warning.
            "sparse_variables": list(self.sparse_variables),
            "decoupled_weight_decay": self.decoupled_weight_decay,
        }
