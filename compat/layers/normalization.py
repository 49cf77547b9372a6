"""`LayerNormalization` of any axes on every backend."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_mp")
class LayerNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization`, on PyTorch also of axes other than the last.

    Args:
        axis, epsilon, center, scale, **options: Those of `keras.layers.LayerNormalization`.

    Source: TF 2.15.1, keras/layers/normalization/layer_normalization.py.

    >>> LayerNormalization(axis=[1, 2])(keras.ops.ones((2, 3, 4, 5))).shape == (2, 3, 4, 5)
    True
    """

    def call(self, inputs: Any) -> Any:
        """Returns the normalized inputs, of their shape."""
        axes = normalized_axes(self.axis, len(inputs.shape))
        order = [i for i in range(len(inputs.shape)) if i not in axes] + axes
        if order == sorted(order):
            return super().call(inputs)
        last = tuple(range(-len(axes), 0))
        found = ops.layer_normalization(
            ops.transpose(inputs, order), self.gamma, self.beta, last, self.epsilon
        )
        back = [order.index(i) for i in range(len(order))]
        return ops.cast(ops.transpose(found, back), self.compute_dtype)


def normalized_axes(axis: Any, rank: int) -> list[int]:
    """Returns axes from 0 on, in their order.

    >>> normalized_axes(-1, 3), normalized_axes([-2, 1], 4)
    ([2], [1, 2])
    """
    axes = [axis] if isinstance(axis, int) else list(axis)
    return sorted(each % rank for each in axes)
