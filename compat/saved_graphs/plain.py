"""Constants, checks, and the numbers of random generators, which only random ops are given."""

from typing import Any

import numpy as np

from keras_mp.compat.errors import NotComputed
from keras_mp.compat.operations.computing.shapes import shape
from keras_mp.compat.operations.computing.values import checked_size, dims, is_tensor
from keras_mp.compat.saved_graphs.programs import Step

_KEY, _COUNTER, _STATE = 1, 2, 3  # how many numbers each has


def _const(run: Any, step: Step, given: list[Any]) -> list[Any]:
    value = step.attributes.get("value")
    if not isinstance(value, np.ndarray):
        raise NotComputed("a constant without a value")
    return [value]


def _nothing(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return []


def _first(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return given[:1]


def _all(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return given


def _shapes(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return [shape(one) for one in given]


def _zeros(count: int) -> Any:
    return lambda run, step, given: [np.zeros(count, "int64")]


def _key_and_counter(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return [np.zeros(_KEY, "int64"), np.zeros(_COUNTER, "int64")]


def _algorithm(run: Any, step: Step, given: list[Any]) -> list[Any]:
    return [np.int32(1)]


def _seeds(run: Any, step: Step, given: list[Any]) -> list[Any]:
    sizes = dims(given[0])
    checked_size(float(np.prod(sizes)))
    return [np.zeros(sizes, step.attributes.get("dtype", "int64"))]


def _bits(run: Any, step: Step, given: list[Any]) -> list[Any]:
    """Returns known numbers by their bits, as TensorFlow hands on the state of a generator."""
    dtype = np.dtype(str(step.attributes.get("type")))
    value = given[0] if is_tensor(given[0]) else np.asarray(given[0])
    if is_tensor(value) or value.dtype.itemsize != dtype.itemsize:
        raise NotComputed("the bits of a tensor as those of another dtype")
    return [value.view(dtype)]


def _drawn(operation: str) -> Any:
    """Returns the kernel of an op that draws from a generator, whose state it is given first."""

    def kernel(run: Any, step: Step, given: list[Any]) -> list[Any]:
        _generator, _algorithm, shape = given
        dtype = step.attributes.get("dtype", "float32")
        return [run.drawn(operation, shape=shape, dtype=dtype)]

    return kernel


KERNELS = {
    "Const": _const,
    "NoOp": _nothing,
    "Assert": _nothing,
    "PlaceholderWithDefault": _first,
    # Of variables and lists, too.
    "Identity": _first,
    "IdentityN": _all,
    "ShapeN": _shapes,
    "Bitcast": _bits,
    "RngReadAndSkip": _zeros(_STATE),
    "StatelessRandomGetKeyCounter": _key_and_counter,
    "StatelessRandomGetAlg": _algorithm,
    "StatelessRandomGetKeyCounterAlg": lambda run, step, given: [
        *_key_and_counter(run, step, given),
        *_algorithm(run, step, given),
    ],
    "StatelessRandomUniformFullIntV2": _seeds,
    "StatefulUniform": _drawn("random_uniform"),
    "StatefulStandardNormalV2": _drawn("random_normal"),
    "StatefulTruncatedNormal": _drawn("random_truncated_normal"),
}
