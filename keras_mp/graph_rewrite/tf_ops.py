"""The ops of TensorFlow, by the keras op that computes the same: for its gradient and its cost.

Plain data; knows names, not TensorFlow. The lists have an op by its own name.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_mp.graph_rewrite import keras_ops
from keras_mp.graph_rewrite.foreign_ops import ForeignOp, as_they_are
from keras_mp.graph_rewrite.graph import Shape

_KINDS: Mapping[str, str] = {
    **keras_ops.by_tensorflow_op(),
    **dict.fromkeys(("Add", "BiasAdd"), "add"),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2"), "matmul"),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2"), "batch_normalization"),
    **dict.fromkeys(("MaxPool", "MaxPoolV2", "MaxPool3D"), "max_pool"),
    **dict.fromkeys(("AvgPool", "AvgPool3D"), "average_pool"),
    **dict.fromkeys(("ResizeBilinear", "ResizeNearestNeighbor"), "resize"),
    **dict.fromkeys(("MirrorPad", "PadV2"), "pad"),
    "Conv3D": "conv",
    "Conv3DBackpropInputV2": "conv_transpose",
    "Einsum": "einsum",
    "Gather": "take",
    "Reshape": "reshape",
    "SelectV2": "where",
    "Selu": "selu",
    "SplitV": "split",
    "Transpose": "transpose",
}
# Newer than TensorFlow 1.15, and as what it had instead.
_OLDER: Mapping[str, str] = {"Einsum": "MatMul"}
# Functions of several ops, with a gradient of their own, that count as one.
_UNITS: Mapping[str, str] = {"custom_gradient swish_impl": "silu"}


def op_of(
    name: str,
    attributes: Mapping[str, Any],
    fixed: frozenset[int],
    outputs: tuple[bool, ...],
    takes_16_bits: bool,
) -> ForeignOp:
    """Returns an op of TensorFlow.

    Args:
        name: "MatMul".
        attributes: Its other arguments.
        fixed: The places of the tensors that stay as they are where others are in 16 bits.
        outputs: Whether each result has the dtype of the other arguments.
        takes_16_bits: Whether it can be computed in 16 bits.

    >>> op = op_of("Einsum", {"equation": "ab,bc->ac"}, frozenset(), (True,), True)
    >>> op.name, op.kind, op.stands_for, op.equation
    ('tf.Einsum', 'einsum', ('MatMul',), 'ab,bc->ac')
    """
    if not takes_16_bits:
        return ForeignOp(f"tf.{name}", "", "unknown")
    return ForeignOp(
        f"tf.{name}",
        _KINDS.get(name, ""),
        "tensorflow",
        _shapes_of(name, attributes),
        stands_for=(_OLDER.get(name, name),),
        equation=_text(attributes.get("equation")),
        fixed=fixed,
        outputs=outputs,
    )


def unit_of(name: str) -> ForeignOp:
    """Returns a function that is kept whole: a graph, or one with a gradient of its own.

    >>> unit_of("custom_gradient swish_impl").name, unit_of("function").own
    ('tf.nn.silu', 'unknown')
    """
    if name in _UNITS:
        return ForeignOp(f"tf.nn.{_UNITS[name]}", _UNITS[name], "listed", inside="float32")
    return ForeignOp(f"tf.{name}", "", "unknown", inside="function")


def _text(x: Any) -> str:
    return x.decode() if isinstance(x, bytes) else str(x or "")


def _shapes_of(
    name: str, attributes: Mapping[str, Any]
) -> Callable[[Sequence[Shape]], Sequence[Shape]]:
    if attributes.get("transpose_a") or attributes.get("adj_x"):
        # As if the sum were over the last side of the first factor.
        return lambda shapes: [(*shapes[0][:-2], shapes[0][-1], shapes[0][-2]), *shapes[1:]]
    if name in ("Conv2DBackpropInput", "Conv3DBackpropInputV2"):
        return lambda shapes: [shapes[-1], *shapes[1:-1]]  # data, kernel
    return as_they_are
