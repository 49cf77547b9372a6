"""TensorFlow's operations, and the one function of Keras that computes the same.

Knows names and parameters, no syntax. A function is left out where Keras has none for it, or only
with other results. `tests/each/migration/test_operation_tables.py` compares the parameters with
those of both functions, and computes each row with both.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """Functions of TensorFlow that are one function of Keras.

    Attributes:
        names: Below `tf.`, or below `keras.backend.`, separated by spaces.
        counterpart: Dotted, such as "keras.ops.mean".
        parameters: Those of TensorFlow in their order, without `name`: "axis", which is called the
            same; "perm=axes", which is called axes in Keras; "-conjugate", which Keras has not;
            "axis*", which has another position in Keras.
        defaults: What must be given where the program gives nothing: "axis=0".
        also: What must be given in any case: "from_logits=True".
        needs: Parameters of TensorFlow without which Keras does something else.
        instead: What to do where the program gives a parameter that Keras has not.
        mind: A parameter, and what differs where the program gives it.
        note: What else differs.
    """

    names: str
    counterpart: str
    parameters: str = "x"
    defaults: str = ""
    also: str = ""
    needs: str = ""
    instead: str = ""
    mind: tuple[str, str] = ("", "")
    note: str = ""

    def differences(self, positional: int, keywords: Iterable[str]) -> list[str] | None:
        """Returns what a call of the counterpart must do otherwise; None where there is none.

        Args:
            positional: How many arguments are given by position.
            keywords: Names of the others.

        >>> row = Operation("transpose", "keras.ops.transpose", "a=x perm=axes -conjugate")
        >>> row.differences(2, []), row.differences(1, ["perm", "conjugate"])
        ([], ['perm= is axes= there', 'it has no conjugate='])
        """
        given = set(keywords)
        by_name = given | {_tensorflow(each) for each in self.parameters.split()[:positional]}
        if not set(self.needs.split()) <= by_name:
            return None
        said = []
        for at, each in enumerate(self.parameters.split()):
            name, new = _tensorflow(each), _keras(each)
            if name not in by_name:
                continue
            if new is None:
                said.append(f"it has no {name}=")
            elif name in given and name != new:
                said.append(f"{name}= is {new}= there")
            elif at < positional and each.endswith("*"):
                said.append(f"give {new}= by its name")
        if self.instead and any(each.startswith("it has no") for each in said):
            said.append(self.instead)
        if "name" in given:
            said.append("it has no name=")
        missing = [each for each in self.defaults.split() if each.split("=")[0] not in by_name]
        said += [f"give {each}" for each in (*missing, *self.also.split())]
        said += [self.mind[1]] if self.mind[0] in by_name else []
        return [*said, self.note] if self.note else said


def _tensorflow(parameter: str) -> str:
    return parameter.strip("-*").split("=")[0]


def _keras(parameter: str) -> str | None:
    return None if parameter.startswith("-") else parameter.strip("*").split("=")[-1]


def _reductions(rows: Mapping[str, str]) -> list[Operation]:
    parameters = "input_tensor=x axis keepdims"
    return [Operation(names, f"keras.ops.{new}", parameters) for new, names in rows.items()]


def _of_one(rows: Mapping[str, str], parameter: str = "x") -> list[Operation]:
    return [Operation(names, f"keras.ops.{new}", parameter) for new, names in rows.items()]


def _of_two(rows: Mapping[str, str]) -> list[Operation]:
    return [Operation(names, f"keras.ops.{new}", "x=x1 y=x2") for new, names in rows.items()]


_SPACE = "padding is in lower case, and strides and dilations are those of the space alone"
_SEED = "seed= is a keras.random.SeedGenerator of the layer"

OPERATIONS: tuple[Operation, ...] = (
    *_reductions(
        {
            "mean": "reduce_mean math.reduce_mean",
            "sum": "reduce_sum math.reduce_sum",
            "prod": "reduce_prod math.reduce_prod",
            "max": "reduce_max math.reduce_max",
            "min": "reduce_min math.reduce_min",
            "all": "reduce_all math.reduce_all",
            "any": "reduce_any math.reduce_any",
            "logsumexp": "reduce_logsumexp math.reduce_logsumexp",
            "std": "math.reduce_std",
            "var": "math.reduce_variance",
        }
    ),
    *_of_one(
        {
            "abs": "abs math.abs",
            "negative": "negative math.negative",
            "sign": "sign math.sign",
            "square": "square math.square",
            "sqrt": "sqrt math.sqrt",
            "rsqrt": "math.rsqrt rsqrt",
            "reciprocal": "math.reciprocal reciprocal",
            "exp": "exp math.exp",
            "expm1": "math.expm1 expm1",
            "log": "math.log log",
            "log1p": "math.log1p log1p",
            "sin": "sin math.sin",
            "cos": "cos math.cos",
            "tan": "tan math.tan",
            "arcsin": "asin math.asin",
            "arccos": "acos math.acos",
            "arctan": "atan math.atan",
            "sinh": "sinh math.sinh",
            "cosh": "cosh math.cosh",
            "tanh": "tanh math.tanh nn.tanh",
            "arcsinh": "asinh math.asinh",
            "arccosh": "acosh math.acosh",
            "arctanh": "atanh math.atanh",
            "erf": "math.erf erf",
            "erfinv": "math.erfinv",
            "floor": "floor math.floor",
            "ceil": "math.ceil ceil",
            "round": "round math.round",
            "isfinite": "math.is_finite is_finite",
            "isinf": "math.is_inf is_inf",
            "isnan": "math.is_nan is_nan",
            "logical_not": "logical_not math.logical_not",
            "sigmoid": "sigmoid math.sigmoid nn.sigmoid",
            "log_sigmoid": "math.log_sigmoid log_sigmoid",
        }
    ),
    *_of_one(
        {
            "relu": "nn.relu",
            "relu6": "nn.relu6",
            "elu": "nn.elu",
            "selu": "nn.selu",
            "softplus": "math.softplus nn.softplus",
            "softsign": "math.softsign nn.softsign",
        },
        "features=x",
    ),
    *_of_one({"real": "math.real", "imag": "math.imag", "angle": "math.angle"}, "input=x"),
    *_of_two(
        {
            "add": "add math.add",
            "subtract": "subtract math.subtract",
            "multiply": "multiply math.multiply",
            "divide": "divide math.divide truediv math.truediv",
            "divide_no_nan": "math.divide_no_nan",
            "floor_divide": "math.floordiv",
            "mod": "math.floormod math.mod",
            "power": "pow math.pow",
            "maximum": "maximum math.maximum",
            "minimum": "minimum math.minimum",
            "equal": "equal math.equal",
            "not_equal": "not_equal math.not_equal",
            "greater": "greater math.greater",
            "greater_equal": "greater_equal math.greater_equal",
            "less": "less math.less",
            "less_equal": "less_equal math.less_equal",
            "logical_and": "logical_and math.logical_and",
            "logical_or": "logical_or math.logical_or",
            "logical_xor": "math.logical_xor",
        }
    ),
    Operation("bitwise.bitwise_and", "keras.ops.bitwise_and", "x y"),
    Operation("bitwise.bitwise_or", "keras.ops.bitwise_or", "x y"),
    Operation("bitwise.bitwise_xor", "keras.ops.bitwise_xor", "x y"),
    Operation("bitwise.invert", "keras.ops.bitwise_invert"),
    Operation("bitwise.left_shift", "keras.ops.bitwise_left_shift", "x y"),
    Operation("bitwise.right_shift", "keras.ops.bitwise_right_shift", "x y"),
    Operation("math.atan2", "keras.ops.arctan2", "y=x1 x=x2"),
    Operation("math.conj", "keras.ops.conj"),
    Operation("stop_gradient", "keras.ops.stop_gradient", "input=variable"),
    Operation("math.count_nonzero", "keras.ops.count_nonzero", "input=x axis -keepdims -dtype"),
    Operation("math.reduce_euclidean_norm", "keras.ops.norm", "input_tensor=x axis* keepdims*"),
    Operation(
        "norm linalg.norm",
        "keras.ops.norm",
        "tensor=x ord axis keepdims",
        mind=("ord", "its ord=None is 'euclidean'"),
    ),
    Operation(
        "argmax math.argmax", "keras.ops.argmax", "input=x axis -output_type", defaults="axis=0"
    ),
    Operation(
        "argmin math.argmin", "keras.ops.argmin", "input=x axis -output_type", defaults="axis=0"
    ),
    Operation(
        "cumsum math.cumsum",
        "keras.ops.cumsum",
        "x axis -exclusive -reverse",
        defaults="axis=0",
    ),
    Operation("math.cumprod", "keras.ops.cumprod", "x axis -exclusive -reverse", defaults="axis=0"),
    Operation(
        "math.top_k nn.top_k",
        "keras.ops.top_k",
        "input=x k sorted -index_type",
        defaults="k=1",
    ),
    Operation("math.in_top_k nn.in_top_k", "keras.ops.in_top_k", "targets predictions k"),
    Operation("sort", "keras.ops.sort", "values=x axis -direction"),
    Operation("argsort", "keras.ops.argsort", "values=x axis -direction -stable"),
    Operation("searchsorted", "keras.ops.searchsorted", "sorted_sequence values side -out_type"),
    Operation(
        "math.segment_sum",
        "keras.ops.segment_sum",
        "data segment_ids",
        also="num_segments",
        note="a compiled step must know how many there are",
    ),
    Operation(
        "math.unsorted_segment_sum", "keras.ops.segment_sum", "data segment_ids num_segments"
    ),
    Operation(
        "math.unsorted_segment_max", "keras.ops.segment_max", "data segment_ids num_segments"
    ),
    Operation("clip_by_value", "keras.ops.clip", "t=x clip_value_min=x_min clip_value_max=x_max"),
    Operation("where", "keras.ops.where", "condition x=x1 y=x2", needs="x y"),
    # -- numbers and shapes ---------------------------------------------------------------------
    Operation("cast", "keras.ops.cast", "x dtype"),
    Operation("saturate_cast", "keras.ops.saturate_cast", "value=x dtype"),
    Operation("convert_to_tensor", "keras.ops.convert_to_tensor", "value=x dtype -dtype_hint"),
    Operation("constant", "keras.ops.convert_to_tensor", "value=x dtype -shape"),
    Operation("is_tensor", "keras.ops.is_tensor"),
    Operation(
        "shape", "keras.ops.shape", "input=x -out_type", note="it gives a tuple, and no tensor"
    ),
    Operation("size", "keras.ops.size", "input=x -out_type"),
    Operation("rank", "keras.ops.ndim", "input=x"),
    Operation("reshape", "keras.ops.reshape", "tensor=x shape=newshape"),
    Operation("transpose", "keras.ops.transpose", "a=x perm=axes -conjugate"),
    Operation("expand_dims", "keras.ops.expand_dims", "input=x axis"),
    Operation("squeeze", "keras.ops.squeeze", "input=x axis"),
    Operation("tile", "keras.ops.tile", "input=x multiples=repeats"),
    Operation("repeat", "keras.ops.repeat", "input=x repeats axis"),
    Operation("broadcast_to", "keras.ops.broadcast_to", "input=x shape"),
    Operation(
        "pad",
        "keras.ops.pad",
        "tensor=x paddings=pad_width mode constant_values",
        mind=("mode", "mode= is in lower case"),
    ),
    Operation("reverse", "keras.ops.flip", "tensor=x axis", note="its axis= is one number"),
    Operation("roll", "keras.ops.roll", "input=x shift axis"),
    Operation("stack", "keras.ops.stack", "values=x axis"),
    Operation("unstack", "keras.ops.unstack", "value=x num axis"),
    Operation("concat", "keras.ops.concatenate", "values=xs axis"),
    Operation(
        "split",
        "keras.ops.split",
        "value=x num_or_size_splits=indices_or_sections axis -num",
        note="a list means split indices, not sizes",
    ),
    Operation(
        "slice",
        "keras.ops.slice",
        "input_=inputs begin=start_indices size=shape",
        note="-1 is not supported as a size",
    ),
    Operation(
        "gather",
        "keras.ops.take",
        "params=x indices -validate_indices axis* -batch_dims",
        defaults="axis=0",
    ),
    Operation(
        "nn.embedding_lookup", "keras.ops.take", "params=x ids=indices -max_norm", also="axis=0"
    ),
    Operation(
        "one_hot",
        "keras.ops.one_hot",
        "indices=x depth=num_classes -on_value -off_value axis* dtype*",
    ),
    Operation("zeros", "keras.ops.zeros", "shape dtype -layout"),
    Operation("ones", "keras.ops.ones", "shape dtype -layout"),
    Operation("fill", "keras.ops.full", "dims=shape value=fill_value -layout"),
    Operation("zeros_like", "keras.ops.zeros_like", "input=x dtype -layout"),
    Operation("ones_like", "keras.ops.ones_like", "input=x dtype -layout"),
    Operation("range", "keras.ops.arange", "start limit=stop delta=step dtype"),
    Operation("meshgrid", "keras.ops.meshgrid", "args=x indexing"),
    Operation("linspace", "keras.ops.linspace", "start stop num axis*"),
    Operation(
        "eye linalg.eye",
        "keras.ops.eye",
        "num_rows=N num_columns=M -batch_shape dtype",
    ),
    Operation(
        "scatter_nd",
        "keras.ops.scatter",
        "indices updates=values shape -bad_indices_policy",
    ),
    Operation(
        "tensor_scatter_nd_update",
        "keras.ops.scatter_update",
        "tensor=inputs indices updates",
    ),
    # -- matrices -------------------------------------------------------------------------------
    Operation(
        "matmul linalg.matmul",
        "keras.ops.matmul",
        "a=x1 b=x2 -transpose_a -transpose_b -adjoint_a -adjoint_b -a_is_sparse -b_is_sparse"
        " -output_type -grad_a -grad_b",
        instead="keras.ops.swapaxes(x, -1, -2) transposes",
    ),
    Operation("tensordot linalg.tensordot", "keras.ops.tensordot", "a=x1 b=x2 axes"),
    Operation("einsum linalg.einsum", "keras.ops.einsum", "equation=subscripts inputs=operands"),
    Operation("linalg.cross", "keras.ops.cross", "a=x1 b=x2", also="axis=-1"),
    Operation("linalg.inv", "keras.ops.inv", "input=x -adjoint"),
    Operation("linalg.det", "keras.ops.det", "input=x"),
    Operation("linalg.cholesky", "keras.ops.cholesky", "input=x"),
    Operation("linalg.solve", "keras.ops.solve", "matrix=a rhs=b -adjoint"),
    Operation(
        "linalg.triangular_solve",
        "keras.ops.solve_triangular",
        "matrix=a rhs=b lower -adjoint",
        defaults="lower=True",
    ),
    Operation("linalg.trace", "keras.ops.trace", also="axis1=-2 axis2=-1"),
    Operation(
        "linalg.diag_part",
        "keras.ops.diagonal",
        "input=x k=offset -padding_value -align",
        also="axis1=-2 axis2=-1",
    ),
    # -- neural networks ------------------------------------------------------------------------
    Operation("nn.leaky_relu", "keras.ops.leaky_relu", "features=x alpha=negative_slope"),
    Operation("nn.gelu", "keras.ops.gelu", "features=x approximate", defaults="approximate=False"),
    Operation("nn.silu nn.swish", "keras.ops.silu", "features=x -beta"),
    Operation("nn.softmax", "keras.ops.softmax", "logits=x axis"),
    Operation("nn.log_softmax math.log_softmax", "keras.ops.log_softmax", "logits=x axis"),
    Operation("nn.moments", "keras.ops.moments", "x axes -shift keepdims*"),
    Operation(
        "nn.batch_normalization",
        "keras.ops.batch_normalization",
        "x mean variance offset* scale* variance_epsilon=epsilon*",
        also="axis=-1",
    ),
    Operation(
        "nn.l2_normalize math.l2_normalize linalg.l2_normalize",
        "keras.ops.normalize",
        "x axis epsilon* -dim",
        needs="axis",
        mind=("epsilon", "its epsilon= is of the norm, and not of its square"),
    ),
    Operation(
        "nn.conv1d",
        "keras.ops.conv",
        "input=inputs filters=kernel stride=strides padding data_format dilations=dilation_rate",
        note=_SPACE,
    ),
    Operation(
        "nn.conv2d nn.conv3d",
        "keras.ops.conv",
        "input=inputs filters=kernel strides padding data_format dilations=dilation_rate",
        note=_SPACE,
    ),
    Operation(
        "nn.depthwise_conv2d",
        "keras.ops.depthwise_conv",
        "input=inputs filter=kernel strides padding data_format dilations=dilation_rate",
        note=_SPACE,
    ),
    Operation(
        "nn.max_pool nn.max_pool2d",
        "keras.ops.max_pool",
        "input=inputs ksize=pool_size strides padding data_format",
        note=_SPACE,
    ),
    Operation(
        "nn.avg_pool nn.avg_pool2d",
        "keras.ops.average_pool",
        "input=inputs ksize=pool_size strides padding data_format",
        note=f"{_SPACE}; with padding 'same' PyTorch averages zeros at the edge",
    ),
    Operation(
        "nn.sigmoid_cross_entropy_with_logits",
        "keras.ops.binary_crossentropy",
        "labels=target logits=output",
        also="from_logits=True",
    ),
    Operation(
        "nn.softmax_cross_entropy_with_logits",
        "keras.ops.categorical_crossentropy",
        "labels=target logits=output axis*",
        also="from_logits=True",
    ),
    Operation(
        "nn.sparse_softmax_cross_entropy_with_logits",
        "keras.ops.sparse_categorical_crossentropy",
        "labels=target logits=output",
        also="from_logits=True",
    ),
    Operation("nn.dropout", "keras.random.dropout", "x=inputs rate noise_shape seed", note=_SEED),
    # -- random numbers and images --------------------------------------------------------------
    Operation("random.normal", "keras.random.normal", "shape mean stddev dtype seed", note=_SEED),
    Operation(
        "random.truncated_normal",
        "keras.random.truncated_normal",
        "shape mean stddev dtype seed",
        note=_SEED,
    ),
    Operation(
        "random.uniform",
        "keras.random.uniform",
        "shape minval maxval dtype seed",
        note=f"{_SEED}; whole numbers are those of keras.random.randint",
    ),
    Operation("random.shuffle", "keras.random.shuffle", "value=x seed*", note=_SEED),
    Operation(
        "random.categorical",
        "keras.random.categorical",
        "logits num_samples dtype seed",
        note=_SEED,
    ),
    Operation(
        "image.resize",
        "keras.ops.image.resize",
        "images size method=interpolation -preserve_aspect_ratio antialias*",
    ),
    Operation("image.rgb_to_grayscale", "keras.ops.image.rgb_to_grayscale", "images"),
    Operation("image.rgb_to_hsv", "keras.ops.image.rgb_to_hsv", "images"),
    Operation("image.hsv_to_rgb", "keras.ops.image.hsv_to_rgb", "images"),
    Operation(
        "image.extract_patches",
        "keras.ops.image.extract_patches",
        "images sizes=size strides rates=dilation_rate padding",
        note=_SPACE,
    ),
    Operation(
        "image.pad_to_bounding_box",
        "keras.ops.image.pad_images",
        "image=images offset_height=top_padding offset_width=left_padding target_height*"
        " target_width*",
    ),
    Operation(
        "image.crop_to_bounding_box",
        "keras.ops.image.crop_images",
        "image=images offset_height=top_cropping offset_width=left_cropping target_height*"
        " target_width*",
    ),
    # -- control flow ---------------------------------------------------------------------------
    Operation("cond", "keras.ops.cond", "pred true_fn false_fn"),
    Operation(
        "while_loop",
        "keras.ops.while_loop",
        "cond body loop_vars -shape_invariants -parallel_iterations -back_prop -swap_memory"
        " maximum_iterations*",
    ),
    Operation("switch_case", "keras.ops.switch", "branch_index=index branch_fns=branches -default"),
    Operation(
        "map_fn",
        "keras.ops.map",
        "fn=f elems=xs -dtype -parallel_iterations -back_prop -swap_memory -infer_shape"
        " -fn_output_signature",
    ),
    Operation(
        "vectorized_map",
        "keras.ops.vectorized_map",
        "fn=function elems=elements -fallback_to_while_loop -warn",
    ),
)

# What an expression says shorter than a function, in TensorFlow's parameters.
EXPRESSIONS: Mapping[str, str] = {
    "identity": "input",
    "add_n": "sum(inputs)",
    "math.add_n": "sum(inputs)",
    "ensure_shape": "x",
    "math.squared_difference": "keras.ops.square(x - y)",
    "linalg.matrix_transpose": "keras.ops.swapaxes(a, -1, -2)",
    "linalg.matvec": "keras.ops.matmul(a, b[..., None])[..., 0]",
    "nn.bias_add": "value + bias",
    "nn.l2_loss": "keras.ops.sum(t * t) / 2",
    "sequence_mask": "keras.ops.arange(maxlen) < lengths[..., None]",
}

# The start of a name -> what to do instead.
HINTS: Mapping[str, str] = {
    "where": "with one argument its result has no fixed shape, which jax.jit needs",
    "nn.depth_to_space": "newer releases of Keras have keras.ops.depth_to_space",
    "nn.space_to_depth": "newer releases of Keras have keras.ops.space_to_depth",
    "print": "use jax.debug.print on JAX, and print on PyTorch",
    "boolean_mask": "multiply by the mask: its result has no fixed shape, which jax.jit needs",
    "clip_by_global_norm": "give the optimizer global_clipnorm=",
    "clip_by_norm": "give the optimizer clipnorm=, or divide by keras.ops.norm",
    "TensorArray": "collect in a list, or use keras.ops.scan",
    "py_function": "do it in tf.data, before the model",
    "numpy_function": "do it in tf.data, before the model",
    "strings.": "do it in tf.data, before the model: other backends have no strings",
    "lookup.": "do it in tf.data, before the model",
    "io.": "do it in tf.data, before the model",
    "image.decode": "do it in tf.data, before the model",
    "ragged.": "make it dense, with a mask: other backends have no ragged tensors",
    "RaggedTensor": "make it dense, with a mask: other backends have no ragged tensors",
    "sparse.": "make it dense",
    "SparseTensor": "make it dense",
    "signal.": "keras.ops has stft, fft and rfft with other arguments",
    "linalg.normalize": "keras.ops.normalize(x, axis) is the first of its two results",
    "linalg.svd": "keras.ops.svd gives them in the order u, s, vh",
    "scan": "keras.ops.scan takes and returns a state and a result",
    "custom_gradient": "keras.ops.custom_gradient gives the gradient function upstream= by name",
    "debugging.": "remove it, or check what goes into the model",
}
