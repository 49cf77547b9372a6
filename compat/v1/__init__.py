"""`tf.compat.v1`, as far as mixed precision goes: `mixed_precision`, `train`, `keras`."""

from keras_mp.compat import names

__all__ = ["keras", "mixed_precision", "train"]

__getattr__ = names.submodules(__name__, __all__)
