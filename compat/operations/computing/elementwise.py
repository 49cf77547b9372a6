"""Elementwise operations."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from keras_mp.compat.operations.computing.values import (
    Tensor,
    Value,
    as_tensor,
    axes,
    checked_size,
    dtype_of,
    has_tensor,
    is_floating,
    is_tensor,
    known_call,
    tensor,
    together,
)


def _unary(
    of_tensors: Callable[[Tensor], Tensor], of_known: Callable[..., Any]
) -> Callable[..., Value]:
    def function(x: Value) -> Value:
        if is_tensor(x):
            return of_tensors(x)
        if isinstance(x, list) and has_tensor(x):
            return [function(item) for item in x]
        return known_call(of_known, x)

    return function


def _binary(
    of_tensors: Callable[[Tensor, Tensor], Tensor], of_known: Callable[..., Any]
) -> Callable[..., Value]:
    def function(x1: Value, x2: Value) -> Value:
        if is_tensor(x1) or is_tensor(x2):
            return of_tensors(*together(x1, x2))
        if has_tensor(x1) or has_tensor(x2):
            return known_call(function, x1, x2)
        return known_call(of_known, x1, x2)

    return function


def _as_given(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Whole numbers stay whole, which keras.ops makes floating."""

    def kept(x: Tensor, *others: Tensor) -> Tensor:
        dtype = dtype_of(x)
        y = function(x, *others)
        return y if dtype_of(y) == dtype else as_tensor(y, dtype)

    return kept


def _rsqrt(x: Any) -> Any:
    return 1.0 / np.sqrt(x)


absolute = _unary(ops.absolute, np.abs)
negative = _unary(ops.negative, np.negative)
sign = _unary(ops.sign, np.sign)
square = _unary(_as_given(ops.square), np.square)
sqrt = _unary(ops.sqrt, np.sqrt)
rsqrt = _unary(ops.rsqrt, _rsqrt)
reciprocal = _unary(_as_given(ops.reciprocal), lambda x: 1 / x)
exp = _unary(ops.exp, np.exp)
expm1 = _unary(ops.expm1, np.expm1)
log = _unary(ops.log, np.log)
log1p = _unary(ops.log1p, np.log1p)
sin = _unary(ops.sin, np.sin)
cos = _unary(ops.cos, np.cos)
tan = _unary(ops.tan, np.tan)
arcsin = _unary(ops.arcsin, np.arcsin)
arccos = _unary(ops.arccos, np.arccos)
arctan = _unary(ops.arctan, np.arctan)
sinh = _unary(ops.sinh, np.sinh)
cosh = _unary(ops.cosh, np.cosh)
tanh = _unary(ops.tanh, np.tanh)
arcsinh = _unary(ops.arcsinh, np.arcsinh)
arccosh = _unary(ops.arccosh, np.arccosh)
arctanh = _unary(ops.arctanh, np.arctanh)
erf = _unary(ops.erf, np.vectorize(math.erf))
erfinv = _unary(
    _as_given(lambda x: ops.erfinv(ops.cast(x, "float32"))),  # TensorFlow has none of float16
    lambda x: np.asarray(ops.erfinv(tensor(x))),
)
floor = _unary(_as_given(ops.floor), np.floor)
ceil = _unary(_as_given(ops.ceil), np.ceil)
round = _unary(_as_given(ops.round), np.round)
isfinite = _unary(ops.isfinite, np.isfinite)
isinf = _unary(ops.isinf, np.isinf)
isnan = _unary(ops.isnan, np.isnan)
logical_not = _unary(ops.logical_not, np.logical_not)
# Of truth values ~, & and | are logical, of which TensorFlow's bitwise_and knows nothing.
bitwise_invert = _unary(
    lambda x: (ops.logical_not if dtype_of(x) == "bool" else ops.bitwise_invert)(x), np.invert
)


