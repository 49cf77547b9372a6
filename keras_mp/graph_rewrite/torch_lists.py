"""The lists of `torch.autocast`: which functions of torch compute in 16 bits.

Those for CUDA of PyTorch 2.13, aten/src/ATen/autocast_mode.h. Those for CPUs have no rule for
softmax, exp and the like, and are not used: decisions do not depend on the device. Plain data;
knows names, not torch.
"""

from collections.abc import Callable, Mapping, Sequence

from keras_mp.graph_rewrite.foreign_ops import ForeignOp, Own, as_they_are
from keras_mp.graph_rewrite.graph import Shape

# Name of torch -> the keras op that computes the same; "" if there is none.
_ALLOW: Mapping[str, str] = {
    **dict.fromkeys(("matmul", "mm", "mv", "bmm", "linear", "__matmul__", "__rmatmul__"), "matmul"),
    **dict.fromkeys(("addmm", "addmv", "addbmm", "baddbmm", "addr", "chain_matmul"), "matmul"),
    **dict.fromkeys(("multi_dot", "linalg_multi_dot", "vecdot", "linalg_vecdot"), "matmul"),
    "einsum": "einsum",
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution", "conv_tbc"), "conv"),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), "conv_transpose"),
    "prelu": "",
    "scaled_dot_product_attention": "dot_product_attention",
}
# They run several ops, some of them on the lists.
_COMPOSITE = frozenset(
    {
        "multi_head_attention_forward", "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell",
        "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
    }
)  # fmt: skip
_DENY: Mapping[str, str] = {
    "float": "",
    **{
        name: name
        for name in (
            *("exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "softplus"),
            *("logsumexp", "softmax", "log_softmax", "sum", "prod", "norm"),
        )
    },
    **dict.fromkeys(("pow", "__pow__", "__rpow__", "float_power"), "power"),
    "layer_norm": "layer_normalization",
    "rms_norm": "rms_normalization",
    "interpolate": "resize",
    **dict.fromkeys(
        (
            *("acos", "asin", "cosh", "erfinv", "sinh", "tan", "group_norm", "cumsum", "cumprod"),
            *("frobenius_norm", "nuclear_norm", "linalg_vector_norm", "linalg_matrix_norm"),
            *("linalg_norm", "vector_norm", "matrix_norm", "dist", "pdist", "cdist", "renorm"),
            *("cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss", "nll_loss"),
            *("hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss"),
            *("mse_loss", "margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss"),
            *("triplet_margin_loss", "multi_margin_loss", "binary_cross_entropy_with_logits"),
            *("cross_entropy", "binary_cross_entropy", "upsample", "softmin", "pairwise_distance"),
            *("local_response_norm", "normalize", "gaussian_nll_loss", "__rtruediv__", "__rdiv__"),
        ),
        "",
    ),
}
# Those without a rule compute in the dtype of their inputs; those of "widest type" in the widest.
_FOLLOW: Mapping[str, str] = {
    **{
        name: name
        for name in (
            *("relu", "relu6", "elu", "celu", "selu", "gelu", "silu", "leaky_relu", "sigmoid"),
            *(
                "tanh",
                "glu",
                "abs",
                "absolute",
                "add",
                "subtract",
                "multiply",
                "divide",
                "negative",
            ),
            *("square", "sqrt", "maximum", "minimum", "where", "mean", "var", "std", "max", "min"),
            *("amax", "amin", "reshape", "transpose", "swapaxes", "moveaxis", "squeeze", "ravel"),
            *("split", "stack", "concatenate", "hstack", "vstack", "tile", "flip", "pad", "sign"),
            *("floor", "ceil", "round", "erf", "dropout", "broadcast_to", "dot", "vdot"),
            *("tensordot", "true_divide", "floor_divide", "take_along_axis", "roll", "sin", "cos"),
        )
    },
    **dict.fromkeys(("__add__", "__radd__"), "add"),
    **dict.fromkeys(("sub", "__sub__", "__rsub__", "rsub"), "subtract"),
    **dict.fromkeys(("mul", "__mul__", "__rmul__"), "multiply"),
    "__floordiv__": "floor_divide",
    **dict.fromkeys(("div", "__truediv__", "__div__"), "divide"),
    **dict.fromkeys(("neg", "__neg__"), "negative"),
    **dict.fromkeys(("cat", "concat"), "concatenate"),
    **dict.fromkeys(("view", "flatten", "unflatten", "view_as", "reshape_as"), "reshape"),
    **dict.fromkeys(("permute", "t", "swapdims", "adjoint", "movedim"), "transpose"),
    **dict.fromkeys(("__get__:T", "__get__:mT"), "transpose"),
    **dict.fromkeys(("chunk", "tensor_split"), "split"),
    "unbind": "unstack",
    "unsqueeze": "expand_dims",
    "narrow": "slice",
    "select": "get_item",
    "__getitem__": "get_item",
    **dict.fromkeys(("expand", "expand_as"), "broadcast_to"),
    **dict.fromkeys(("repeat", "repeat_interleave"), "repeat"),
    **dict.fromkeys(("contiguous", "clone", "identity"), "copy"),
    **dict.fromkeys(("dropout1d", "dropout2d", "dropout3d"), "dropout"),
    "detach": "stop_gradient",
    "gather": "take_along_axis",
    "clamp": "clip",
    "clip": "clip",
    "hardtanh": "clip",
    **dict.fromkeys(("masked_fill",), "where"),
    **dict.fromkeys(("batch_norm", "instance_norm"), "batch_normalization"),
    **dict.fromkeys(
        ("max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices"), "max_pool"
    ),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), "average_pool"),
    **dict.fromkeys(("adaptive_max_pool1d", "adaptive_max_pool2d"), "max_pool"),
    **dict.fromkeys(
        ("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"), "average_pool"
    ),
    **dict.fromkeys(("adaptive_max_pool3d",), "max_pool"),
    **dict.fromkeys(("hardsigmoid", "hardswish", "mish", "softsign", "logsigmoid"), ""),
    **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle", "tril", "triu", "diagonal", "unfold"), ""),
    **dict.fromkeys(("index_select", "masked_select", "alpha_dropout", "feature_dropout"), ""),
    **dict.fromkeys(("addcdiv", "addcmul", "lerp"), ""),
    **dict.fromkeys(("atan2", "bilinear", "cross", "scatter_add", "index_put", "grid_sample"), ""),
}
# Their results may share memory with their argument.
_VIEWS = frozenset(
    {
        "reshape", "view", "flatten", "unflatten", "view_as", "reshape_as", "ravel", "transpose",
        "permute", "t", "swapdims", "swapaxes", "adjoint", "movedim", "moveaxis", "__get__:T",
        "__get__:mT", "squeeze", "unsqueeze", "split", "chunk", "tensor_split", "unbind", "narrow",
        "select", "__getitem__", "expand", "expand_as", "broadcast_to", "contiguous", "identity",
        "detach", "diagonal", "unfold",
    }
)  # fmt: skip
_LISTS: Sequence[tuple[Own, Mapping[str, str]]] = (
    ("allow", _ALLOW),
    ("deny", _DENY),
    ("follow", _FOLLOW),
)


