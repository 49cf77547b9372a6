"""The part of the wrapper that differentiates a loss by itself, on any backend."""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import keras
from keras import ops


class MinimizesLosses:
    """`minimize` and its parts, as tf.keras' optimizers had them."""

    _native: ModuleType
    apply_gradients: Callable[..., Any]
    _scaled: Callable[[Any], Any]
    _unscaled: Callable[[list[Any], list[bool]], list[Any]]

    def minimize(
        self,
        loss: Any,
        var_list: Any,
        grad_loss: Any = None,
        name: str | None = None,
        tape: Any = None,
    ) -> Any:
        """Differentiates the scaled loss and takes a step, on any backend.

        Args:
            loss: Callable that takes nothing, reads `keras.Variable`s and returns the loss, of any
                shape (its sum is minimized). On TensorFlow also a tensor, with the `tape` that
                recorded it.
            var_list: A variable, a list of them, or a callable that returns the list.
            grad_loss: Optional tensor of the shape of the loss that weights its elements.
            name: Not used; accepted as in tf.keras.
            tape: TensorFlow only: the `tf.GradientTape` that recorded `loss`.

        Returns:
            `iterations`.
        """
        pairs = self.compute_gradients(loss, var_list, grad_loss=grad_loss, tape=tape)
        return self.apply_gradients(pairs, gradients_scaled=False)

    def compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        """Returns (unscaled gradient, variable) pairs of the loss, computed with loss scaling.

        Arguments as for `minimize`. Hand the pairs to
        `apply_gradients(pairs, gradients_scaled=False)`.

        >>> from keras_mp import LossScaleOptimizer
        >>> opt = LossScaleOptimizer(keras.optimizers.SGD())
        >>> var = keras.Variable(3.0)
        >>> [(gradient, variable)] = opt.compute_gradients(lambda: var**2, var)
        >>> float(gradient), variable is var
        (6.0, True)
        """
        if callable(var_list) and not isinstance(var_list, keras.Variable):
            var_list = var_list()
        variables = list(var_list) if isinstance(var_list, list | tuple) else [var_list]

        def scaled(value: Any) -> Any:
            if grad_loss is not None:
                value = value * ops.cast(grad_loss, value.dtype)
            return self._scaled(value)

        if callable(loss) and not hasattr(loss, "dtype"):
            gradients = self._native.gradients(lambda: scaled(loss()), variables)
        elif tape is not None and hasattr(self._native, "tape_gradients"):
            gradients = self._native.tape_gradients(tape, loss, scaled, variables)
        else:
            raise TypeError(
                "loss must be a callable that takes nothing and returns the loss, but got "
                f"{type(loss).__name__}. On TensorFlow a tensor is possible together with the "
                "tape=tf.GradientTape() that recorded it."
            )
        return list(
            zip(self._unscaled(gradients, [False] * len(gradients)), variables, strict=True)
        )

    def get_gradients(self, loss: Callable[[], Any], params: Sequence[Any]) -> list[Any]:
        """Returns the unscaled gradients of the callable `loss` with respect to `params`."""
        return [gradient for gradient, _ in self.compute_gradients(loss, list(params))]
