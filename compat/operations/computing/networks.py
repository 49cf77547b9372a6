"""Activations, normalisation, convolution, pooling, and losses."""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mp.compat.operations.computing.elementwise import (
    clip,
    maximum,
    multiply,
    subtract,
)
from keras_mp.compat.operations.computing.shapes import pad
from keras_mp.compat.operations.computing.symbolic import is_trying
from keras_mp.compat.operations.computing.values import (
    Tensor,
    Value,
    axes,
    dims,
    dtype_of,
    ints,
    is_tensor,
    tensor,
    together,
)

_LEAST = 1e-7  # K.epsilon()


def relu(
    x: Value, negative_slope: Value = 0.0, max_value: Value = None, threshold: Value = 0.0
) -> Tensor:
    """Source: TF 2.15, Keras' backend.relu; keras.ops has nothing of it but the first line."""
    x = tensor(x)
    slope = negative_slope
    found = ops.where(ops.greater(x, threshold), x, ops.zeros_like(x)) if threshold else ops.relu(x)
    if max_value is not None:
        found = clip(found, 0.0, max_value)
    if not is_tensor(slope) and not slope:
        return found
    return subtract(found, multiply(ops.relu(subtract(threshold, x)), slope))


def relu6(x: Value) -> Tensor:
    return ops.relu6(tensor(x))


def leaky_relu(x: Value, negative_slope: Value = 0.2) -> Tensor:
    return ops.leaky_relu(tensor(x), negative_slope)


def elu(x: Value, alpha: Value = 1.0) -> Tensor:
    return ops.elu(tensor(x), alpha)


def selu(x: Value) -> Tensor:
    return ops.selu(tensor(x))


def gelu(x: Value, approximate: bool = False) -> Tensor:
    return ops.gelu(tensor(x), bool(approximate))


def silu(x: Value, beta: Value = 1.0) -> Tensor:
    x = tensor(x)
    return x * ops.sigmoid(x if not is_tensor(beta) and beta == 1 else ops.multiply(x, beta))


def sigmoid(x: Value) -> Tensor:
    return ops.sigmoid(tensor(x))


def log_sigmoid(x: Value) -> Tensor:
    return ops.log_sigmoid(tensor(x))


def keras2_hard_sigmoid(x: Value) -> Tensor:
    return ops.clip(tensor(x) * 0.2 + 0.5, 0.0, 1.0)


def softplus(x: Value) -> Tensor:
    return ops.softplus(tensor(x))


def softsign(x: Value) -> Tensor:
    return ops.softsign(tensor(x))


def mish(x: Value) -> Tensor:
    x = tensor(x)
    return x * ops.tanh(ops.softplus(x))


def crelu(x: Value, axis: Value = -1) -> Tensor:
    x = tensor(x)
    return ops.relu(ops.concatenate([x, -x], ints(axis)))


def softmax(x: Value, axis: Value = -1) -> Tensor:
    return ops.softmax(tensor(x), axis=ints(axis))


def log_softmax(x: Value, axis: Value = -1) -> Tensor:
    return ops.log_softmax(tensor(x), axis=ints(axis))


def l2_normalize(x: Value, axis: Value = None, epsilon: Value = 1e-12) -> Tensor:
    x = tensor(x)
    over = tuple(range(len(x.shape))) if axis is None else axes(axis)
    squares = ops.sum(ops.square(x), over, keepdims=True)
    return x * ops.rsqrt(ops.maximum(squares, ops.cast(epsilon, dtype_of(x))))


def bias_add(x: Value, bias: Value, data_format: str = "NHWC") -> Tensor:
    x, bias = together(x, bias)
    if _is_first(data_format):
        return x + ops.reshape(bias, (1, -1, *[1] * (len(x.shape) - 2)))
    return x + bias


def batch_normalization(
    x: Value, mean: Value, variance: Value, offset: Value, scale: Value, epsilon: Value
) -> Tensor:
    x, mean, variance = together(x, mean, variance)
    factor = ops.rsqrt(variance + ops.cast(epsilon, dtype_of(x)))
    if scale is not None:
        factor = factor * together(x, scale)[1]
    shift = -mean * factor
    return x * factor + (shift if offset is None else shift + together(x, offset)[1])


