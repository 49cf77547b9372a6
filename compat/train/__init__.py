"""`tf.train` of TF 1.14 to 2.8, as far as it was about mixed precision."""

from keras_mp.compat.train import experimental

__all__ = ["experimental"]
