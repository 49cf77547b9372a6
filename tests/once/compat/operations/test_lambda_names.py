"""What names in lambdas stand for, where it is not the name alone that says it."""

import pytest

from keras_mp.compat.operations.tables import NotConverted
from tests.once.compat.operations.test_python_types import X, computed


@pytest.mark.parametrize("name", ["signal.stft", "spectral.rfft", "complex"])
def test_complex_numbers_are_refused_as_such(name: str) -> None:
    with pytest.raises(NotConverted, match="which has complex numbers"):
        computed(f"tf.abs(tf.{name}(x, x))", X)


PREPARED = "ops.bias_add(ops.flip(x, axis=-1), bias=[-103.939, -116.779, -123.68]"


@pytest.mark.parametrize(
    "module",
    ["tf.keras.applications.vgg16", "keras.applications.vgg16", "applications.vgg16", "vgg16"],
)
def test_networks_by_their_names(module: str) -> None:
    assert computed(f"{module}.preprocess_input(x)", X).startswith(PREPARED)


def test_no_one_knows_whose_preprocess_input_it_is() -> None:
    with pytest.raises(NotConverted, match=r"each module of keras\.applications has its own"):
        computed("preprocess_input(x)", X)
