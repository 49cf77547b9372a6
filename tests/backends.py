"""Where what a test shows does not depend on the backend, one of them runs it."""

import keras
import pytest


def on(backend):
    """Returns the mark of tests that one backend runs, as they show the same on every one."""
    why = f"the same on every backend; {NAMES[backend]} runs it"
    return pytest.mark.skipif(keras.backend.backend() != backend, reason=why)


NAMES = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}
# JAX, where `make fuzz` and `make oldest` run them, too.
on_one = on("jax")
# The soonest, where much is computed that is computed once.
on_torch = on("torch")