def fused_batch_normalization(
    x: Value,
    scale: Value,
    offset: Value,
    mean: Value,
    variance: Value,
    epsilon: Value,
    data_format: str = "NHWC",
    is_training: bool = False,
    factor: Value = 1.0,
) -> list[Tensor]:
    """Returns (numbers, mean, variance); in training those of the batch, by `factor`.

    The variance that it returns is divided by one less than the count, that it uses by the count.
    float16 is computed in float32. Source: TF 2.15, core/kernels/fused_batch_norm_op.cc.
    """
    x, dtype = tensor(x), dtype_of(x)
    wide = ops.cast(x, "float32") if dtype != "float64" else x
    axis = 1 if _is_first(data_format) else len(x.shape) - 1
    width = [1] * len(x.shape)
    width[axis] = -1
    seen = [tensor(mean), tensor(variance)]
    if is_training:
        over = tuple(i for i in range(len(x.shape)) if i != axis)
        # Twice through the numbers: keras.ops.moments on JAX takes the difference of two squares.
        center = ops.mean(wide, over, keepdims=True)
        spread = ops.mean(ops.square(wide - center), over, keepdims=True)
        count = math.prod(ops.shape(x)[i] for i in over)
        rest = ops.cast(ops.maximum(count - 1, 1), dtype_of(wide))
        unbiased = spread * (ops.cast(count, dtype_of(wide)) / rest)
        new = [ops.reshape(one, (-1,)) for one in (center, unbiased)]
        if factor != 1:
            new = [old * (1 - factor) + one * factor for old, one in zip(seen, new, strict=True)]
        seen = new
    else:
        center, spread = (ops.reshape(one, width) for one in seen)
    scale, offset = (ops.reshape(tensor(one), width) for one in (scale, offset))
    found = (wide - center) * (ops.rsqrt(spread + epsilon) * scale) + offset
    return [ops.cast(found, dtype), *seen]


def local_response_normalization(
    x: Value, depth_radius: Value = 5, bias: Value = 1.0, alpha: Value = 1.0, beta: Value = 0.5
) -> Tensor:
    x = tensor(x)
    radius, depth = ints(depth_radius), x.shape[-1]
    squares = ops.pad(ops.square(x), [(0, 0)] * (len(x.shape) - 1) + [(radius, radius)])
    total = sum(squares[..., i : i + depth] for i in range(2 * radius + 1))
    return x / ops.power(bias + alpha * total, beta)


def _is_first(data_format: str | None) -> bool:
    return data_format is not None and (data_format == "channels_first" or data_format[1] == "C")


def _format(data_format: str | None) -> str:
    return "channels_first" if _is_first(data_format) else "channels_last"


def _spatial(value: Value, rank: int, data_format: str | None) -> Any:
    """Returns strides, sizes or dilations of the axes of space."""
    value = ints(value)
    if not isinstance(value, list):
        return value
    if len(value) == 1:
        return tuple(value * (rank - 2))
    if len(value) == rank:
        if value[0] != 1 or value[1 if _is_first(data_format) else -1] != 1:
            raise ValueError(f"{value} reaches over images or channels")
        value = value[2:] if _is_first(data_format) else value[1:-1]
    return tuple(value)


def _padded(x: Tensor, padding: Value, kernel: Any, dilations: Any, data_format: str | None) -> Any:
    """Returns what a convolution is given, and how it pads it itself."""
    if isinstance(padding, list):
        widths = [tuple(pair) for pair in ints(padding)]
        if len(widths) < len(x.shape):
            widths = [(0, 0), *widths, (0, 0)]
        return pad(x, widths), "valid"
    if padding.lower() == "causal":
        rate = dilations if isinstance(dilations, int) else dilations[0]
        left = (kernel.shape[0] - 1) * rate
        widths = [(0, 0), (left, 0), (0, 0)]
        return pad(x, widths), "valid"
    return x, padding.lower()


def conv(
    x: Value,
    kernel: Value,
    strides: Value = 1,
    padding: Value = "VALID",
    data_format: str | None = None,
    dilations: Value = 1,
) -> Tensor:
    return _convolved(ops.conv, x, kernel, strides, padding, data_format, dilations)


def depthwise_conv(
    x: Value,
    kernel: Value,
    strides: Value = 1,
    padding: Value = "VALID",
    data_format: str = "NHWC",
    dilations: Value = 1,
) -> Tensor:
    return _convolved(ops.depthwise_conv, x, kernel, strides, padding, data_format, dilations)


def _convolved(
    function: Callable[..., Tensor],
    x: Value,
    kernel: Value,
    strides: Value,
    padding: Value,
    data_format: str | None,
    dilations: Value,
) -> Tensor:
    x, kernel = together(x, kernel)
    rank = len(x.shape)
    rates = _spatial(dilations, rank, data_format)
    x, padding = _padded(x, padding, kernel, rates, data_format)
    steps = _spatial(strides, rank, data_format)
    return function(x, kernel, steps, padding, _format(data_format), rates)


