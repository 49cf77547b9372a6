"""Activations that Keras 3 computes differently from Keras 2."""

from typing import Any

import keras
from keras import ops


# Not named hard_sigmoid: Keras would write it into files by that name, as its own.
def keras2_hard_sigmoid(x: Any) -> Any:
    """Returns clip(0.2 x + 0.5, 0, 1), what "hard_sigmoid" was up to Keras 2.

    That of Keras 3 is relu6(x + 3) / 6: 0.6667 at 1, where this one is 0.7.

    Args:
        x: A float tensor of any shape.

    Returns:
        A tensor of the same shape and dtype.

    Source: TensorFlow 2.3.4, python/keras/backend.py, hard_sigmoid.

    >>> [round(float(y), 4) for y in keras2_hard_sigmoid(ops.array([-3.0, 0.0, 1.0, 3.0]))]
    [0.0, 0.5, 0.7, 1.0]
    """
    return ops.clip(0.2 * x + 0.5, 0.0, 1.0)


keras.saving.register_keras_serializable("keras_mp", "keras2_hard_sigmoid")(keras2_hard_sigmoid)
