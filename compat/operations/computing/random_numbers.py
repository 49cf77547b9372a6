"""Random numbers, from the seed generator of a layer."""

from typing import Any

import keras
from keras import ops

from keras_mp.compat.operations.computing.elementwise import add, cast, multiply
from keras_mp.compat.operations.computing.values import Tensor, Value, dims, is_tensor, tensor


def _scaled(numbers: Tensor, mean: Value, stddev: Value) -> Tensor:
    if not is_tensor(mean) and not is_tensor(stddev) and (mean, stddev) == (0, 1):
        return numbers
    return add(multiply(numbers, stddev), mean)


def random_normal(
    shape: Value, mean: Value = 0.0, stddev: Value = 1.0, dtype: str = "float32", *, seed: Any
) -> Tensor:
    return _scaled(keras.random.normal(dims(shape), dtype=dtype, seed=seed), mean, stddev)


def random_truncated_normal(
    shape: Value, mean: Value = 0.0, stddev: Value = 1.0, dtype: str = "float32", *, seed: Any
) -> Tensor:
    numbers = keras.random.truncated_normal(dims(shape), dtype=dtype, seed=seed)
    return _scaled(numbers, mean, stddev)


def random_uniform(
    shape: Value, minval: Value = 0, maxval: Value = None, dtype: str = "float32", *, seed: Any
) -> Tensor:
    if "int" in dtype:
        return keras.random.randint(dims(shape), minval, maxval, dtype=dtype, seed=seed)
    top = 1.0 if maxval is None else maxval
    return keras.random.uniform(dims(shape), minval, top, dtype=dtype, seed=seed)


def random_binomial(shape: Value, p: Value = 0.0, dtype: str = "float32", *, seed: Any) -> Tensor:
    numbers = keras.random.uniform(dims(shape), seed=seed)
    return cast(ops.less_equal(numbers, ops.cast(p, "float32")), dtype)


def random_shuffle(x: Value, *, seed: Any) -> Tensor:
    """Rows stay whole; keras.random.shuffle on JAX moves each number by itself."""
    x = tensor(x)
    order = ops.argsort(keras.random.uniform((ops.shape(x)[0],), seed=seed))
    return ops.take(x, order, axis=0)
