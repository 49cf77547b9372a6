"""Tests whose result does not depend on the backend run on one of them."""

import keras
import pytest


def on(backend):
    """Returns a mark for tests that run on one backend, because all give the same result."""
    why = f"the same on every backend; {NAMES[backend]} runs it"
    return pytest.mark.skipif(keras.backend.backend() != backend, reason=why)


def not_on(backend, why):
    """Returns a mark for what one backend cannot do; CI has it run on another."""
    return pytest.mark.skipif(keras.backend.backend() == backend, reason=why)


NAMES = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}
# JAX, where `make fuzz` and `make oldest` run them, too.
on_one = on("jax")
# The fastest one for values that are computed once.
on_torch = on("torch")
