"""`Attention` and `AdditiveAttention` that mask later steps in every call, as `causal=True` did."""

from typing import Any

import keras


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
