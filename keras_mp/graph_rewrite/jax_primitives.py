"""The primitives of JAX, by the keras op that computes the same: TensorFlow's lists decide.

Plain data; knows names, not JAX. Primitives that are in no table compute in float32, and so do
functions with a gradient of their own, `jax.lax.cond` and `while_loop`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from keras_mp.graph_rewrite.foreign_ops import ForeignOp, as_they_are
from keras_mp.graph_rewrite.graph import Shape

_KINDS: Mapping[str, str] = {
    **{
        name: name
        for name in (
            *("exp", "exp2", "expm1", "log", "log1p", "tanh", "erf", "erfc", "rsqrt", "sqrt"),
            *("square", "abs", "sign", "floor", "ceil", "round", "reshape", "transpose", "squeeze"),
            *("expand_dims", "pad", "slice", "split", "tile", "stop_gradient", "copy"),
        )
    },
    "add": "add",
    "add_any": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "neg": "negative",
    "max": "maximum",
    "min": "minimum",
    "pow": "power",
    "integer_pow": "power",
    "logistic": "sigmoid",
    "select_n": "where",
    "clamp": "clip",
    "reduce_sum": "sum",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "prod",
    "broadcast_in_dim": "broadcast_to",
    "concatenate": "concatenate",
    "rev": "flip",
    "dynamic_slice": "slice",
    "gather": "take",
    "reduce_window_max": "max_pool",
    "copy_p": "copy",
}
# Functions of several primitives that count as one op: 16 bits go in and out of it, and float32
# computes between, as in batch normalization.
_UNITS: Mapping[str, str] = {
    **{
        name: name
        for name in (
            *("mean", "var", "std", "relu", "relu6", "silu", "gelu", "elu", "selu", "celu"),
            *("leaky_relu", "softplus", "softmax", "log_softmax", "logsumexp"),
        )
    },
    "soft_sign": "softsign",
}


def op_of(name: str, parameters: Mapping[str, Any]) -> ForeignOp:
    """Returns the op of a primitive, or of a function that counts as one.

    Args:
        name: "dot_general", "jnp.mean", "jax.nn.relu".
        parameters: Those of the primitive.

    >>> op_of("exp", {}).kind, op_of("jax.nn.relu", {}).inside, op_of("custom_vjp_call", {}).own
    ('exp', 'float32', 'unknown')
    """
    module, _, function = name.rpartition(".")
    if module:
        return ForeignOp(name, _UNITS[function], "listed", inside="float32")
    shown = f"lax.{name}"
    if name == "dot_general":
        (contracted, _), _ = parameters["dimension_numbers"]

        def of_product(shapes: Sequence[Shape]) -> Sequence[Shape]:
            # As if the sum were over the last side of the first factor.
            first = shapes[0]
            summed = math.prod(first[i] or 1 for i in contracted)
            return [(*first[:-1], summed), *shapes[1:]]

        return ForeignOp(shown, "matmul", "listed", of_product)
    if name == "conv_general_dilated":
        return _conv(shown, parameters)
    kind = _KINDS.get(name, "")
    return ForeignOp(shown, kind, "listed" if kind else "unknown", as_they_are)


def _conv(shown: str, parameters: Mapping[str, Any]) -> ForeignOp:
    outputs, inputs, *sides = parameters["dimension_numbers"].rhs_spec
    groups = parameters["feature_group_count"]
    is_dilated = any(each != 1 for each in parameters["lhs_dilation"])

    def of_conv(shapes: Sequence[Shape]) -> Sequence[Shape]:
        kernel = shapes[1]
        sized = [kernel[i] for i in sides]
        if groups > 1:
            return [shapes[0], (*sized, groups, (kernel[outputs] or groups) // groups)]
        return [shapes[0], (*sized, kernel[inputs], kernel[outputs])]

    kind = "conv_transpose" if is_dilated else "depthwise_conv" if groups > 1 else "conv"
    return ForeignOp(shown, kind, "listed", of_conv)
