"""The past: APIs, configs, optimizers and files of TF 1.15 to 2.15, on today's Keras.

Modules and functions load on first use: this imports neither keras nor a framework.
"""

from keras_mp.compat import names

__all__ = ["configs", "mixed_precision", "optimizers", "train", "v1"]

__getattr__ = names.submodules(__name__, __all__)
