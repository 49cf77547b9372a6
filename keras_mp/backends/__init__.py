"""The room that imports tensorflow, jax and torch; beside it only `graph_rewrite/hooks.py` may.

`protocol.py` says what each of the three modules offers.
"""

import keras

from keras_mp.backends.protocol import Backend, FusedKernels


def current() -> Backend:
    """Returns the module of the backend that Keras runs on.

    >>> current().__name__ == f"keras_mp.backends.{keras.backend.backend()}"
    True
    """
    match keras.backend.backend():
        case "tensorflow":
            from keras_mp.backends import tensorflow

            return tensorflow
        case "jax":
            from keras_mp.backends import jax

            return jax
        case "torch":
            from keras_mp.backends import torch

            return torch
        case name:
            raise RuntimeError(
                f"keras_mp works on jax, tensorflow and torch, but the backend of Keras is {name}."
            )


def fused_kernels() -> FusedKernels | None:
    """Returns the module of the backend's fused optimizer kernels; None where it has none."""
    match keras.backend.backend():
        case "tensorflow":
            from keras_mp.backends import fused_tensorflow

            return fused_tensorflow
        case "torch":
            from keras_mp.backends import fused_torch

            return fused_torch
    return None
