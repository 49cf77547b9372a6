"""The TensorFlow ops that a keras op stands for: the lists use TensorFlow's names.

Contains only names that differ, or that depend on the arguments. From the implementations of TF
1.15: `tf.clip_by_value` is Minimum and Maximum, `tf.nn.moments` is Mean and SquaredDifference.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from keras_mp.graph_rewrite.graph import Shape
from keras_mp.graph_rewrite.lists import OpLists, op_lists
from keras_mp.graph_rewrite.painter import ListName

# Ops that combine their tensors with numbers, elementwise.
WITH_NUMBERS = frozenset(
    {
        "add", "subtract", "multiply", "divide", "true_divide", "floor_divide", "power", "maximum",
        "minimum", "clip", "where",
    }
)  # fmt: skip

_SAME: Mapping[str, str | tuple[str, ...]] = {
    # multiply and accumulate
    "matmul": "MatMul",
    "dot": "MatMul",
    "einsum": "MatMul",  # TF 1.15 has no op for it
    "inner": "MatMul",
    "tensordot": "MatMul",
    "vdot": "MatMul",
    "conv": "Conv2D",
    "conv_transpose": "Conv2DBackpropInput",
    "depthwise_conv": "DepthwiseConv2dNative",
    # arithmetic
    "add": "AddV2",
    "subtract": "Sub",
    "multiply": "Mul",
    "outer": "Mul",
    "divide": "RealDiv",
    "true_divide": "RealDiv",
    "floor_divide": "FloorDiv",
    "negative": "Neg",
    "reciprocal": "Reciprocal",
    "sqrt": "Sqrt",
    "rsqrt": "Rsqrt",
    "square": "Square",
    "power": "Pow",
    "exp": "Exp",
    "exp2": "Pow",
    "expm1": "Expm1",
    "log": "Log",
    "log2": ("Log", "RealDiv"),
    "log10": ("Log", "RealDiv"),
    "log1p": "Log1p",
    "logaddexp": ("Exp", "Log1p", "AddV2"),
    "logsumexp": ("Exp", "Sum", "Log"),
    "erf": "Erf",
    "erfc": "Erfc",
    "abs": "Abs",
    "absolute": "Abs",
    "sign": "Sign",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
    "maximum": "Maximum",
    "minimum": "Minimum",
    "clip": ("Minimum", "Maximum"),
    "equal": "Equal",
    "not_equal": "NotEqual",
    "greater": "Greater",
    "greater_equal": "GreaterEqual",
    "less": "Less",
    "less_equal": "LessEqual",
    "isfinite": "IsFinite",
    "isinf": "IsInf",
    "isnan": "IsNan",
    "where": "Select",
    # reductions
    "sum": "Sum",
    "mean": "Mean",
    "average": ("Mul", "Sum", "RealDiv"),
    "prod": "Prod",
    "max": "Max",
    "amax": "Max",
    "min": "Min",
    "amin": "Min",
    "argmax": "ArgMax",
    "argmin": "ArgMin",
    "var": ("Mean", "SquaredDifference"),
    "std": ("Mean", "SquaredDifference", "Sqrt"),
    "moments": ("Mean", "SquaredDifference"),
    "norm": ("Sum", "Square", "Sqrt"),
    "top_k": "TopKV2",
    # shapes
    "broadcast_to": "BroadcastTo",
    "concatenate": "ConcatV2",
    "append": "ConcatV2",
    "hstack": "ConcatV2",
    "vstack": "ConcatV2",
    "dstack": "ConcatV2",
    "copy": "Identity",
    "depth_to_space": "DepthToSpace",
    "expand_dims": "ExpandDims",
    "flip": "ReverseV2",
    "full_like": "Fill",
    "get_item": "StridedSlice",
    "moveaxis": "Transpose",
    "one_hot": "OneHot",
    "ones_like": "OnesLike",
    "pad": "Pad",
    "ravel": "Reshape",
    "repeat": ("Reshape", "Tile"),
    "reshape": "Reshape",
    "slice": "Slice",
    "space_to_depth": "SpaceToDepth",
    "split": "Split",
    "squeeze": "Squeeze",
    "stack": "Pack",
    "stop_gradient": "StopGradient",
    "swapaxes": "Transpose",
    "take": "GatherV2",
    "take_along_axis": "GatherNd",
    "tile": "Tile",
    "transpose": "Transpose",
    "unstack": "Unpack",
    "zeros_like": "ZerosLike",
    # activations
    "elu": "Elu",
    "celu": ("Exp", "Maximum", "Minimum"),
    "glu": ("Sigmoid", "Mul", "Split"),
    "hard_shrink": ("Select", "Abs", "Greater"),
    "hard_sigmoid": ("Mul", "AddV2", "ClipByValue"),
    "hard_silu": ("Mul", "AddV2", "ClipByValue"),
    "hard_tanh": "ClipByValue",
    "leaky_relu": "LeakyRelu",
    "log_sigmoid": ("Softplus", "Neg"),
    "log_softmax": "LogSoftmax",
    "relu": "Relu",
    "relu6": "Relu6",
    "selu": ("Elu", "Mul"),  # tf.keras.activations.selu
    "sigmoid": "Sigmoid",
    "silu": ("Mul", "Sigmoid"),
    "softmax": "Softmax",
    "softplus": "Softplus",
    "softsign": "Softsign",
    "tanh": "Tanh",
    # layers
    "batch_normalization": "FusedBatchNormV3",
    "dropout": "Mul",
    "layer_normalization": ("Mean", "SquaredDifference", "Rsqrt", "Mul"),
    "rms_normalization": ("Mean", "Square", "Rsqrt", "Mul"),
    "categorical_crossentropy": "SoftmaxCrossEntropyWithLogits",
    "sparse_categorical_crossentropy": "SparseSoftmaxCrossEntropyWithLogits",
    "binary_crossentropy": ("Log", "Mul", "Sum"),
    "ctc_loss": ("Exp", "Log"),
}


def stands_for(
    name: str,
    shapes: Sequence[Shape] = (),
    arguments: Mapping[str, Any] | None = None,
    of_variable: bool = False,
) -> tuple[str, ...]:
    """Returns the names of the TensorFlow ops that the keras op `name` stands for.

    Args:
        name: Name of a keras op.
        shapes: Shapes of its tensors, if the rank decides.
        arguments: Its other arguments, by name.
        of_variable: Whether the first tensor is a variable.

    Returns:
        The main op first; () for an op that TensorFlow's lists do not cover.

    >>> stands_for("matmul"), stands_for("conv", [(8, 4, 4, 4, 3)]), stands_for("sin")
    (('MatMul',), ('Conv3D',), ())
    """
    arguments = arguments or {}
    rank = len(shapes[0]) if shapes else 0
    if name == "take" and of_variable:
        return ("ResourceGather",)
    if name == "matmul" and any(len(shape) > 2 for shape in shapes[:2]):
        return ("BatchMatMulV2",)
    if name == "conv" and rank == 5:
        return ("Conv3D",)
    if name == "conv_transpose" and rank == 5:
        return ("Conv3DBackpropInputV2",)
    if name == "max_pool":
        return ("MaxPool3D",) if rank == 5 else ("MaxPool",)
    if name == "average_pool":
        return ("AvgPool3D",) if rank == 5 else ("AvgPool",)
    if name == "gelu":
        cube = ("Pow", "Tanh") if arguments.get("approximate", True) else ("Erf",)
        return ("Mul", "AddV2", *cube)
    if name == "resize":
        nearest = arguments.get("interpolation", "bilinear") == "nearest"
        return ("ResizeNearestNeighbor",) if nearest else ("ResizeBilinear",)
    found = _SAME.get(name, ())
    return (found,) if isinstance(found, str) else found


def by_tensorflow_op() -> dict[str, str]:
    """Returns the keras op for each TensorFlow op that is one.

    >>> [by_tensorflow_op()[name] for name in ("MatMul", "AddV2", "Relu")]
    ['matmul', 'add', 'relu']
    """
    found: dict[str, str] = {}
    for name, op in _SAME.items():
        if isinstance(op, str):
            found.setdefault(op, name)
    return found


def list_of(name: str, names: Sequence[str], lists: OpLists) -> ListName | None:
    """Returns the list of a keras op: "allow", "infer", "deny", "clear", or None for a wall.

    The op's own name counts before the names that it stands for. An op that stands for several ops
    gets the least safe list of them: denied if one is, a wall if one is in no list.

    Args:
        name: Name of the keras op.
        names: The TensorFlow ops that it stands for.
        lists: An `OpLists`.
    """
    own = lists.list_of(name)
    if lists.force_all and name not in lists.allow and None in map(lists.list_of, names):
        return None  # never forced, nor by another name
    if own is None:
        own = _least_safe([lists.list_of(each) for each in names])
        if (own, name) in lists.removed:
            return None
    return own


# Arguments that decide besides the name, one entry per outcome.
_FORMS: Sequence[Mapping[str, Any]] = (
    {},
    {"shapes": [(1,) * 5, (1,) * 5]},
    {"of_variable": True},
    {"arguments": {"approximate": False, "interpolation": "nearest"}},
)


def check_removed(lists: OpLists) -> None:
    """Raises ValueError if a Keras op was removed from a list that never contains it."""
    as_shipped = op_lists(lists.name, environ={})
    for key, name in sorted(lists.removed):
        forms = [stands_for(name, **form) for form in _FORMS]
        kinds = {list_of(name, names, as_shipped) for names in forms}
        # The environment may have added its TensorFlow ops there.
        if key in kinds | {_least_safe([lists.list_of(op) for op in names]) for names in forms}:
            continue
        others = " or ".join(sorted(filter(None, kinds)))
        why = f"not in the {key} list but in {others}" if others else f"in no list of {lists.name}"
        raise ValueError(
            f"{key}_remove names the Keras op {name}, which is {why}: check the spelling."
        )


def _least_safe(kinds: Sequence[ListName | None]) -> ListName | None:
    if len(kinds) <= 1:
        return kinds[0] if kinds else None
    if "deny" in kinds:
        return "deny"
    if None in kinds:
        return None
    return "infer" if "infer" in kinds or "allow" in kinds else "clear"