def separable_conv(
    x: Value,
    depthwise_kernel: Value,
    pointwise_kernel: Value,
    strides: Value = 1,
    padding: Value = "VALID",
    data_format: str = "NHWC",
    dilations: Value = 1,
) -> Tensor:
    x = depthwise_conv(x, depthwise_kernel, strides, padding, data_format, dilations)
    return conv(x, pointwise_kernel, 1, "VALID", data_format)


def conv_transpose(
    x: Value,
    kernel: Value,
    output_shape: Value,
    strides: Value,
    padding: str = "SAME",
    data_format: str = "NHWC",
) -> Tensor:
    """The part of the whole product that TensorFlow takes, where a convolution would pad."""
    x, kernel = together(x, kernel)
    space = len(x.shape) - 2
    steps = _spatial(strides, space + 2, data_format)
    steps = (steps,) * space if isinstance(steps, int) else steps
    found = ops.conv_transpose(x, kernel, steps, "valid", 0, _format(data_format))
    first = 2 if _is_first(data_format) else 1
    given, wanted = ops.shape(x), dims(output_shape)
    keys, more = [slice(None)] * (space + 2), [(0, 0)] * (space + 2)
    for axis, step, width in zip(range(first, first + space), steps, kernel.shape, strict=False):
        whole = (given[axis] - 1) * step + width
        rest = maximum(subtract(whole, wanted[axis]), 0)
        before = rest // 2 if padding.lower() == "same" else 0
        keys[axis] = slice(before, before + wanted[axis])
        more[axis] = (0, maximum(subtract(wanted[axis], whole), 0))
    return pad(found[tuple(keys)], more)


def _pooled(
    function: Any, x: Value, pool_size: Value, strides: Value, padding: Any, form: Any
) -> Tensor:
    x = tensor(x)
    rank = len(x.shape)
    size = _spatial(pool_size, rank, form)
    steps = None if strides is None else _spatial(strides, rank, form)
    return function(x, size, steps, padding.lower(), _format(form))


def max_pool(
    x: Value,
    pool_size: Value,
    strides: Value = None,
    padding: str = "VALID",
    data_format: str | None = None,
) -> Tensor:
    return _pooled(ops.max_pool, x, pool_size, strides, padding, data_format)


def average_pool(
    x: Value,
    pool_size: Value,
    strides: Value = None,
    padding: str = "VALID",
    data_format: str | None = None,
) -> Tensor:
    return _pooled(_averages, x, pool_size, strides, padding, data_format)


