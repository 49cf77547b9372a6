"""The part of the wrapper that scales losses and unscales gradients, and warns of mixing it up."""

import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mp.backends.numerics import tensors_of
from keras_mp.scaling_protocol import ScalingProtocol


class ScalesLosses:
    """`scale_loss` of Keras 3, `get_scaled_loss` and `get_unscaled_gradients` of Keras 2."""

    variables: Any
    dynamic_scale: Any
    _native: ModuleType
    _protocol: ScalingProtocol
    _said: set[str]

    def scale_loss(self, loss: Any) -> Any:
        """Returns `loss` times the loss scale, for `apply`; Keras 3's trainers call it.

        Args:
            loss: Number or tensor of any shape. float16 and bfloat16 are scaled in float32, so
                that the product cannot overflow.

        Returns:
            float32 (float64 for a float64 loss where the backend has that), same shape.

        >>> from keras_mp import LossScaleOptimizer
        >>> opt = LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=2.0**20)
        >>> float(opt.scale_loss(ops.array(4.0, dtype="float16")))
        4194304.0
        """
        self._protocol.call("scale_loss")
        return self._scaled(loss)

    def get_scaled_loss(self, loss: Any) -> Any:
        """Returns `loss` times the loss scale, for `get_unscaled_gradients`, as in tf.keras.

        The product is computed in float32 and cast back to the dtype of the loss, where a float16
        one overflows easily: prefer `scale_loss` then.

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
        self._protocol.call("get_scaled_loss")
        loss = _as_tensor(loss)
        dtype = keras.backend.standardize_dtype(loss.dtype)
        if dtype == "float16":
            self._warn_once(
                "get_scaled_loss was given a float16 loss: the scaled loss overflows above 65504. "
                "Cast the loss to float32, or use scale_loss and apply, which scale in float32."
            )
        return ops.cast(self._scaled(loss), dtype)

    def _scaled(self, loss: Any) -> Any:
        loss = _as_tensor(loss)
        wide = "float64" if keras.backend.standardize_dtype(loss.dtype) == "float64" else "float32"
        return ops.multiply(ops.cast(loss, wide), ops.cast(self._current_scale(5), wide))

    def _current_scale(self, stacklevel: int) -> Any:
        scale = self._native.read(self.dynamic_scale)
        if self._native.is_baked_in(scale):
            self._warn_once(
                "The loss scale is a constant of the function that is being compiled here: it "
                "will not follow the optimizer. Hand the optimizer's variables to the function and "
                "use stateless_scale_loss(optimizer_variables, loss).",
                stacklevel,
            )
        return scale

    def stateless_scale_loss(self, optimizer_variables: Any, loss: Any) -> Any:
        """`scale_loss` with the loss scale among `optimizer_variables`, values of `variables`."""
        with keras.StatelessScope(zip(self.variables, optimizer_variables, strict=True)):
            return self.scale_loss(loss)

    def get_unscaled_gradients(self, gradients: Sequence[Any]) -> list[Any]:
        """Returns `gradients` divided by the loss scale, as in tf.keras.

        Args:
            gradients: List of tensors; None stays None, sparse gradients stay sparse. 16-bit
                gradients come back in float32. Not those of float8 variables, whose "gradients"
                are no slopes: use `scale_loss` and `apply` with these.

        >>> from keras_mp import LossScaleOptimizer
        >>> opt = LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8)
        >>> gradient, none = opt.get_unscaled_gradients([ops.array(4.0), None])
        >>> float(gradient), none
        (0.5, None)
        """
        self._protocol.call("get_unscaled_gradients")
        gradients = tensors_of(gradients)
        return self._unscaled(gradients, [False] * len(gradients))

    def _unscaled(self, gradients: list[Any], raw: list[bool]) -> list[Any]:
        scale = self._current_scale(5)
        unscaled: list[Any] = self._native.unscale(gradients, scale, raw)
        return unscaled

    def _warn_once(self, message: str | None, stacklevel: int = 3) -> None:
        # torch.compile takes a warning for a graph break.
        if message is None or message in self._said or self._native.is_compiling():
            return
        self._said.add(message)
        warnings.warn(message, stacklevel=stacklevel)


def _as_tensor(loss: Any) -> Any:
    """Returns a number, also one of NumPy, as a tensor; a tensor as it is."""
    if not hasattr(loss, "dtype"):
        return ops.convert_to_tensor(loss, "float32")
    # Not a union of types, which torch.compile cannot follow.
    return ops.convert_to_tensor(loss) if isinstance(loss, (np.ndarray, np.generic)) else loss
