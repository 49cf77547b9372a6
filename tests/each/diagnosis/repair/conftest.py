"""Fixtures of tests whose models compute in float16."""

import keras
import pytest

import keras_mp


@pytest.fixture
def mixed_float16():
    keras_mp.set_global_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy("float32")
