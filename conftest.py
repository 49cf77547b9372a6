"""One process, one backend: `KERAS_BACKEND` is read when keras is imported."""

import os
import sys

import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")

# The first re-exports: the examples are run where they are written. The other is recordings.
collect_ignore = ["keras_mp/__init__.py", "tests/data"]


@pytest.fixture(autouse=True)
def _compile_as_before():
    """What the policies of tf.keras make of `compile` ends with the test, or the example."""
    yield
    policies = sys.modules.get("keras_mp.compat.policies")
    if policies is not None and policies._undo is not None:
        policies._undo()
        policies._undo = None
