"""`Keras2Methods`: scales and differentiates as the methods of tf.keras' optimizers did."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import keras
from keras import ops

from keras_mp.array_types import Gradient, Gradients, Tensor, Variable
from keras_mp.backends.common.optimizers import overwrites_with_gradient
from keras_mp.backends.common.warn_once import WarnOnce
from keras_mp.backends.protocol import Backend
from keras_mp.optimizer.given_gradients import as_tensors
from keras_mp.scaling.scaler import LossScaler, as_tensor

# A callable that returns the loss, or on TensorFlow its tensor.
Loss: TypeAlias = Callable[[], Tensor] | Tensor
VarList: TypeAlias = Variable | Iterable[Variable] | Callable[[], Iterable[Variable]]


class Keras2Methods:
    """`get_scaled_loss` and `get_unscaled_gradients`, `compute_gradients` and `get_gradients`.

    Args:
        scaler: The owner of the loss scale.
        backend: Keras' backend.
        warn: Warns of float16 losses.
    """

    def __init__(self, scaler: LossScaler, backend: Backend, warn: WarnOnce) -> None:
        self._scaler, self._backend, self._warn = scaler, backend, warn

    def get_scaled_loss(self, loss: Loss) -> Any:
        """Returns `loss` times the loss scale, for `get_unscaled_gradients`, as in tf.keras.

        The product is computed in float32 and cast back to the dtype of the loss. In float16 it
        easily overflows: prefer `scale_loss` then.

        Args:
            loss: Number, tensor, or a callable that takes nothing and returns one.

        Returns:
            Same shape and dtype as the loss (float32 for a number, and where the backend lacks
            float64), or a callable if a callable was given.

        >>> from keras_mp import LossScaleOptimizer
        >>> opt = LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8)
        >>> float(opt.get_scaled_loss(ops.array(2.0))), float(opt.get_scaled_loss(lambda: 3.0)())
        (16.0, 24.0)
        """
        if callable(loss):
            return lambda: self.get_scaled_loss(loss())
        self._scaler.protocol.call("get_scaled_loss")
        loss = as_tensor(loss)
        dtype = keras.backend.standardize_dtype(loss.dtype)
        if dtype == "float16":
            self._warn(
                "get_scaled_loss was given a float16 loss: the scaled loss overflows above 65504. "
                "Cast the loss to float32, or use scale_loss and apply, which scale in float32.",
                stacklevel=4,  # beyond `delegated`
            )
        return ops.cast(self._scaler.scale_loss(loss, stacklevel=6), dtype)

    def get_unscaled_gradients(self, gradients: Gradients) -> list[Gradient]:
        """Returns `gradients` divided by the loss scale, as in tf.keras.

        Args:
            gradients: List of tensors; None stays None, sparse gradients stay sparse. 16-bit
                gradients are returned in float32. Not for float8 variables, whose "gradients" are
                not slopes: use `scale_loss` and `apply` there.

        >>> from keras_mp import LossScaleOptimizer
        >>> opt = LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8)
        >>> gradient, none = opt.get_unscaled_gradients([ops.array(4.0), None])
        >>> float(gradient), none
        (0.5, None)
        """
        self._scaler.protocol.call("get_unscaled_gradients")
        gradients = as_tensors(gradients)
        return self._scaler.unscale(gradients, [False] * len(gradients), stacklevel=6)

    def compute_gradients(
        self,
        loss: Loss,
        var_list: VarList,
        grad_loss: Tensor | None = None,
        tape: Any = None,
    ) -> list[tuple[Gradient, Variable]]:
        """Returns (unscaled gradient, variable) pairs of the loss, computed with loss scaling.

        Arguments as for `minimize`. A variable that does not affect the loss has the gradient
        None, on JAX zeros.

        Raises:
            TypeError: `loss` is neither a callable, nor a tensor with its tape.
            ValueError: There is no variable to differentiate by.

        >>> from keras_mp import LossScaleOptimizer
        >>> opt = LossScaleOptimizer(keras.optimizers.SGD())
        >>> var = keras.Variable(3.0)
        >>> [(gradient, variable)] = opt.compute_gradients(lambda: var**2, var)
        >>> float(gradient), variable is var
        (6.0, True)
        """
        pairs = self.gradient_pairs(loss, var_list, grad_loss, tape)
        for name in ("get_scaled_loss", "get_unscaled_gradients"):
            self._scaler.protocol.call(name)
        return pairs

    def gradient_pairs(
        self,
        loss: Loss,
        var_list: VarList,
        grad_loss: Tensor | None,
        tape: Any,
    ) -> list[tuple[Gradient, Variable]]:
        """`compute_gradients`, for a step that is taken at once."""
        by_callable = callable(loss)
        variables = _listed(var_list)
        if not variables and by_callable and callable(var_list):
            loss()  # builds the model, whose variables are then read again
            variables = _listed(var_list)
        if not variables:
            raise ValueError("var_list is empty: there is no variable to differentiate by.")

        def scaled(value: Any) -> Any:
            value = self._scaler.scale_loss(value)
            return value if grad_loss is None else value * ops.cast(grad_loss, value.dtype)

        gradients: list[Gradient] | None = None
        if by_callable:
            gradients = self._backend.gradients(lambda: scaled(loss()), variables)
        elif tape is not None:
            gradients = self._backend.tape_gradients(tape, loss, scaled, variables)
        if gradients is None:
            raise TypeError(
                "loss must be a callable that takes nothing and returns the loss, but got "
                f"{type(loss).__name__}. On TensorFlow pass a tensor together with the "
                "tape=tf.GradientTape() that recorded it."
            )
        skip_unscale = list(map(overwrites_with_gradient, variables))
        unscaled = self._scaler.unscale(gradients, skip_unscale)
        return list(zip(unscaled, variables, strict=True))

    def get_gradients(
        self, loss: Callable[[], Tensor], params: Sequence[Variable]
    ) -> list[Gradient]:
        """Returns the unscaled gradients of the callable `loss` with respect to `params`."""
        return [gradient for gradient, _ in self.compute_gradients(loss, list(params))]


def _listed(var_list: VarList) -> list[Variable]:
    if hasattr(var_list, "dtype"):
        return [var_list]
    return list(var_list() if callable(var_list) else var_list)
