"""Splits fused Keras ops into parts, which the lists treat separately.

The parts are called as keras ops, so each is recorded and painted by itself.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from keras import ops

_MASKED = -3e4  # as Keras masks logits in float16, where -1e9 is -inf


def of(name: str) -> Callable[..., Any] | None:
    """Returns what runs the parts of the keras op `name`, or None. It may return NotImplemented."""
    return _OF.get(name)


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    scale: float | None = None,
    is_causal: bool = False,
    flash_attention: bool | None = None,
    attn_logits_soft_cap: float | None = None,
) -> Any:
    """Two matrix products with a softmax between them.

    A requested fused kernel stays fused: it sums in float32 inside.

    Args:
        query: Shape (batch, time, heads, depth); see `keras.ops.dot_product_attention`.
    """
    shape = ops.shape(query)
    grouped = ops.shape(key)[2] != shape[2]
    if flash_attention or attn_logits_soft_cap is not None or grouped:
        return NotImplemented
    if scale is None:
        scale = 1.0 / math.sqrt(shape[-1])
    query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    logits = ops.multiply(ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))), scale)
    if bias is not None:
        logits = ops.add(logits, bias)
    if is_causal:
        rows, columns = ops.shape(logits)[-2:]
        causal = ops.tril(ops.ones((rows, columns), dtype="bool"))
        mask = causal if mask is None else ops.logical_and(mask, causal)
    if mask is not None:
        logits = ops.where(ops.cast(mask, "bool"), logits, _MASKED)
    return ops.transpose(ops.matmul(ops.softmax(logits, axis=-1), value), (0, 2, 1, 3))


def separable_conv(
    inputs: Any,
    depthwise_kernel: Any,
    pointwise_kernel: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """A depthwise convolution and a pointwise one."""
    between = ops.depthwise_conv(
        inputs, depthwise_kernel, strides, padding, data_format, dilation_rate
    )
    return ops.conv(between, pointwise_kernel, 1, "valid", data_format)


_OF: Mapping[str, Callable[..., Any]] = {
    "dot_product_attention": dot_product_attention,
    "separable_conv": separable_conv,
}
