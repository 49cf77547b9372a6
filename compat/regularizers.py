"""Regularizers of activities that layers computed in 16 bits."""

from collections.abc import Mapping
from typing import Any, Self

import keras
from keras import ops

from keras_mp.files import deserializing  # which may be what imports this


@keras.saving.register_keras_serializable("keras_mp")
class InFloat32(keras.regularizers.Regularizer):  # type: ignore[misc]
    """Computes another regularizer in float32, whatever the dtype of what it is given.

    TensorFlow 2.4 to 2.15 brought all losses of a model to one dtype before it added them. Keras
    3.15 on TensorFlow refuses to add a float16 one to the others. In float32 the sum over a batch
    does not overflow either: in float16 that of the squares of 512 outputs of 128 did.

    Args:
        regularizer: Any regularizer, such as `keras.regularizers.L2()`.

    Raises:
        TypeError: It is none, but a name or a config.

    >>> penalty = InFloat32(keras.regularizers.L2(0.5))(ops.full((512,), 128.0, "float16"))
    >>> float(penalty), keras.backend.standardize_dtype(penalty.dtype)
    (4194304.0, 'float32')
    """

    def __init__(self, regularizer: Any) -> None:
        if not callable(regularizer):
            raise TypeError(
                f"regularizer must be one, such as keras.regularizers.L2(), but got {regularizer!r}"
            )
        self.regularizer = regularizer

    def __call__(self, x: Any) -> Any:
        """Returns the penalty, a scalar in float32."""
        return self.regularizer(ops.cast(x, "float32"))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, JSON-serializable."""
        return {"regularizer": keras.saving.serialize_keras_object(self.regularizer)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Returns the regularizer of a config that `get_config` returned."""
        return cls(deserializing.deserialized(config["regularizer"]))
