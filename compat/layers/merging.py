"""Merging layers with the masks of tf.keras, which mask a step where any of the inputs masks it.

Keras 3 masks a step only where all inputs do, and none where an input has no mask. So an LSTM
behind `Add()([embedded, x])` predicts otherwise.

Source: TF 2.10.1, keras/layers/merging/base_merge.py and concatenate.py, `compute_mask`.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

Masks = Sequence[Any] | None


class _Masked:
    """The mask of a layer that merges element by element."""

    def compute_mask(self, inputs: Any, mask: Masks = None) -> Any:
        """Returns where all masks that there are have True, of shape (batch, steps); or None."""
        given = [one for one in mask or () if one is not None]
        if not given:
            return None
        result = given[0]
        for one in given[1:]:
            result = ops.logical_and(result, one)
        return result


@keras.saving.register_keras_serializable("keras_mp")
class Add(_Masked, keras.layers.Add):
    """`keras.layers.Add`, with the mask of tf.keras.

    >>> a, b = ops.array([[True, False]]), ops.array([[True, True]])
    >>> ops.convert_to_numpy(Add().compute_mask([a, b], [a, b])).tolist()
    [[True, False]]
    """


@keras.saving.register_keras_serializable("keras_mp")
class Subtract(_Masked, keras.layers.Subtract):
    """`keras.layers.Subtract`, with the mask of tf.keras."""


@keras.saving.register_keras_serializable("keras_mp")
class Multiply(_Masked, keras.layers.Multiply):
    """`keras.layers.Multiply`, with the mask of tf.keras."""


@keras.saving.register_keras_serializable("keras_mp")
class Average(_Masked, keras.layers.Average):
    """`keras.layers.Average`, with the mask of tf.keras."""


@keras.saving.register_keras_serializable("keras_mp")
class Maximum(_Masked, keras.layers.Maximum):
    """`keras.layers.Maximum`, with the mask of tf.keras."""


@keras.saving.register_keras_serializable("keras_mp")
class Minimum(_Masked, keras.layers.Minimum):
    """`keras.layers.Minimum`, with the mask of tf.keras."""


@keras.saving.register_keras_serializable("keras_mp")
class Concatenate(keras.layers.Concatenate):
    """`keras.layers.Concatenate`, with the mask of tf.keras.

    >>> a, b = ops.ones((1, 2, 3)), ops.ones((1, 2, 4))
    >>> mask = Concatenate().compute_mask([a, b], [ops.array([[True, False]]), None])
    >>> ops.convert_to_numpy(mask).tolist()
    [[True, False]]
    """

    def compute_mask(self, inputs: Any, mask: Masks = None) -> Any:
        """Returns where all masks that there are have True, without the last axis; or None."""
        if mask is None or all(one is None for one in mask):
            return None
        masks = []
        for given, one in zip(inputs, mask, strict=True):
            every = ops.ones_like(given, dtype="bool")
            if one is not None and len(one.shape) < len(given.shape):
                one = ops.expand_dims(one, -1)
            masks.append(every if one is None else ops.logical_and(one, every))
        return ops.all(ops.concatenate(masks, axis=self.axis), axis=-1)


LAYERS = (Add, Average, Concatenate, Maximum, Minimum, Multiply, Subtract)
