"""The classes and functions that saved files name: importing this module registers them with Keras.

`keras_mp/__init__.py` imports it once keras is imported, so that `keras.saving.load_model` opens a
converted file in a new process after `import keras, keras_mp` alone, in either order.
"""

from keras_mp.compat import activations, layers, optimizers, regularizers
from keras_mp.compat.legacy_classes import loss_scale_optimizers

__all__ = ["activations", "layers", "loss_scale_optimizers", "optimizers", "regularizers"]
