"""`tf.compat.v1.train`: it has `experimental`, whose names are those of `mixed_precision`."""

from keras_mp.compat.v1 import mixed_precision as experimental

__all__ = ["experimental"]