def _of_bits(
    logical: Callable[..., Tensor], bitwise: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    return lambda a, b: (logical if dtype_of(a) == "bool" else bitwise)(a, b)


def _floor_divided(x1: Tensor, x2: Tensor) -> Tensor:
    # There is no gradient of it; PyTorch would raise.
    return _as_given(ops.floor_divide)(ops.stop_gradient(x1), ops.stop_gradient(x2))


def _divided(x1: Tensor, x2: Tensor) -> Tensor:
    if not is_floating(dtype_of(x1)):
        x1, x2 = ops.cast(x1, "float32"), ops.cast(x2, "float32")
    return ops.divide(x1, x2)


def _python2_divided(x1: Tensor, x2: Tensor) -> Tensor:
    is_whole = not is_floating(dtype_of(x1))
    return floor_divide(x1, x2) if is_whole else ops.divide(x1, x2)


def _divided_no_nan(x1: Tensor, x2: Tensor) -> Tensor:
    is_zero = ops.equal(x2, 0)
    quotient = _divided(x1, ops.where(is_zero, ops.ones_like(x2), x2))
    return ops.where(is_zero, ops.zeros_like(quotient), quotient)


def _truncated(x1: Tensor, x2: Tensor) -> Tensor:
    if is_floating(dtype_of(x1)):
        return ops.divide(x1, x2)
    down = ops.floor_divide(x1, x2)
    uneven = ops.logical_and(ops.not_equal(down * x2, x1), ops.less(down, 0))
    return ops.cast(ops.where(uneven, down + 1, down), dtype_of(x1))


def _truncated_mod(x1: Tensor, x2: Tensor) -> Tensor:
    quotient = _truncated(x1, x2)
    whole = ops.trunc(quotient) if is_floating(dtype_of(x1)) else quotient
    return ops.subtract(x1, ops.multiply(whole, x2))


def _times_no_nan(x1: Tensor, x2: Tensor) -> Tensor:
    return ops.where(ops.equal(x2, 0), ops.zeros_like(x1 * x2), ops.multiply(x1, x2))


def _zero_times(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def product(x1: Tensor, x2: Tensor) -> Tensor:
        is_zero = ops.equal(x1, 0)
        other = function(ops.where(is_zero, ops.ones_like(x2 * x1), x2))
        return ops.where(is_zero, ops.zeros_like(other), x1 * other)

    return product


add = _binary(ops.add, np.add)
subtract = _binary(ops.subtract, np.subtract)
multiply = _binary(ops.multiply, np.multiply)
divide = _binary(_divided, np.true_divide)
python2_divide = _binary(_python2_divided, np.floor_divide)
divide_no_nan = _binary(_divided_no_nan, lambda a, b: np.where(b == 0, 0.0, a / (b or 1)))
multiply_no_nan = _binary(_times_no_nan, lambda a, b: 0 * a if b == 0 else a * b)
floor_divide = _binary(_floor_divided, np.floor_divide)
truncate_divide = _binary(
    _truncated, lambda a, b: np.trunc(np.divide(a, b)).astype(np.result_type(a, b))
)
mod = _binary(_as_given(ops.mod), np.mod)
truncate_mod = _binary(_truncated_mod, np.fmod)
power = _binary(_as_given(ops.power), np.power)
maximum = _binary(ops.maximum, np.maximum)
minimum = _binary(ops.minimum, np.minimum)
arctan2 = _binary(ops.arctan2, np.arctan2)
xlogy = _binary(_zero_times(ops.log), lambda a, b: 0.0 if a == 0 else a * np.log(b))
xlog1py = _binary(_zero_times(ops.log1p), lambda a, b: 0.0 if a == 0 else a * np.log1p(b))
xdivy = _binary(_zero_times(ops.reciprocal), lambda a, b: 0.0 if a == 0 else a / b)
equal = _binary(ops.equal, np.equal)
not_equal = _binary(ops.not_equal, np.not_equal)
greater = _binary(ops.greater, np.greater)
greater_equal = _binary(ops.greater_equal, np.greater_equal)
less = _binary(ops.less, np.less)
less_equal = _binary(ops.less_equal, np.less_equal)
logical_and = _binary(ops.logical_and, np.logical_and)
logical_or = _binary(ops.logical_or, np.logical_or)
logical_xor = _binary(ops.logical_xor, np.logical_xor)
bitwise_and = _binary(_of_bits(ops.logical_and, ops.bitwise_and), np.bitwise_and)
bitwise_or = _binary(_of_bits(ops.logical_or, ops.bitwise_or), np.bitwise_or)
bitwise_xor = _binary(_of_bits(ops.logical_xor, ops.bitwise_xor), np.bitwise_xor)
left_shift = _binary(lambda a, b: ops.left_shift(a, b), np.left_shift)
right_shift = _binary(lambda a, b: ops.right_shift(a, b), np.right_shift)


def clip(x: Value, x_min: Value = None, x_max: Value = None) -> Value:
    if x_max is not None:
        x = minimum(x, x_max)
    return x if x_min is None else maximum(x, x_min)


def clip_by_norm(x: Value, clip_norm: Value, axis: Value = None) -> Tensor:
    x, clip_norm = together(x, clip_norm)
    over = tuple(range(len(x.shape))) if axis is None else axes(axis)
    squares = ops.sum(ops.square(x), over, keepdims=True)
    some = ops.greater(squares, 0)
    norm = ops.where(some, ops.sqrt(ops.where(some, squares, ops.ones_like(squares))), squares)
    return ops.divide(ops.multiply(x, clip_norm), ops.maximum(norm, clip_norm))


def where(condition: Value, x1: Value, x2: Value) -> Tensor:
    condition = ops.cast(tensor(condition), "bool")
    x1, x2 = together(x1, x2)
    return ops.where(condition, x1, x2)


def select(condition: Value, x1: Value, x2: Value) -> Tensor:
    condition = tensor(condition)
    x1, x2 = together(x1, x2)
    more = len(x1.shape) - len(condition.shape)
    if more > 0:
        condition = ops.reshape(condition, (*ops.shape(condition), *[1] * more))
    return where(condition, x1, x2)


def cast(x: Value, dtype: str) -> Value:
    if is_tensor(x):
        given = dtype_of(x)
        if given == dtype:
            return x
        if is_floating(given) and not is_floating(dtype) and dtype != "bool":
            x = ops.trunc(x)
        return as_tensor(x, dtype)
    if isinstance(x, list):
        return [cast(item, dtype) for item in x]
    return np.asarray(x).astype("float32" if dtype == "bfloat16" else dtype)[()]


def saturate_cast(x: Value, dtype: str) -> Tensor:
    x = tensor(x)
    given = dtype_of(x)
    if not is_floating(dtype):
        of = np.iinfo(dtype)
        if is_floating(given):
            x = clip(x, float(of.min), float(of.max))
        else:
            own = np.iinfo(given)
            x = clip(x, max(int(of.min), int(own.min)), min(int(of.max), int(own.max)))
    return cast(x, dtype)


def constant(value: Value, dtype: str | None = None, shape: Value = None) -> Value:
    if has_tensor(value):
        return tensor(value, dtype) if dtype is None else cast(tensor(value, dtype), dtype)
    dtype = dtype or dtype_of(value)
    array = np.asarray(value).astype("float32" if dtype == "bfloat16" else dtype)
    if shape is not None:
        checked_size(math.prod(shape))
        array = np.broadcast_to(array, tuple(shape)) if array.size == 1 else array.reshape(shape)
    return array[()]


def identity(x: Value) -> Value:
    return x


def stop_gradient(x: Value) -> Value:
    if isinstance(x, list):
        return [stop_gradient(item) for item in x]
    return ops.stop_gradient(x) if is_tensor(x) else x


def add_n(inputs: Value) -> Value:
    first, *others = inputs if isinstance(inputs, list) else [inputs]
    for other in others:
        first = add(first, other)
    return first


def polyval(coefficients: Value, x: Value) -> Tensor:
    if not coefficients:
        return ops.zeros_like(tensor(x))
    found, *others = coefficients
    for other in others:
        found = add(other, multiply(found, x))
    return found


def clip_by_global_norm(inputs: Value, clip_norm: Value, norm: Value = None) -> list[Any]:
    """Returns the list of tensors, and their norm."""
    norm = global_norm(inputs) if norm is None else tensor(norm)
    limit = ops.cast(clip_norm, dtype_of(norm))
    scale = limit * ops.minimum(1.0 / norm, 1.0 / limit) + (norm - norm)
    return [[one * ops.cast(scale, dtype_of(one)) for one in inputs], norm]


def global_norm(inputs: Value) -> Tensor:
    total = add_n([ops.sum(ops.square(tensor(one))) / 2 for one in inputs])
    return ops.sqrt(total * 2)
