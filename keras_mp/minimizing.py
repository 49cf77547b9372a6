"""The part of the wrapper that differentiates a loss by itself, on any backend."""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from keras import ops

from keras_mp.backends.optimizers import overwritten
from keras_mp.scaling_protocol import ScalingProtocol


class MinimizesLosses:
    """`minimize` and its parts, as tf.keras' optimizers had them."""

    _native: ModuleType
    _protocol: ScalingProtocol
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
            var_list: A variable, an iterable of them, or a callable that returns one.
            grad_loss: Optional tensor of the shape of the loss that weights its elements.
            name: Not used; accepted as in tf.keras.
            tape: TensorFlow only: the `tf.GradientTape` that recorded `loss`.

        Returns:
            `iterations`.
        """
        pairs = self._gradient_pairs(loss, var_list, grad_loss, tape)
        return self.apply_gradients(pairs, gradients_scaled=False)

    def compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        """Returns (unscaled gradient, variable) pairs of the loss, computed with loss scaling.

        Arguments as for `minimize`. A variable that the loss does not depend on has the gradient
        None, on JAX zeros.

        Raises:
            TypeError: `loss` is neither a callable, nor a tensor with its tape.
            ValueError: There is no variable to differentiate by.

        >>> import keras
        >>> from keras_mp import LossScaleOptimizer
        >>> opt = LossScaleOptimizer(keras.optimizers.SGD())
        >>> var = keras.Variable(3.0)
        >>> [(gradient, variable)] = opt.compute_gradients(lambda: var**2, var)
        >>> float(gradient), variable is var
        (6.0, True)
        """
        pairs = self._gradient_pairs(loss, var_list, grad_loss, tape)
        for name in ("get_scaled_loss", "get_unscaled_gradients"):
            self._protocol.call(name)
        return pairs

    def _gradient_pairs(
        self, loss: Any, var_list: Any, grad_loss: Any, tape: Any
    ) -> list[tuple[Any, Any]]:
        by_callable = callable(loss)
        variables = _listed(var_list)
        if not variables and by_callable and callable(var_list):
            loss()  # builds the model, whose variables are asked for again
            variables = _listed(var_list)
        if not variables:
            raise ValueError("var_list is empty: there is no variable to differentiate by.")

        def scaled(value: Any) -> Any:
            value = self._scaled(value)
            return value if grad_loss is None else value * ops.cast(grad_loss, value.dtype)

        if by_callable:
            gradients = self._native.gradients(lambda: scaled(loss()), variables)
        elif tape is not None and hasattr(self._native, "tape_gradients"):
            gradients = self._native.tape_gradients(tape, loss, scaled, variables)
        else:
            raise TypeError(
                "loss must be a callable that takes nothing and returns the loss, but got "
                f"{type(loss).__name__}. On TensorFlow a tensor is possible together with the "
                "tape=tf.GradientTape() that recorded it."
            )
        unscaled = self._unscaled(gradients, list(map(overwritten, variables)))
        return list(zip(unscaled, variables, strict=True))

    def get_gradients(self, loss: Callable[[], Any], params: Sequence[Any]) -> list[Any]:
        """Returns the unscaled gradients of the callable `loss` with respect to `params`."""
        return [gradient for gradient, _ in self.compute_gradients(loss, list(params))]


def _listed(var_list: Any) -> list[Any]:
    if hasattr(var_list, "dtype"):
        return [var_list]
    return list(var_list() if callable(var_list) else var_list)
