"""`tf.compat.v1.keras`: it has `mixed_precision`."""

from keras_mp.compat import mixed_precision

__all__ = ["mixed_precision"]
