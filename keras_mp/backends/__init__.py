"""The package that imports tensorflow, jax and torch; `graph_rewrite.hooks` does, too.

`protocol.py` says what each of the three offers.
"""

import keras

from keras_mp.backends.protocol import Backend, FusedKernels


def current() -> Backend:
    """Returns the functions of the backend that Keras runs on, always the same object.

    >>> type(current()).__module__ == f"keras_mp.backends.{keras.backend.backend()}.backend"
    True
    """
    match keras.backend.backend():
        case "tensorflow":
            from keras_mp.backends.tensorflow.backend import BACKEND as tensorflow

            return tensorflow
        case "jax":
            from keras_mp.backends.jax.backend import BACKEND as jax

            return jax
        case "torch":
            from keras_mp.backends.torch.backend import BACKEND as torch

            return torch
        case name:
            raise RuntimeError(
                f"keras_mp works on jax, tensorflow and torch, but the backend of Keras is {name}."
            )


def fused_kernels() -> FusedKernels | None:
    """Returns the module of the backend's fused optimizer kernels; None if it has none."""
    match keras.backend.backend():
        case "tensorflow":
            from keras_mp.backends.tensorflow import fused as tensorflow_kernels

            return tensorflow_kernels
        case "torch":
            from keras_mp.backends.torch import fused as torch_kernels

            return torch_kernels
    return None
