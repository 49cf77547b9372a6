"""Attention as in tf.keras: masks of later steps in every call, and none of the inputs."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_mp")
class Attention(keras.layers.Attention):
    """`keras.layers.Attention` with the argument `causal` of tf.keras.

    Args:
        causal: Whether a query attends to the values up to its own step only.
        **options: Those of `keras.layers.Attention`.

    Source: TF 2.10.1, keras/layers/attention/base_dense_attention.py.

    >>> steps = keras.ops.reshape(keras.ops.arange(3, dtype="float32"), (1, 3, 1))
    >>> [float(step) for step in Attention()([0 * steps, steps])[0, :, 0]]
    [0.0, 0.5, 1.0]
    """

    def __init__(self, causal: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.causal = causal

    def call(
        self,
        inputs: Any,
        mask: Any = None,
        training: Any = False,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Any:
        """Returns the attended values; the arguments are those of `keras.layers.Attention`."""
        return super().call(
            inputs,
            mask=mask,
            training=training,
            return_attention_scores=return_attention_scores,
            use_causal_mask=self.causal or use_causal_mask,
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, JSON-serializable."""
        return {**super().get_config(), "causal": self.causal}


@keras.saving.register_keras_serializable("keras_mp")
class AdditiveAttention(Attention, keras.layers.AdditiveAttention):
    """`keras.layers.AdditiveAttention` with the `causal` of tf.keras; see `Attention`.

    Args:
        causal: Whether a query attends to the values up to its own step only.
        **options: Those of `keras.layers.AdditiveAttention`.

    Source: TF 2.10.1, keras/layers/attention/base_dense_attention.py.

    >>> steps = keras.ops.reshape(keras.ops.arange(3, dtype="float32"), (1, 3, 1))
    >>> layer = AdditiveAttention(use_scale=False)
    >>> [float(step) for step in layer([0 * steps, steps, 0 * steps])[0, :, 0]]
    [0.0, 0.5, 1.0]
    """


@keras.saving.register_keras_serializable("keras_mp")
class MultiHeadAttention(keras.layers.MultiHeadAttention):
    """`keras.layers.MultiHeadAttention` as up to TF 2.9: it neither uses nor passes on masks.

    Only `attention_mask` and `use_causal_mask` mask steps. Keras 3 masks those that the inputs
    mask, too, as TF 2.10 and later did.

    Source: TF 2.4.4, keras/layers/multi_head_attention.py.

    >>> layer = MultiHeadAttention(1, 2)
    >>> steps = keras.layers.Embedding(3, 2, mask_zero=True)(keras.ops.array([[1, 0, 2]]))
    >>> tuple(layer(steps, steps).shape)
    (1, 3, 2)
    >>> layer.compute_mask(steps) is None
    True
    """

    def call(
        self,
        query: Any,
        value: Any,
        key: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: Any = None,
        use_causal_mask: bool = False,
    ) -> Any:
        """Returns the attended values; the arguments are those of `keras.layers`."""
        # Keras takes the mask of a tensor from it, and puts it on the result. What is computed of a
        # tensor has none.
        query, value = ops.multiply(query, 1), ops.multiply(value, 1)
        return super().call(
            query,
            value,
            key=None if key is None else ops.multiply(key, 1),
            attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
            training=training,
            use_causal_mask=use_causal_mask,
        )

    def compute_mask(self, *args: Any, **kwargs: Any) -> None:
        """Returns None: what comes behind it is not masked."""