def _averages(x: Tensor, size: Any, strides: Any, padding: str, form: str) -> Tensor:
    """Without what pads. keras.ops on torch counts it where it is not as wide on both sides."""
    there = x.shape[2:] if form == "channels_first" else x.shape[1:-1]
    sizes = (size,) * len(there) if isinstance(size, int) else size
    steps = (
        sizes
        if strides is None
        else (strides,) * len(there)
        if isinstance(strides, int)
        else strides
    )
    if padding != "same" or None in there:
        return ops.average_pool(x, size, strides, padding, form)
    outs = [-(-one // step) for one, step in zip(there, steps, strict=True)]
    more = [
        max((out - 1) * step + width - one, 0)
        for out, step, width, one in zip(outs, steps, sizes, there, strict=True)
    ]
    if not any(one % 2 for one in more):
        return ops.average_pool(x, size, strides, padding, form)
    widths = [(one // 2, one - one // 2) for one in more]
    share: Any = np.ones(())
    for axis, out in enumerate(outs):
        starts = np.arange(out) * steps[axis] - widths[axis][0]
        ends = np.minimum(starts + sizes[axis], there[axis])
        share = np.multiply.outer(share, (ends - np.maximum(starts, 0)) / sizes[axis])
    is_first = form == "channels_first"
    x = pad(x, [(0, 0), (0, 0), *widths] if is_first else [(0, 0), *widths, (0, 0)])
    found = ops.average_pool(x, sizes, steps, "valid", form)
    return ops.divide(found, ops.cast(share if is_first else share[..., None], dtype_of(found)))


def dropout(x: Value, rate: Value, noise_shape: Value = None, *, seed: Any) -> Tensor:
    x = tensor(x)
    shape = None if noise_shape is None else tuple(ints(noise_shape))
    return keras.random.dropout(x, float(rate), shape, seed=seed)


def softmax_cross_entropy(labels: Value, logits: Value, axis: Value = -1) -> Tensor:
    logits, labels = together(logits, labels)
    logs = ops.log_softmax(logits, axis=ints(axis))
    return -ops.sum(ops.cast(labels, dtype_of(logs)) * logs, axis=ints(axis))


def sparse_softmax_cross_entropy(labels: Value, logits: Value) -> Tensor:
    logits, labels = tensor(logits), ops.cast(tensor(labels), "int32")
    logs = ops.log_softmax(logits, axis=-1)
    picked = ops.take_along_axis(logs, ops.expand_dims(labels, -1), axis=-1)
    return -ops.squeeze(picked, -1)


def sigmoid_cross_entropy(labels: Value, logits: Value) -> Tensor:
    x, z = together(logits, labels)
    z = ops.cast(z, dtype_of(x))
    return ops.relu(x) - x * z + ops.log1p(ops.exp(-ops.absolute(x)))


def weighted_cross_entropy(labels: Value, logits: Value, pos_weight: Value) -> Tensor:
    x, z = together(logits, labels)
    weight = 1.0 + multiply(z, subtract(pos_weight, 1))
    return (1.0 - z) * x + weight * (ops.log1p(ops.exp(-ops.absolute(x))) + ops.relu(-x))


def log_poisson_loss(targets: Value, log_input: Value, compute_full_loss: bool = False) -> Tensor:
    x, z = together(log_input, targets)
    found = ops.exp(x) - x * z
    if not compute_full_loss:
        return found
    is_small = ops.logical_and(ops.greater_equal(z, 0), ops.less_equal(z, 1))
    whole = ops.where(is_small, ops.ones_like(z), z)
    stirling = whole * ops.log(whole) - whole + 0.5 * ops.log(2 * math.pi * whole)
    return found + ops.where(is_small, ops.zeros_like(z), stirling)


def ctc_loss(
    labels: Value,
    logits: Value,
    label_length: Value,
    logit_length: Value,
    logits_time_major: bool = True,
    blank_index: Value = 0,
) -> Tensor:
    """Of dense labels."""
    logits = tensor(logits)
    logits = ops.swapaxes(logits, 0, 1) if logits_time_major else logits
    if is_trying():  # lengths that are made up do not fit
        return ops.zeros(logits.shape[:1], dtype_of(logits))
    blank = ints(blank_index) % logits.shape[-1]
    labels, *lengths = (
        ops.cast(tensor(one), "int32") for one in (labels, label_length, logit_length)
    )
    logits = ops.concatenate(
        [logits[..., blank : blank + 1], logits[..., :blank], logits[..., blank + 1 :]], -1
    )
    labels = ops.where(ops.less(labels, blank), labels + 1, labels)
    return ops.ctc_loss(labels, ops.log_softmax(logits), *lengths, mask_index=0)


def categorical_crossentropy(
    target: Value, output: Value, from_logits: bool = False, axis: Value = -1
) -> Tensor:
    output, target = together(output, target)
    axis = ints(axis)
    target = ops.cast(target, dtype_of(output))
    if from_logits:
        return softmax_cross_entropy(target, output, axis)
    output = output / ops.sum(output, axis, keepdims=True)
    output = ops.clip(output, _LEAST, 1.0 - _LEAST)
    return -ops.sum(target * ops.log(output), axis)


def sparse_categorical_crossentropy(
    target: Value, output: Value, from_logits: bool = False
) -> Tensor:
    output = tensor(output)
    if not from_logits:
        output = ops.log(ops.clip(output, _LEAST, 1.0 - _LEAST))
    target = tensor(target)
    if len(target.shape) == len(output.shape):
        target = ops.squeeze(target, -1)
    return sparse_softmax_cross_entropy(target, output)


def binary_crossentropy(target: Value, output: Value, from_logits: bool = False) -> Tensor:
    output, target = together(output, target)
    target = ops.cast(target, dtype_of(output))
    if from_logits:
        return sigmoid_cross_entropy(target, output)
    output = ops.clip(output, _LEAST, float(np.float32(1.0) - np.float32(_LEAST)))
    # The maximum changes nothing; without it XLA would add 1 and 1e-7 first, and round.
    rest = ops.maximum(1.0 - output, 0.0)
    return -(target * ops.log(output + _LEAST) + (1.0 - target) * ops.log(rest + _LEAST))


def ctc_batch_cost(
    y_true: Value, y_pred: Value, input_length: Value, label_length: Value
) -> Tensor:
    """In tf.keras the last class is the blank, in keras.ops the first."""
    if is_trying():
        return ops.zeros((y_pred.shape[0], 1), dtype_of(y_pred))
    logs = ops.log(tensor(y_pred) + _LEAST)
    logs = ops.concatenate([logs[..., -1:], logs[..., :-1]], -1)
    labels = ops.cast(tensor(y_true), "int32") + 1
    lengths = [
        ops.reshape(ops.cast(tensor(one), "int32"), (-1,)) for one in (label_length, input_length)
    ]
    return ops.expand_dims(ops.ctc_loss(labels, logs, *lengths, mask_index=0), 1)
