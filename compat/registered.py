"""What files may name: importing this registers it with Keras.

`keras_mp` imports it by name once keras is there, so that a converted file opens after
`import keras, keras_mp` alone.
"""

from keras_mp.compat import activations, layers, loss_scale_optimizers, optimizers

__all__ = ["activations", "layers", "loss_scale_optimizers", "optimizers"]
