"""Where what a test shows does not depend on the backend, one of them runs it."""

import keras
import pytest

# JAX, where `make fuzz` and `make oldest` run them, too.
on_one = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="the same on every backend; JAX runs it"
)
