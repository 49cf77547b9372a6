"""Tests with other people's tools, by `make clients`: one process a backend, as in tests/each."""

import gc
import os
import tempfile

os.environ.setdefault("KERAS_BACKEND", "jax")
# The same small steps are compiled again and again.
if os.environ["KERAS_BACKEND"] == "jax":
    _compiled = tempfile.TemporaryDirectory(prefix="keras_mp_compiled")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _compiled.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

import keras
import pytest

import keras_mp
from keras_mp.policies import compile_advice

gc.set_threshold(50_000)


def pytest_report_header():
    return f"keras {keras.__version__} on {keras.backend.backend()}"


def pytest_collection_modifyitems(items):
    """Of warnings those that name keras_mp are errors; each tool has some of its own."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("error:.*keras_mp"), append=False)
        item.add_marker(pytest.mark.filterwarnings("ignore"), append=False)


@pytest.fixture(autouse=True)
def _same_start(monkeypatch):
    """mixed_float16 and the same seeds for each test; nothing of it stays."""
    monkeypatch.setattr(compile_advice, "_advised", True)
    keras.utils.set_random_seed(0)
    keras_mp.set_global_policy("mixed_float16")
    yield
    keras_mp.set_global_policy(None)
    keras.config.set_dtype_policy("float32")


@pytest.fixture(scope="session")
def backend():
    return keras.backend.backend()