def _of_linear(shapes: Sequence[Shape]) -> Sequence[Shape]:
    """Returns the shapes of a product whose second factor is transposed."""
    return [shapes[0], shapes[1][::-1], *shapes[2:]] if len(shapes) > 1 else shapes


def _of_conv(shapes: Sequence[Shape]) -> Sequence[Shape]:
    """Returns (kernel sides, inputs, outputs) for (outputs, inputs, kernel sides)."""
    if len(shapes) < 2:
        return shapes
    kernel = shapes[1]
    return [shapes[0], (*kernel[2:], kernel[1], kernel[0]), *shapes[2:]]


def _of_added(shapes: Sequence[Shape]) -> Sequence[Shape]:
    """Returns the shapes of the factors where the first tensor is added to their product."""
    return shapes[1:]


_SHAPES: Mapping[str, Callable[[Sequence[Shape]], Sequence[Shape]]] = {
    "linear": _of_linear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _of_conv),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _of_conv),
    **dict.fromkeys(("addmm", "addmv", "addbmm", "baddbmm"), _of_added),
}


def op_of(name: str) -> ForeignOp:
    """Returns the op of a name of torch.

    >>> op = op_of("conv2d")
    >>> op.name, op.kind, op.own, op_of("fft").own
    ('torch.conv2d', 'conv', 'allow', 'unknown')
    """
    known = OPS.get(name)
    if known is not None:
        return known
    return ForeignOp(_shown(name), "", "in_place" if _is_in_place(name) else "unknown")


def _is_in_place(name: str) -> bool:
    """Returns whether a function changes its first argument.

    >>> [_is_in_place(name) for name in ("add_", "__setitem__", "__iadd__", "__invert__", "add")]
    [True, True, True, False, False]
    """
    if name.endswith("__"):
        return name == "__setitem__" or name[2:-2] in _IN_PLACE
    return name.endswith("_")


_IN_PLACE = frozenset({"iadd", "isub", "imul", "itruediv", "idiv", "ifloordiv", "ipow", "imod"})


def _shown(name: str) -> str:
    name = name.removeprefix("__get__:")
    return f"torch.{name.strip('_') if name.endswith('__') else name.lstrip('_')}"


OPS: Mapping[str, ForeignOp] = {
    **{
        name: ForeignOp(
            _shown(name), kind, own, _SHAPES.get(name, as_they_are), is_view=name in _VIEWS
        )
        for own, kinds in _LISTS
        for name, kind in kinds.items()
    },
    **{name: ForeignOp(_shown(name), "", "allow", inside="autocast") for name in _COMPOSITE},
}
