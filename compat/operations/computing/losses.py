"""Losses and metrics of Keras 2: a number for each of all axes but the last.

Source: TF 2.15, Keras' losses.py, backend.py and utils/metrics_utils.py.
"""

from typing import Any

from keras import ops

from keras_mp.compat.operations.computing.indexing import in_top_k
from keras_mp.compat.operations.computing.networks import binary_crossentropy
from keras_mp.compat.operations.computing.values import (
    Tensor,
    Value,
    dtype_of,
    ints,
    tensor,
    together,
)

_LEAST = 1e-7  # K.epsilon()


def _pair(y_true: Value, y_pred: Value) -> tuple[Tensor, Tensor]:
    """Returns both in the dtype of what is predicted."""
    y_pred, y_true = together(y_pred, y_true)
    return ops.cast(y_true, dtype_of(y_pred)), y_pred


def _mean(x: Tensor) -> Tensor:
    return ops.mean(x, -1)


def mean_absolute_percentage_error(y_true: Value, y_pred: Value) -> Tensor:
    y_true, y_pred = _pair(y_true, y_pred)
    size = ops.maximum(ops.absolute(y_true), _LEAST)
    return 100.0 * _mean(ops.absolute((y_true - y_pred) / size))


def mean_squared_logarithmic_error(y_true: Value, y_pred: Value) -> Tensor:
    logs = [ops.log(ops.maximum(one, _LEAST) + 1.0) for one in _pair(y_true, y_pred)]
    return _mean(ops.square(logs[1] - logs[0]))


def huber(y_true: Value, y_pred: Value, delta: Value = 1.0) -> Tensor:
    y_true, y_pred = (ops.cast(one, "float32") for one in _pair(y_true, y_pred))
    error = ops.absolute(y_pred - y_true)
    near, far = 0.5 * ops.square(error), delta * error - 0.5 * delta**2
    return _mean(ops.where(ops.less_equal(error, delta), near, far))


def log_cosh(y_true: Value, y_pred: Value) -> Tensor:
    y_true, y_pred = _pair(y_true, y_pred)
    error = y_pred - y_true
    half = ops.log(ops.cast(2.0, dtype_of(error)))
    return _mean(error + ops.softplus(-2.0 * error) - half)


def kl_divergence(y_true: Value, y_pred: Value) -> Tensor:
    y_true, y_pred = (ops.clip(one, _LEAST, 1.0) for one in _pair(y_true, y_pred))
    return ops.sum(y_true * ops.log(y_true / y_pred), -1)


def poisson(y_true: Value, y_pred: Value) -> Tensor:
    y_true, y_pred = _pair(y_true, y_pred)
    return _mean(y_pred - y_true * ops.log(y_pred + _LEAST))


def _margins(y_true: Value, y_pred: Value) -> Tensor:
    """Labels of 0 and 1 stand for -1 and 1."""
    y_true, y_pred = _pair(y_true, y_pred)
    is_binary = ops.all(ops.logical_or(ops.equal(y_true, 0), ops.equal(y_true, 1)))
    signs = ops.where(is_binary, 2.0 * y_true - 1.0, y_true)
    return ops.maximum(1.0 - signs * y_pred, 0.0)


def hinge(y_true: Value, y_pred: Value) -> Tensor:
    return _mean(_margins(y_true, y_pred))


def squared_hinge(y_true: Value, y_pred: Value) -> Tensor:
    return _mean(ops.square(_margins(y_true, y_pred)))


def categorical_hinge(y_true: Value, y_pred: Value) -> Tensor:
    y_true, y_pred = _pair(y_true, y_pred)
    positive = ops.sum(y_true * y_pred, -1)
    negative = ops.max((1.0 - y_true) * y_pred, -1)
    return ops.maximum(negative - positive + 1.0, 0.0)


def smooth_labels(y_true: Value, y_pred: Value, label_smoothing: Value, classes: Value) -> Tensor:
    y_true, _ = _pair(y_true, y_pred)
    share = label_smoothing / ops.cast(classes, dtype_of(y_true))
    return y_true * (1.0 - label_smoothing) + share


def binary_focal_crossentropy(
    y_true: Value,
    y_pred: Value,
    apply_class_balancing: bool = False,
    alpha: Value = 0.25,
    gamma: Value = 2.0,
    from_logits: bool = False,
    label_smoothing: Value = 0.0,
    axis: Value = -1,
) -> Tensor:
    y_true, y_pred = _pair(smooth_labels(y_true, y_pred, label_smoothing, 2), y_pred)
    sure = ops.sigmoid(y_pred) if from_logits else y_pred
    right = y_true * sure + (1.0 - y_true) * (1.0 - sure)
    found = ops.power(1.0 - right, gamma) * binary_crossentropy(y_true, y_pred, from_logits)
    if apply_class_balancing:
        found = (y_true * alpha + (1.0 - y_true) * (1.0 - alpha)) * found
    return ops.mean(found, ints(axis))


def categorical_focal_crossentropy(
    y_true: Value,
    y_pred: Value,
    alpha: Value = 0.25,
    gamma: Value = 2.0,
    from_logits: bool = False,
    label_smoothing: Value = 0.0,
    axis: Value = -1,
) -> Tensor:
    over = ints(axis)
    y_true = smooth_labels(y_true, y_pred, label_smoothing, ops.shape(tensor(y_true))[-1])
    y_true, y_pred = _pair(y_true, y_pred)
    sure = ops.softmax(y_pred, over) if from_logits else y_pred
    sure = ops.clip(sure / ops.sum(sure, over, keepdims=True), _LEAST, 1.0 - _LEAST)
    weights = ops.power(1.0 - sure, gamma) * alpha
    return ops.sum(weights * (-y_true * ops.log(sure)), over)


def binary_accuracy(y_true: Value, y_pred: Value, threshold: Value = 0.5) -> Tensor:
    y_true, y_pred = _pair(y_true, y_pred)
    found = ops.cast(ops.greater(y_pred, ops.cast(threshold, dtype_of(y_pred))), dtype_of(y_pred))
    return _mean(ops.cast(ops.equal(y_true, found), "float32"))


def sparse_categorical_accuracy(y_true: Value, y_pred: Value) -> Tensor:
    y_true, y_pred = tensor(y_true), tensor(y_pred)
    if len(y_true.shape) == len(y_pred.shape):
        y_true = ops.squeeze(y_true, -1)
    found = ops.cast(ops.argmax(y_pred, -1), dtype_of(y_true))
    return ops.cast(ops.equal(y_true, found), "float32")


def sparse_top_k_categorical_accuracy(y_true: Value, y_pred: Value, k: Value = 5) -> Tensor:
    y_true, y_pred = tensor(y_true), tensor(y_pred)
    sizes: Any = ops.shape(y_true)
    rows = ops.reshape(y_pred, (-1, y_pred.shape[-1]))
    found = in_top_k(ops.reshape(ops.cast(y_true, "int32"), (-1,)), rows, k)
    return ops.reshape(ops.cast(found, "float32"), sizes)
