"""What functions are called with: arrays are tensors, all else is as a program writes it.

`(name, arguments, options)`; names that share a line of the table are called alike, but those with
"=". With "1:" TF 1 computes them otherwise. Shapes are few, as each makes JAX compile again.
"""

import numpy as np

RANDOM = np.random.RandomState(0)


def numbers(*shape, low=-2.0, high=2.0, dtype="float32"):
    return np.round(RANDOM.uniform(low, high, shape), 2).astype(dtype)


def whole(*shape, low=-9, high=10, dtype="int32"):
    return RANDOM.randint(low, high, shape).astype(dtype)


F, G = numbers(3, 4), numbers(3, 4)
F[0, 0] = G[1, 1] = 0.0
H, K = F.astype("float16"), G.astype("float16")
ROW, HALF_ROW = numbers(4), numbers(4).astype("float16")
P, Q = whole(3, 4), whole(3, 4)
Q[Q == 0] = 3
P[0], Q[0] = [7, -7, 7, -7], [2, 2, -2, -2]
B, C = F > 0, G > 0
T, TH, TI = numbers(2, 3, 4), numbers(2, 3, 4).astype("float16"), whole(2, 3, 4)
U = numbers(2, 3, 4)
EDGES = np.array([[np.inf, -np.inf, np.nan, 0.0], [-0.0, 1.0, -1.0, 0.5]], "float32")
TIES = np.array([[0.5, 1.5, 2.5, -0.5], [-1.5, -2.5, 0.49, 3.51]], "float32")
IMAGES, ODD = numbers(2, 6, 4, 3, low=0, high=1), numbers(2, 5, 7, 3, low=0, high=1)
IMAGE = IMAGES[0]
BYTES = whole(2, 6, 4, 3, low=0, high=256, dtype="uint8")
SIGNAL, VOLUME = numbers(2, 8, 3), numbers(2, 4, 4, 4, 2)
KERNEL_1, KERNEL_2, KERNEL_3 = numbers(3, 3, 5), numbers(3, 3, 3, 5), numbers(2, 2, 2, 2, 3)
DEPTHWISE, POINTWISE = numbers(3, 3, 3, 2), numbers(1, 1, 6, 4)
TURNED_1, TURNED_2, TURNED_3 = numbers(3, 2, 3), numbers(3, 3, 2, 3), numbers(2, 2, 2, 3, 2)
SQUARE = np.array(
    [[[4.0, 1, 0], [1, 3, 1], [0, 1, 2]], [[2.0, 0, 1], [0, 5, 1], [1, 1, 3]]], "float32"
)

ALL = []


def case(names, *arguments, **options):
    """Adds a case of each name."""
    ALL.extend((name, arguments, options) for name in names.split())


def cases():
    """Returns (name, arguments, options) of all."""
    return ALL


# Number by number.
for x in (F, H):
    case("math.abs math.negative math.sign math.square math.exp math.expm1 math.sin math.cos", x)
    case("math.tan math.atan math.sinh math.cosh math.tanh math.asinh math.erf math.floor", x)
    case("math.ceil round math.sigmoid math.log_sigmoid math.softplus nn.softsign", x)
    case("nn.relu6 nn.selu nn.relu nn.elu nn.leaky_relu nn.gelu nn.silu stop_gradient identity", x)
    case("keras.backend.hard_sigmoid keras.backend.sqrt keras.backend.elu", x)
    case("keras.activations.swish keras.activations.gelu nn.crelu math.erfc", x)
    case("math.is_finite math.is_inf math.is_nan zeros_like ones_like", x)
    case("keras.activations.mish math.reciprocal_no_nan", x)
    positive, unit = np.abs(x) + x.dtype.type(0.1), x / x.dtype.type(2.5)
    case(
        "sqrt math.rsqrt math.log math.log1p math.reciprocal math.acosh",
        positive + (1 if x is F else 0),
    )
    case("sqrt math.rsqrt math.log", positive)
    case("asin acos math.atanh math.erfinv", unit)
case("math.abs math.negative math.sign math.square", P)
case("math.is_finite math.is_inf math.is_nan math.abs math.exp math.tanh", EDGES)
case("math.sigmoid math.softplus nn.relu nn.relu6 math.floor sqrt math.log nn.elu nn.selu", EDGES)
case("nn.leaky_relu math.expm1 math.log1p nn.softsign math.reciprocal_no_nan", EDGES)
case("math.log_sigmoid math.softplus math.sigmoid math.tanh nn.gelu", 10 * F)
case("round math.floor math.ceil", TIES)
case("round math.floor math.ceil", TIES.astype("float16"))
case("round", P)
case("logical_not", B)
case("bitwise.invert", P)
case("identity_n", [F, P])
case("zeros_like ones_like", P)
case("zeros_like ones_like", B)
case("zeros_like ones_like", F, dtype="int32")
case("compat.v1.zeros_like compat.v1.ones_like", F, dtype="int32")
case("zeros_like ones_like compat.v1.zeros_like", F, "float16")

BOTH = "add subtract multiply divide math.divide_no_nan math.floordiv math.floormod maximum minimum"
FLOATING = "math.multiply_no_nan math.squared_difference math.atan2"
COMPARED = "equal not_equal greater greater_equal less less_equal"
for x, y, row in ((F, G, ROW), (H, K, HALF_ROW)):
    case(f"{BOTH} {COMPARED}", x, y)
    case(f"{BOTH} pow", x, row) if x is F else case("add divide", x, row)
    case("add subtract multiply divide maximum greater math.squared_difference", x, 2.0)
    case("add subtract multiply divide pow minimum less", 2.0, x)
    case("math.floordiv math.floormod", x, 0.5)
    case("pow", x, 2.0)
    case("pow", np.abs(x) + x.dtype.type(0.5), y)
    case(FLOATING, x, y)
    case("div realdiv", x, y + y.dtype.type(3))
case("equal not_equal less maximum", F, F + np.float32(0) * G)
case("math.xlogy math.xlog1py math.xdivy", F, np.abs(G) + np.float32(0.5))
case("math.xlogy", np.zeros((2, 4), "float32"), np.abs(EDGES))
case("math.divide_no_nan math.multiply_no_nan", EDGES, np.array([0.0, 1.0, 0.0, 0.0], "float32"))
case("add multiply maximum", np.array([[1.0], [2.0], [3.0]], "float32"), ROW)
case("add subtract multiply math.floordiv math.floormod maximum minimum div truncatediv", P, Q)
case("truncatemod bitwise.bitwise_and bitwise.bitwise_or bitwise.bitwise_xor", P, Q)
case(f"{COMPARED} divide math.squared_difference", P, Q)
case("add multiply math.floordiv math.floormod divide", P, 2)
case("math.floordiv math.floormod truncatediv truncatemod", P, -4)
case("pow", P, 2)
case("truncatemod", F, np.abs(G) + np.float32(0.5))
case("bitwise.left_shift bitwise.right_shift", P, np.array([1, 2, 3, 4], "int32"))
case("bitwise.bitwise_and", P, 3)
case("logical_and logical_or math.logical_xor equal not_equal", B, C)
case("math.scalar_mul", 3.0, F)
case("math.add_n", [F, G, F])
case("math.add_n", [P, Q])
case("math.accumulate_n", [F, G])
case("clip_by_value", F, -0.5, 0.75)
case("clip_by_value", H, 0.0, 1.0)
case("clip_by_value", P, -2, 3)
case("clip_by_value", F, ROW - 1, np.float32(0.5) + ROW)
case("clip_by_value", F, 1.0, -1.0)
case("clip_by_norm", F, 1.5)
case("clip_by_norm", F, 1.5, axes=[1])
case("clip_by_norm", H, 1.0, [0])
case("where", B, F, G)
case("where", F > 1, F, 0.0)
case("where", B[:, :1], F, G)
case("where", B, 1.0, H)
case("where", B, P, 3)
case("compat.v1.where", B, F, G)
case("compat.v1.where", B[:, 0], F, G)
case("keras.backend.switch", B[:, :1], F, G)
case("keras.backend.switch", np.array(True), F, G)
case("keras.backend.switch", B, H, K)
for dtype in ("float16", "float32", "float64", "int32", "int64", "uint8", "bool", "bfloat16"):
    case("cast", np.abs(F), dtype)
    case("cast", np.abs(P), dtype)
case("cast", F, "int32")
case("cast", B, "float32")
case("cast", B, "int32")
case("cast", EDGES[1:], "bool")
case("keras.backend.cast", H, "float32")
case("keras.backend.cast_to_floatx", P)
case("to_float to_double to_int32 to_int64 to_bfloat16", F)
case("saturate_cast", 200 * F, "uint8")
case("saturate_cast", 200 * F, "int8")
case("saturate_cast", P, "uint8")
case("saturate_cast", F, "float16")
case("constant", [1, 2, 3])
case("constant", 2.5, "float16")
case("constant", 1, "float32", [2, 3])
case("constant", [1, 2, 3, 4], shape=[2, 2])
case("compat.v1.constant", 2, "float32", [3], "c", False)
case("convert_to_tensor", F)
case("convert_to_tensor", [1.0, 2.0])
case("convert_to_tensor compat.v1.convert_to_tensor", [1, 2], dtype="float32")
case("ensure_shape", F, [None, 4])
case("debugging.check_numerics", F, "is it")
case("debugging.assert_all_finite", F, "is it")
case("Print", F, [F], "see")
case("keras.backend.print_tensor", F)
case("keras.backend.to_dense", F)

# Reductions.
SUMS = "reduce_sum reduce_mean reduce_prod reduce_max reduce_min"
MORE = "reduce_logsumexp math.reduce_variance math.reduce_std math.reduce_euclidean_norm"
for x in (T, TH):
    case(f"{SUMS} {MORE} norm", x)
    case(f"{SUMS} {MORE}", x, -1)
    case(f"{SUMS} {MORE}", x, axis=[0, 2] if x is T else [1], keepdims=True)
    case("norm", x, axis=1, keepdims=True)
case(f"{SUMS} {MORE}", T, [])
case(f"{SUMS} {MORE} norm", T, keepdims=True)
case("reduce_sum reduce_max", T, axis=[-1, -2])
case(SUMS, TI)
case(SUMS, TI, 1)
case("reduce_mean reduce_sum", TI, axis=[0, -1], keepdims=True)
case("reduce_all reduce_any", T > 0)
case("reduce_all reduce_any", T > 0, -1)
case("reduce_all reduce_any", T > 0, [0, 1], True)
case("reduce_max reduce_min reduce_sum", EDGES[:, [0, 1, 3]], 1)
case("reduce_logsumexp", EDGES[:, [0, 1, 3]], 1)
case("reduce_logsumexp", 100 * F, 1)
for name in f"{SUMS} reduce_logsumexp".split():
    case(f"compat.v1.{name}", T, reduction_indices=[1], keep_dims=True)
case("compat.v1.reduce_any compat.v1.reduce_all", T > 0, reduction_indices=-1)
case("norm", F, 1)
case("norm", F, np.inf)
case("norm", F, 1, -1)
case("norm", F, 2, 1, True)
case("norm", F, 3.0, axis=0)
case("norm", F, np.inf, axis=-1)
case("norm", T, "fro", axis=[1, 2])
case("norm", T, 1, axis=[1, 2])
case("norm", T, np.inf, axis=[-2, -1], keepdims=True)
case("compat.v1.norm", T, keep_dims=True)
case("math.count_nonzero", F)
case("math.count_nonzero", P - 1, 1)
case("math.count_nonzero", B, axis=[0], keepdims=True, dtype="int32")
case("compat.v1.count_nonzero", F, reduction_indices=[1], keep_dims=True)
case("compat.v1.count_nonzero", input=F, axis=1)
for x in (F, H, P):
    case("math.argmax math.argmin", x)
    case("math.argmax math.argmin", x, -1)
    case("math.argmax", x, axis=1, output_type="int32")
case("math.argmax math.argmin", np.array([[1.0, 3, 3], [2, 2, 2]], "float32"), 1)
case("compat.v1.argmax compat.v1.argmin", F, dimension=1)
case("compat.v1.argmax compat.v1.argmin", F, 1, output_type="int32")
case("compat.v1.argmax", F, 1, "n", None, "int32")
case("=arg_max =arg_min", F, 1)
for x in (F, H, P):
    case("math.cumsum math.cumprod", x)
    case("math.cumsum math.cumprod", x, -1, True)
    case("math.cumsum math.cumprod", x, axis=1, reverse=True)
    case("math.cumsum math.cumprod", x, 0, True, True)
case("nn.moments", T, [0, 1])
case("nn.moments", T, axes=-1, keepdims=True)
case("nn.moments", TH, [1])
case("compat.v1.nn.moments", T, [1], keep_dims=True)
IDS = np.array([0, 2, 0, 1], "int32")
for x in (numbers(4), numbers(4, 3), whole(4, 3)):
    case("math.unsorted_segment_sum math.unsorted_segment_max math.unsorted_segment_min", x, IDS, 3)
for x in (numbers(4), numbers(4, 3)):
    case("math.unsorted_segment_mean math.unsorted_segment_sqrt_n", x, IDS, 4)
case("math.unsorted_segment_sum", numbers(2, 3), np.array([[0, 1, 0], [2, 2, 1]], "int32"), 3)
case("math.invert_permutation", np.array([2, 0, 1, 3], "int32"))
case("math.zero_fraction", F)
case("math.zero_fraction", P - 7)
case("nn.l2_loss", F)
case("nn.l2_loss", H)
case("math.l2_normalize", F, -1)
case("math.l2_normalize", H, 1)
case("math.l2_normalize", T, [1, 2], 1e-3)
case("math.l2_normalize", np.zeros((2, 3), "float32"), 1)
case("math.l2_normalize", F)
case("compat.v1.math.l2_normalize", F, dim=1)

# Shapes.
case("shape rank size", T)
case("shape size", T, "int64")
case("compat.v1.shape compat.v1.size", T)
case("compat.v1.shape compat.v1.size", T, None, "int64")
case("rank", np.array(3.0, "float32"))
case("reshape", T, [2, -1])
case("reshape", T, [-1])
case("reshape", TI, (3, 2, 4))
case("reshape", T, shape=[2, 3, 2, -1])
case("transpose", T)
case("transpose", T, [0, 2, 1])
case("transpose", TH, perm=[2, 0, 1])
case("compat.v1.transpose", T, [0, 2, 1], "name", False)
case("linalg.matrix_transpose linalg.adjoint", T)
for axis in (0, 1, -1, -2):
    case("expand_dims", F, axis)
case("compat.v1.expand_dims", F, dim=1)
case("keras.backend.expand_dims", F)
case("squeeze", F[:, None, :, None])
case("squeeze", F[:, None, :, None], 1)
case("squeeze", F[:, None, :, None], axis=[1, -1])
case("compat.v1.squeeze", F[:, None], squeeze_dims=[1])
case("compat.v1.squeeze", F[:, None], axis=1)
case("tile", F, [2, 3])
case("tile", P, (1, 2))
case("repeat", F, 2)
case("repeat", F, 3, 1)
case("repeat", F, [1, 0, 2], axis=0)
case("broadcast_to", ROW, [3, 4])
case("broadcast_to", F[:, :1], [2, 3, 4])
case("pad", F, [[1, 0], [2, 1]])
case("pad", F, ((0, 0), (1, 1)), constant_values=1.5)
case("pad", H, [[1, 0], [0, 1]], "CONSTANT", 2.0)
case("pad", P, [[0, 0], [1, 2]], constant_values=-1)
case("pad", F, [[1, 1], [2, 1]], "REFLECT")
case("pad", F, [[1, 1], [2, 1]], "SYMMETRIC")
case("pad", F, [[1, 1], [0, 3]], mode="reflect")
case("compat.v1.pad", F, [[1, 1], [0, 3]], "SYMMETRIC", "name", 0)
case("reverse", T, [1])
case("reverse", TI, axis=[0, -1])
case("roll", F, 1, 1)
case("roll", F, [1, -2], [0, 1])
case("roll", F, shift=-1, axis=0)
case("stack", [F, G])
case("stack", [F, G], axis=-1)
case("stack", [P, Q], 1)
case("stack", [ROW, HALF_ROW.astype("float32")], axis=1)
case("unstack", F)
case("unstack", F, 4, 1)
case("unstack", F, axis=-1)
case("concat", [F, G], 0)
case("concat", [F, G, F], axis=-1)
case("concat", [H, K], 1)
case("concat", [P, Q], 1)
case("split", F, 2, 1)
case("split", F, 3)
case("split", F, [1, 3], axis=-1)
case("split", F, [1, -1, 2], 1)
case("split", F, [-1, 1, 0], 1)
case("split", F, [2, 0, -1], -1)
case("split", TI, num_or_size_splits=2, axis=2)
case("slice", T, [0, 1, 2], [2, 1, -1])
case("slice", TI, begin=[1, 0, 0], size=[-1, -1, -1])
case("strided_slice", T, [0, 1], [2, 3])
case("strided_slice", T, [0, 0, 0], [2, 3, 4], [1, 2, 2])
case("strided_slice", T, [0, -1, 3], [2, -4, 0], [1, -1, -2])
case("strided_slice", T, [1, 1], [0, 0], begin_mask=2, end_mask=3)
case("strided_slice", T, [0, 1], [0, 2], ellipsis_mask=1)
case("strided_slice", T, [0, 1, 0], [0, 2, 3], ellipsis_mask=1, shrink_axis_mask=2)
case("strided_slice", T, [0, 0, 1], [2, 0, 3], new_axis_mask=2)
case("strided_slice", T, [-1, 0], [0, 1], shrink_axis_mask=1)
for key in (0, -1, slice(None), slice(1, None), slice(None, None, -1), slice(0, 2)):
    case("__operators__.getitem", T, key)
A = slice(None)
for key in (
    (A, 0),
    (A, -1, slice(0, 2)),
    (A, None, slice(None, None, 2)),
    (Ellipsis, 0),
    (Ellipsis, None),
    (0, Ellipsis, slice(None, 1)),
    (A, slice(None, None, -1)),
    (A, slice(2, 0, -1), 3),
    (A, slice(-2, None), slice(-3, -1)),
    (None, 1, 2),
    (A, slice(0, 0)),
    (A, slice(1, 100)),
):
    case("__operators__.getitem", T, key)
case("__operators__.getitem", TI, (A, 1))
case("gather", F, np.array([2, 0], "int32"))
case("gather", F, [1, 1, 0])
case("gather", F, 1)
case("gather", T, np.array([[0, 2], [1, 1]], "int32"), axis=1)
case("gather", T, np.array([3, 0], "int64"), axis=-1)
case("gather", TI, np.array([[0, 2], [1, 1]], "int32"), axis=1, batch_dims=1)
case("gather", T, np.array([[0, 2], [1, 1]], "int32"), batch_dims=1)
case("gather", T, np.array([[0, 2], [1, 1]], "int32"), axis=2, batch_dims=1)
case("gather", T, np.array([[1, 0, 3], [2, 2, 0]], "int32"), axis=2, batch_dims=2)
case("gather", T, np.array([[1, 0], [2, 2]], "int32"), axis=-1, batch_dims=-1)
case("compat.v1.gather", T, np.array([0, 2], "int32"), axis=1)
case("batch_gather", T, np.array([[[0], [1], [2]], [[3], [0], [1]]], "int32"))
case("gather_nd", T, np.array([[1, 2], [0, 0]], "int32"))
case("gather_nd", T, np.array([[1], [0], [1]], "int32"))
case("gather_nd", T, np.array([[[1, 2, 3]], [[0, 1, 0]]], "int32"))
case("gather_nd", T, np.array([[1], [2]], "int32"), batch_dims=1)
case("gather_nd", T, np.array([[[1, 0]], [[2, 3]]], "int64"), batch_dims=1)
case("gather_nd", T, np.array([[[1], [0], [2]], [[2], [3], [0]]], "int32"), 2)
case("compat.v1.gather_nd", T, np.array([[1], [2]], "int32"), batch_dims=1)
case("nn.embedding_lookup compat.v1.nn.embedding_lookup", F, np.array([[0, 2], [1, 1]], "int32"))
case("one_hot", np.array([0, 2, -1, 5], "int32"), 3)
case("one_hot", np.array([[0, 2], [1, 1]], "int64"), 3, 5.0, -1.0, 1)
case("one_hot", np.array([0, 2], "uint8"), depth=4, dtype="float16")
case("one_hot", np.array([0, 2], "int32"), 4, axis=0, on_value=True, off_value=False)
case("one_hot", np.array([0, 2], "int32"), 4, dtype="int32")
case("sequence_mask", np.array([1, 3, 0], "int32"), 4)
case("sequence_mask", np.array([[1], [2]], "int64"), maxlen=3, dtype="float32")
case("reverse_sequence", T, np.array([2, 3], "int32"), 1)
case("reverse_sequence", T, np.array([2, 1, 4], "int64"), seq_axis=2, batch_axis=1)
case("compat.v1.reverse_sequence", T, np.array([2, 3], "int32"), seq_dim=1, batch_dim=0)
case("zeros ones", [2, 3])
case("zeros ones", (2,), "int32")
case("zeros ones", [2, 3], dtype="float16")
case("fill", [2, 3], 1.5)
case("fill", [2], 3)
case("range", 4)
case("range", 1, 9, 3)
case("range", 5, 1, -2)
case("range", 0.0, 1.0, 0.25)
case("range", 3, dtype="float32")
case("linspace", 0.0, 1.0, 5)
case("linspace", -2.0, 2.0, 3)
case("eye linalg.eye", 3)
case("eye", 2, 3, dtype="int32")
case("eye", 2, num_columns=4, dtype="float16")
case("meshgrid", ROW, F[:, 0])
case("meshgrid", ROW, F[:, 0], indexing="ij")
case("meshgrid", ROW, F[:, 0], F[0, :2])
case("linalg.diag linalg.tensor_diag", ROW)
case("linalg.diag linalg.tensor_diag", F)
case("linalg.diag_part linalg.trace", SQUARE)
case("linalg.diag_part linalg.trace", T)
case("linalg.trace", P)
for lower, upper in ((-1, 0), (0, -1), (1, 0), (0, 0), (0, 2), (-1, -1)):
    case("linalg.band_part", T, lower, upper)
case("linalg.band_part", SQUARE.astype("float16"), 0, -1)
case("linalg.band_part", TI, num_lower=0, num_upper=1)
case("sort argsort", F)
case("sort argsort", F, 0, "DESCENDING")
case("sort argsort", P, direction="DESCENDING")
case("sort", H, -1)
case("argsort", np.array([[1, 0, 1, 0], [2, 2, 2, 2]], "int32"), stable=True)
case("argsort", np.array([[1.0, 0, 1, 0], [2, 2, 2, 2]], "float32"), 1, "DESCENDING", True)
case("math.top_k", F, 2)
case("math.top_k", P, k=3, sorted=True)
case("math.top_k", np.array([[1.0, 3, 3, 2], [5, 5, 5, 5]], "float32"), 3)
case("math.top_k", H)
PREDICTED = np.array([[0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.4, 0.3, 0.3]], "float32")
case("math.in_top_k", np.array([1, 0, 2], "int32"), PREDICTED, 1)
case("math.in_top_k", np.array([0, 2, 1], "int64"), PREDICTED, k=2)
case("compat.v1.nn.in_top_k keras.backend.in_top_k", PREDICTED, np.array([1, 0, 2], "int32"), 1)
ROWS = np.array([[1.0, 2, 2, 4], [0, 1, 5, 9]], "float32")
case("searchsorted", ROWS, np.array([[2.0, 0, 5], [1, 10, 4]], "float32"))
case("searchsorted", ROWS, np.array([[2.0, 0, 5], [1, 10, 4]], "float32"), "right", "int64")
case("searchsorted", np.array([1, 3, 5], "int32"), np.array([3, 4], "int32"))
CELLS = numbers(2, 4, 4, 4)
case("nn.space_to_depth nn.depth_to_space", CELLS, 2)
case("compat.v1.space_to_depth compat.v1.depth_to_space", CELLS, 2)
case("compat.v1.nn.space_to_depth compat.v1.nn.depth_to_space", CELLS, 2, None, "NHWC")
case("nn.space_to_depth nn.depth_to_space", CELLS.astype("float16"), 2)
case("space_to_batch", CELLS, [2, 2], [[0, 0], [1, 1]])
case("space_to_batch", SIGNAL, [2], paddings=[[0, 2]])
case("compat.v1.space_to_batch compat.v1.nn.space_to_batch", CELLS, [[0, 0], [1, 1]], 2)
case("compat.v1.space_to_batch", CELLS, paddings=[[0, 0], [1, 1]], block_shape=[1, 2])
case("batch_to_space", numbers(4, 2, 3, 1), [2, 2], [[0, 0], [1, 0]])
case("batch_to_space", numbers(4, 3, 2), [2], [[1, 0]])
case("compat.v1.batch_to_space", numbers(4, 2, 3, 1), [[0, 0], [1, 0]], 2)
SPOTS = np.array([[0, 1], [2, 3]], "int32")
case("tensor_scatter_nd_update tensor_scatter_nd_add", F, SPOTS, np.array([9.0, 8], "float32"))
case("tensor_scatter_nd_sub", F, SPOTS, np.array([9.0, 8], "float32"))
case("tensor_scatter_nd_update", F, np.array([[2]], "int32"), ROW[None])
case("tensor_scatter_nd_add", P, np.array([[2, 2], [2, 2]], "int32"), np.array([5, 6], "int32"))
case("tensor_scatter_nd_add", H, SPOTS, np.array([9.0, 8], "float16"))
case("scatter_nd", np.array([[4], [1], [4]], "int32"), np.array([9.0, 8, 1], "float32"), [6])
case("scatter_nd", np.array([[1], [0]], "int32"), numbers(2, 3), shape=[3, 3])

# Linear algebra.
M, N = numbers(3, 4), numbers(4, 2)
case("linalg.matmul", M, N)
case("linalg.matmul", M, numbers(2, 4), transpose_b=True)
case("linalg.matmul", M, numbers(3, 2), True)
case("linalg.matmul", T, numbers(2, 4, 5))
case("linalg.matmul", T, U, adjoint_b=True)
case("linalg.matmul", T, N)
case("linalg.matmul", M.astype("float16"), N.astype("float16"))
case("linalg.matmul", P, whole(4, 2))
case("linalg.matmul", T, [[1.0, 0.5]] * 4)
case("linalg.matvec", T, ROW)
case("linalg.matvec", T, numbers(2, 3), transpose_a=True)
case("tensordot", T, numbers(4, 3), 1)
case("tensordot", T, numbers(4, 3), [[1, 2], [1, 0]])
case("tensordot", T, numbers(3, 5), axes=[[1], [0]])
case("tensordot", ROW, numbers(4), 0)
case("linalg.cross", numbers(2, 3), numbers(2, 3))
case("einsum", "bij,bjk->bik", T, numbers(2, 4, 5))
case("einsum", "bij->bji", T)
case("einsum", "...ij,jk->...ik", T, N)
case("einsum", "bij,bkj->bik", T, U)
case("einsum", "bij,bij->b", TH, TH)
case("linalg.inv linalg.det linalg.cholesky linalg.logdet", SQUARE)
case("linalg.inv linalg.det", SQUARE[0])
case("linalg.solve", SQUARE, numbers(2, 3, 2))
LOWER = np.tril(SQUARE)
case("linalg.triangular_solve", LOWER, numbers(2, 3, 2))
case("linalg.triangular_solve", LOWER.transpose(0, 2, 1), numbers(2, 3, 2), lower=False)
case("linalg.triangular_solve", LOWER, numbers(2, 3, 1), True, True)
case("linalg.cholesky_solve", np.linalg.cholesky(SQUARE).astype("float32"), numbers(2, 3, 2))
case("linalg.normalize", F, axis=1)
case("linalg.normalize", F, 1, 0)

# Networks.
case("nn.leaky_relu", F, 0.3)
case("nn.leaky_relu", H, alpha=0.1)
case("nn.gelu", F, True)
case("nn.gelu", H, approximate=True)
case("keras.activations.gelu", F, True)
case("nn.silu", F, 1.5)
case("nn.crelu", T, axis=1)
case("compat.v1.nn.crelu", F, None, 0)
case("nn.softmax nn.log_softmax", T)
case("nn.softmax nn.log_softmax", T, 1)
case("nn.softmax nn.log_softmax", H)
case("nn.softmax nn.log_softmax", 100 * F)
case("compat.v1.nn.softmax compat.v1.nn.log_softmax", T, dim=1)
case("keras.backend.softmax", F)
case("keras.backend.softmax keras.activations.softmax", T, 1)
for options in (
    {},
    {"alpha": 0.1},
    {"max_value": 1.0},
    {"max_value": 6.0},
    {"threshold": 0.5},
    {"alpha": 0.1, "max_value": 1.0},
    {"alpha": 0.2, "threshold": 0.5},
    {"alpha": 0.2, "max_value": 1.0, "threshold": -0.5},
):
    case("keras.backend.relu", F, **options)
case("keras.backend.relu", F, threshold=float(F[1, 1]))
case("keras.backend.relu", H, 0.1, 1.0)
case("keras.activations.relu", F, 0.1)
case("keras.backend.elu", F, 0.5)
case("nn.bias_add", IMAGES, numbers(3))
case("nn.bias_add", IMAGES, numbers(6), "NCHW")
case("nn.bias_add", F, ROW)
case("nn.bias_add", F.astype("float16"), HALF_ROW)
case("keras.backend.bias_add", IMAGES, numbers(3))
case("keras.backend.bias_add", IMAGES, numbers(6), "channels_first")
MEAN, VARIANCE, OFFSET, SCALE = numbers(3), np.abs(numbers(3)), numbers(3), numbers(3)
case("nn.batch_normalization", IMAGES, MEAN, VARIANCE, OFFSET, SCALE, 0.001)
case("nn.batch_normalization", IMAGES, MEAN, VARIANCE, None, None, variance_epsilon=0.01)
case(
    "nn.batch_normalization",
    *[a.astype("float16") for a in (IMAGES, MEAN, VARIANCE)],
    None,
    None,
    0.01,
)
case("keras.backend.batch_normalization", IMAGES, MEAN, VARIANCE, OFFSET, SCALE)
case("keras.backend.batch_normalization", IMAGES, MEAN, VARIANCE, None, SCALE, epsilon=0.1)
case("nn.fused_batch_norm", IMAGES, SCALE, OFFSET, MEAN, VARIANCE, is_training=False)
case("nn.local_response_normalization", CELLS)
case("nn.local_response_normalization", CELLS, 1, 2.0, 0.5, 0.75)
for padding in ("SAME", "VALID"):
    case("nn.conv1d", SIGNAL, KERNEL_1, 1, padding)
    case("nn.conv1d", SIGNAL, KERNEL_1, stride=2, padding=padding)
    case("nn.conv2d", ODD, KERNEL_2, 1, padding)
    case("nn.conv2d", ODD, KERNEL_2, [1, 2, 2, 1], padding)
    case("nn.conv2d", IMAGES, KERNEL_2, strides=[2, 1], padding=padding)
    case("nn.conv2d", ODD, KERNEL_2, 1, padding, dilations=2)
    case("nn.conv3d", VOLUME, KERNEL_3, [1, 1, 1, 1, 1], padding)
    case("nn.conv3d", VOLUME, KERNEL_3, [1, 2, 2, 2, 1], padding)
    case("nn.convolution", ODD, KERNEL_2, padding=padding)
    case("nn.convolution", SIGNAL, KERNEL_1, 2, padding)
    case("nn.convolution", ODD, KERNEL_2, padding=padding, dilations=[1, 2])
    case("nn.atrous_conv2d", ODD, KERNEL_2, 2, padding)
    case("nn.depthwise_conv2d", ODD, DEPTHWISE, [1, 1, 1, 1], padding)
    case("nn.depthwise_conv2d", ODD, DEPTHWISE, [1, 2, 2, 1], padding)
    case("nn.depthwise_conv2d", ODD, DEPTHWISE, [1, 1, 1, 1], padding, dilations=[2, 2])
    case("nn.depthwise_conv2d_native", ODD, DEPTHWISE, [1, 1, 1, 1], padding)
    case("nn.separable_conv2d", ODD, DEPTHWISE, POINTWISE, [1, 1, 1, 1], padding)
    case("nn.separable_conv2d", ODD, DEPTHWISE, POINTWISE, [1, 2, 2, 1], padding)
    case("=nn.max_pool2d =nn.avg_pool2d", ODD, 2, 2, padding)
    case("=nn.max_pool2d =nn.avg_pool2d", ODD, [1, 3, 2, 1], [1, 2, 1, 1], padding)
    case("=nn.max_pool =nn.avg_pool =nn.max_pool_v2 =nn.avg_pool_v2", ODD, 3, 2, padding)
    case("=nn.max_pool1d =nn.avg_pool1d", SIGNAL, 3, 2, padding)
    case("=nn.max_pool3d =nn.avg_pool3d", VOLUME, 2, 2, padding)
    case("nn.pool", ODD, [2, 2], "MAX", padding=padding)
    case("nn.pool", ODD, [3, 3], "AVG", [2, 2], padding)
    case("compat.v1.nn.pool", ODD, [2, 2], "MAX", padding, strides=[2, 2])
    case("compat.v1.nn.max_pool compat.v1.nn.avg_pool", ODD, [1, 2, 2, 1], [1, 2, 2, 1], padding)
    case("compat.v1.nn.conv2d", ODD, KERNEL_2, [1, 1, 1, 1], padding)
    case("compat.v1.nn.conv1d", SIGNAL, KERNEL_1, 1, padding)
    case("compat.v1.nn.convolution", ODD, KERNEL_2, padding, [2, 2])
    case("compat.v1.nn.depthwise_conv2d", ODD, DEPTHWISE, [1, 1, 1, 1], padding, [2, 2])
    case(
        "compat.v1.nn.separable_conv2d",
        ODD,
        DEPTHWISE,
        POINTWISE,
        [1, 1, 1, 1],
        padding,
        rate=[1, 1],
    )
    small = padding.lower()
    case("keras.backend.conv1d", SIGNAL, KERNEL_1, 1, small)
    case("keras.backend.conv1d", SIGNAL, KERNEL_1, padding=small, dilation_rate=2)
    case("keras.backend.conv2d", ODD, KERNEL_2, (2, 2), small)
    case("keras.backend.conv2d", ODD, KERNEL_2, padding=small, dilation_rate=(2, 2))
    case("keras.backend.conv3d", VOLUME, KERNEL_3, (1, 1, 1), small)
    case("keras.backend.depthwise_conv2d", ODD, DEPTHWISE, (1, 1), small)
    case("keras.backend.separable_conv2d", ODD, DEPTHWISE, POINTWISE, (2, 2), small)
    for mode in ("max", "avg"):
        case("=keras.backend.pool2d", ODD, (2, 2), (2, 2), small, pool_mode=mode)
        case("=keras.backend.pool3d", VOLUME, (2, 2, 2), padding=small, pool_mode=mode)
case("nn.conv2d", ODD.astype("float16"), KERNEL_2.astype("float16"), 1, "SAME")
case("nn.conv2d", ODD, KERNEL_2, 1, [[0, 0], [1, 2], [2, 0], [0, 0]])
case("nn.depthwise_conv2d", IMAGES, DEPTHWISE, [1, 1, 1, 1], [[0, 0], [1, 1], [2, 0], [0, 0]])
case("nn.conv1d", SIGNAL, KERNEL_1, 1, "SAME", dilations=2)
case("keras.backend.conv1d", SIGNAL, KERNEL_1, 1, "causal")
case("keras.backend.conv1d", SIGNAL, KERNEL_1, padding="causal", dilation_rate=2)
case("=nn.max_pool2d =nn.avg_pool2d", ODD.astype("float16"), 2, 2, "SAME")
case("nn.conv1d_transpose", numbers(2, 4, 3), TURNED_1, [2, 8, 2], 2)
case("nn.conv1d_transpose", numbers(2, 4, 3), TURNED_1, [2, 9, 2], 2, "VALID")
SMALL = numbers(2, 3, 4, 3)
case("nn.conv2d_transpose", SMALL, TURNED_2, [2, 6, 8, 2], 2)
case("nn.conv2d_transpose", SMALL, TURNED_2, [2, 5, 7, 2], 2)
case("nn.conv2d_transpose", SMALL, TURNED_2, [2, 3, 4, 2], 1)
case("nn.conv2d_transpose", SMALL, TURNED_2, [2, 7, 9, 2], [1, 2, 2, 1], "VALID")
case("nn.conv2d_transpose", SMALL, TURNED_2, [2, 8, 10, 2], 2, padding="VALID")
case("nn.conv3d_transpose", numbers(2, 2, 2, 2, 2), TURNED_3[..., :2], [2, 4, 4, 4, 3], 2)
case("keras.backend.conv2d_transpose", SMALL, TURNED_2, (2, 7, 9, 2), (2, 2))
case("keras.backend.conv2d_transpose", SMALL, TURNED_2, (2, 6, 8, 2), (2, 2), "same")
case("nn.dropout", F, 0.25)
case("nn.dropout", H, rate=0.5, noise_shape=[3, 1])
case("compat.v1.nn.dropout", F, 0.75)
case("compat.v1.nn.dropout", F, rate=0.25)
case("keras.backend.dropout", F, 0.25)
ONE_HOT = np.array([[1, 0, 0, 0], [0, 0, 1, 0], [0, 0.5, 0.5, 0]], "float32")
LABELS = np.array([1, 3, 0], "int32")
case("nn.softmax_cross_entropy_with_logits", ONE_HOT, F)
case("nn.softmax_cross_entropy_with_logits", labels=ONE_HOT.T, logits=F.T, axis=0)
case("nn.softmax_cross_entropy_with_logits", ONE_HOT.astype("float16"), H)
case("compat.v1.nn.softmax_cross_entropy_with_logits", labels=ONE_HOT, logits=F, dim=-1)
case("nn.sparse_softmax_cross_entropy_with_logits", LABELS, F)
case("nn.sparse_softmax_cross_entropy_with_logits", labels=LABELS.astype("int64"), logits=H)
case("nn.sigmoid_cross_entropy_with_logits", ONE_HOT, F)
case("nn.sigmoid_cross_entropy_with_logits", labels=ONE_HOT.astype("float16"), logits=10 * H)
case("compat.v1.nn.sigmoid_cross_entropy_with_logits", labels=ONE_HOT, logits=100 * F)

# Keras' own.
for name in ("sum", "mean", "prod", "max", "min", "var", "std", "logsumexp"):
    case(f"keras.backend.{name}", T)
    case(f"keras.backend.{name}", T, 1)
    case(f"keras.backend.{name}", T, axis=[1, -1], keepdims=True)
case("keras.backend.mean", T > 0, 1)
case("keras.backend.mean keras.backend.sum", TI, 1)
case("keras.backend.all keras.backend.any", T > 0, -1)
case("keras.backend.all keras.backend.any", T, axis=[0, 1], keepdims=True)
case("keras.backend.argmax keras.backend.argmin", F)
case("keras.backend.argmax keras.backend.argmin", T, 1)
case("keras.backend.cumsum keras.backend.cumprod", F)
case("keras.backend.cumsum keras.backend.cumprod", T, axis=-1)
case("keras.backend.pow", F, 2)
case("keras.backend.clip", F, -0.5, 0.5)
case("keras.backend.clip", F, None, 0.5)
case("keras.backend.clip", F, 0.0, None)
case("keras.backend.clip", F, 1, -1)
case("keras.backend.clip", H, 1e-3, 1.0)
case("keras.backend.constant", [1, 2, 3])
case("keras.backend.constant", 1.5, shape=(2, 2))
case("keras.backend.constant", 2, "int32")
case("keras.backend.variable", [[1.0, 2.0]])
case("keras.backend.stop_gradient", F)
case("keras.backend.in_train_phase keras.backend.in_test_phase", F, G)
case("keras.backend.in_train_phase keras.backend.in_test_phase", F, G, training=1)
case("keras.backend.in_train_phase keras.backend.in_test_phase", F, G, training=0)
case("keras.backend.in_train_phase keras.backend.in_test_phase", F, G, training=True)
case("keras.backend.in_train_phase keras.backend.in_test_phase", F, G, training=False)
case("keras.backend.shape keras.backend.int_shape keras.backend.ndim keras.backend.dtype", T)
case("keras.backend.epsilon keras.backend.floatx keras.backend.image_data_format")
case("keras.backend.backend keras.backend.learning_phase")
case("keras.backend.is_sparse", F)
case("keras.backend.reshape", T, (2, -1))
case("keras.backend.permute_dimensions", T, (0, 2, 1))
case("keras.backend.transpose", T)
case("keras.backend.squeeze", F[:, None], 1)
case("keras.backend.tile", F, [1, 2])
case("keras.backend.tile", ROW, 2)
case("keras.backend.repeat", F, 3)
case("keras.backend.repeat_elements", T, 2, 1)
case("keras.backend.reverse", T, 1)
case("keras.backend.reverse", T, [0, 2])
case("keras.backend.flatten keras.backend.batch_flatten", T)
case("keras.backend.stack", [F, G])
case("keras.backend.stack", [F, G], axis=-1)
case("keras.backend.concatenate", [F, G])
case("keras.backend.concatenate", [F, G], axis=0)
case("keras.backend.gather", F, np.array([2, 0], "int32"))
case("keras.backend.one_hot", np.array([[0, 2], [1, 1]], "int32"), 3)
case("keras.backend.arange", 4)
case("keras.backend.arange", 1, 7, 2, "float32")
case("keras.backend.zeros keras.backend.ones", (2, 3))
case("keras.backend.zeros keras.backend.ones", (2,), dtype="int32")
case("keras.backend.zeros_like keras.backend.ones_like", F)
case("keras.backend.zeros_like keras.backend.ones_like", H, dtype="float32")
case("keras.backend.eye", 3)
case("keras.backend.identity", F)
case("keras.backend.round", TIES)
case("keras.backend.dot", F, N)
case("keras.backend.dot", T, N)
case("keras.backend.dot", T, numbers(2, 4, 5))
case("keras.backend.dot", F, numbers(2, 4, 5))
case("keras.backend.dot", H, N.astype("float16"))
case("keras.backend.batch_dot", T, numbers(2, 4, 5))
case("keras.backend.batch_dot", T, U, axes=2)
case("keras.backend.batch_dot", T, U, axes=[1, 1])
case("keras.backend.batch_dot", T, U, axes=(2, 2))
case("keras.backend.batch_dot", F, G)
case("keras.backend.batch_dot", F, G, axes=1)
case("keras.backend.batch_dot", numbers(2, 4), T, axes=[1, 2])
case("keras.backend.batch_dot", T, numbers(2, 3), axes=[1, 1])
case("keras.backend.batch_dot", T, numbers(2, 4))
case("keras.backend.batch_dot", numbers(2, 3, 4, 5), numbers(2, 5, 6), axes=[3, 1])
case("keras.backend.batch_dot", numbers(2, 3, 4, 5), numbers(2, 3, 5, 2))
case("keras.backend.batch_dot", numbers(2, 3, 4), numbers(2, 6, 4, 5), axes=[2, 2])
case("keras.backend.l2_normalize", F, axis=1)
case("keras.backend.l2_normalize", F)
case("keras.backend.temporal_padding", SIGNAL)
case("keras.backend.temporal_padding", SIGNAL, (2, 0))
case("keras.backend.spatial_2d_padding", IMAGES)
case("keras.backend.spatial_2d_padding", IMAGES, ((1, 0), (2, 1)), "channels_first")
case("keras.backend.spatial_3d_padding", VOLUME, ((1, 0), (2, 1), (0, 1)))
case("keras.backend.resize_images", IMAGES, 2, 3, "channels_last")
case("keras.backend.resize_images", ODD, 2, 2, "channels_last", interpolation="bilinear")
case("keras.backend.resize_images", IMAGES, 2, 2, "channels_first")
case("keras.backend.resize_volumes", VOLUME, 2, 1, 3, "channels_last")
case("keras.backend.resize_volumes", VOLUME, 2, 1, 3, "channels_first")
CERTAIN = np.array([[0.1, 0.2, 0.6, 0.1], [1.0, 0.0, 0.0, 0.0], [0.3, 0.3, 0.2, 0.2]], "float32")
CROSS = "keras.backend.{0} keras.losses.{0} keras.metrics.{0}".format
for name, target in (
    ("categorical_crossentropy", ONE_HOT),
    ("sparse_categorical_crossentropy", LABELS),
):
    case(CROSS(name), target, CERTAIN)
    case(CROSS(name), target, F, from_logits=True)
case(CROSS("categorical_crossentropy"), ONE_HOT.T, CERTAIN.T, axis=0)
case(CROSS("sparse_categorical_crossentropy"), LABELS[:, None], CERTAIN)
case(CROSS("binary_crossentropy"), ONE_HOT, CERTAIN)
case(CROSS("binary_crossentropy"), ONE_HOT, F, True)
TEXTS = np.array([[1, 2, 2, 0], [3, 0, 0, 0]], "float32")
SPOKEN = np.exp(numbers(2, 7, 5))
SPOKEN /= SPOKEN.sum(-1, keepdims=True)
case(
    "keras.backend.ctc_batch_cost",
    TEXTS,
    SPOKEN.astype("float32"),
    np.array([[7], [5]], "int32"),
    np.array([[3], [1]], "int32"),
)
for name in ("mean_squared_error", "mean_absolute_error", "cosine_similarity"):
    case(f"keras.losses.{name}", F, G)
case("keras.losses.mse keras.losses.mae", H, K)
case("keras.losses.cosine_similarity", F, G, axis=0)
case("1:compat.v1.keras.losses.cosine_similarity", F, G)

# Images.
BILINEAR_TOO = (
    "bilinear",
    "nearest",
    "bicubic",
    "area",
    "lanczos3",
    "lanczos5",
    "gaussian",
    "mitchellcubic",
)
for method in BILINEAR_TOO:
    case("image.resize", ODD, [10, 9], method)
    case("image.resize", ODD, [3, 4], method=method)
    case("image.resize", ODD, (3, 9), method, antialias=True)
case("image.resize", IMAGE, [3, 8])
case("image.resize", IMAGES, [6, 4], "bicubic")
case("image.resize", IMAGES.astype("float16"), [3, 8])
case("image.resize", IMAGES.astype("float16"), [3, 8], "nearest")
case("image.resize", BYTES, [3, 8], "nearest")
case("image.resize", BYTES, [3, 8])
case("image.resize", whole(2, 5, 7, 3), [4, 4])
for method in (0, 1):
    for size in ([10, 9], [3, 4], [5, 7], [1, 1]):
        case("compat.v1.image.resize", ODD, size, method)
        case("compat.v1.image.resize", ODD, size, method=method, align_corners=True)
case("compat.v1.image.resize", BYTES, [3, 8])
case("compat.v1.image.resize", BYTES, [3, 8], 1)
for options in ({}, {"align_corners": True}, {"half_pixel_centers": True}):
    for size in ([10, 9], [3, 4]):
        case("image.resize_bilinear image.resize_nearest_neighbor", ODD, size, **options)
case("image.resize_area", ODD, [10, 9])
case("image.resize_area", BYTES, [3, 3])
case("image.flip_left_right image.flip_up_down image.transpose", IMAGES)
case("image.flip_left_right image.flip_up_down image.transpose", IMAGE)
for k in (1, 2, 3, -1, 0):
    case("image.rot90", IMAGES, k)
case("image.rot90", IMAGE)
for x in (IMAGES, IMAGES.astype("float16"), BYTES, IMAGE):
    case("image.adjust_brightness", x, 0.2)
    case("image.adjust_contrast", x, 1.5)
    case("image.adjust_gamma", x, 2.0, 0.9)
    case("image.convert_image_dtype", x, "float32")
    case("image.convert_image_dtype", x, "float16")
    case("image.rgb_to_grayscale image.per_image_standardization", x)
    case("image.flip_up_down", x)
for x in (IMAGES, BYTES, IMAGE):
    case("image.adjust_saturation", x, 0.5)
    case("image.adjust_saturation", x, 1.8)
    case("image.adjust_hue", x, 0.2)
    case("image.adjust_hue", x, -0.1)
case("image.convert_image_dtype", IMAGES, "uint8")
case("image.convert_image_dtype", 2 * IMAGES - 0.5, "uint8", saturate=True)
case("image.convert_image_dtype", BYTES, "uint8")
case("image.grayscale_to_rgb", IMAGES[..., :1])
case("image.grayscale_to_rgb", BYTES[0, ..., :1])
GRAY = np.stack([IMAGES[..., 0]] * 3, -1)
case("image.rgb_to_hsv image.hsv_to_rgb", IMAGES)
case("image.rgb_to_hsv image.hsv_to_rgb", IMAGE)
case("image.rgb_to_hsv", GRAY)
case("image.rgb_to_hsv", np.zeros((2, 3), "float32"))
case("image.rgb_to_yiq image.rgb_to_yuv image.yiq_to_rgb image.yuv_to_rgb", IMAGES)
case("image.total_variation", IMAGES)
case("image.total_variation", IMAGE)
case("image.sobel_edges", IMAGES)
for fraction in (0.5, 0.7, 1.0):
    case("image.central_crop", ODD, fraction)
case("image.central_crop", IMAGE, 0.5)
case("image.crop_to_bounding_box", ODD, 1, 2, 3, 4)
case("image.crop_to_bounding_box", IMAGE, 0, 1, 5, 2)
case("image.pad_to_bounding_box", IMAGES, 1, 2, 9, 8)
case("image.pad_to_bounding_box", IMAGE, 0, 0, 6, 5)
for size in ((3, 9), (8, 4), (5, 7), (6, 6), (2, 2)):
    case("image.resize_with_crop_or_pad", ODD, *size)
case("image.resize_with_crop_or_pad", IMAGE, 4, 4)
for padding in ("VALID", "SAME"):
    case("image.extract_patches", ODD, [1, 2, 3, 1], [1, 1, 2, 1], [1, 1, 1, 1], padding)
    case(
        "image.extract_patches",
        ODD,
        sizes=[1, 2, 2, 1],
        strides=[1, 2, 2, 1],
        rates=[1, 2, 2, 1],
        padding=padding,
    )
    case("extract_image_patches", ODD, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], padding)
case(
    "extract_image_patches",
    IMAGES,
    sizes=[1, 3, 2, 1],
    strides=[1, 3, 2, 1],
    rates=[1, 1, 1, 1],
    padding="VALID",
)

# Random numbers: of these only shapes and dtypes are compared.
case("random.normal random.truncated_normal random.uniform", [2, 3])
case("random.normal random.truncated_normal random.uniform", (4,), 1.0, 2.0, "float16")
case("random.uniform", [5], 2, 9, dtype="int32")
case("random.uniform", [5], minval=-1.0, maxval=1.0)
case("random.shuffle", F)
case("keras.backend.random_normal keras.backend.truncated_normal", (2, 3), 1.0, 0.5)
case("keras.backend.random_uniform keras.backend.random_normal", (2, 3), dtype="float16")
case("keras.backend.random_bernoulli", (2, 3), p=0.3)
case("keras.backend.random_binomial", (2, 3), 0.3, "float16")

# Networks of keras.applications.
PREPARED = """
densenet mobilenet mobilenet_v2 inception_v3 inception_resnet_v2 nasnet xception resnet_v2 vgg16
vgg19 resnet resnet50 efficientnet efficientnet_v2 mobilenet_v3 convnext regnet resnet_rs
"""
PIXELS = np.round(255 * IMAGES)
for name in PREPARED.split():
    case(f"=keras.applications.{name}.preprocess_input", PIXELS)
    case(f"=keras.applications.{name}.preprocess_input", PIXELS.astype("float16"))
    case(
        f"=keras.applications.{name}.preprocess_input",
        PIXELS.transpose(0, 3, 1, 2),
        "channels_first",
    )
for mode in ("caffe", "tf", "torch"):
    case("keras.applications.imagenet_utils.preprocess_input", PIXELS, mode=mode)
    case("keras.applications.imagenet_utils.preprocess_input", PIXELS, "channels_last", mode)

# Losses and metrics.
BOTH_OF = "keras.losses.{0} keras.metrics.{0}".format
SURE, SIGNS = np.abs(CERTAIN - np.float32(0.01)), np.sign(F) + (F == 0)
for dtype in ("float32", "float16"):
    target, output, sign = (one.astype(dtype) for one in (ONE_HOT, SURE, SIGNS))
    one, other = F.astype(dtype), G.astype(dtype)
    positive = np.abs(one) + one.dtype.type(0.25)
    case(BOTH_OF("mean_absolute_percentage_error"), positive, other)
    case(BOTH_OF("mean_squared_logarithmic_error"), positive, other)
    case("keras.losses.huber", one, other)
    case("keras.losses.huber", one, other, delta=0.5)
    case(BOTH_OF("log_cosh"), one, other)
    case(BOTH_OF("poisson"), positive, output)
    case("keras.losses.hinge keras.losses.squared_hinge", sign, other)
    case("keras.losses.hinge keras.losses.squared_hinge", np.round(target), other)
    case("keras.losses.hinge", 2 * sign, other)
    case("keras.losses.categorical_hinge", np.round(target), other)
    case("keras.metrics.binary_accuracy", np.round(target), output)
    case("keras.metrics.categorical_accuracy", target, output)
    case("keras.metrics.top_k_categorical_accuracy", target, output, 2)
    case("keras.metrics.sparse_categorical_accuracy", LABELS, output)
    case("keras.metrics.sparse_top_k_categorical_accuracy", LABELS, output.astype("float32"), k=2)
case(BOTH_OF("kl_divergence"), ONE_HOT, SURE)
case(
    BOTH_OF("kl_divergence"),
    SURE.astype("float16"),
    (SURE[::-1] + np.float32(0.1)).astype("float16"),
)
case("keras.metrics.binary_accuracy", ONE_HOT, SURE, threshold=0.25)
case("keras.metrics.sparse_categorical_accuracy", LABELS[:, None].astype("float32"), CERTAIN)
case("keras.metrics.sparse_categorical_accuracy", TI[..., :1] % 4, T)
case("keras.metrics.sparse_top_k_categorical_accuracy", TI[..., 0] % 4, T, k=2)
case("keras.metrics.top_k_categorical_accuracy", U, T, k=1)
case(BOTH_OF("binary_focal_crossentropy"), ONE_HOT, SURE)
case(BOTH_OF("binary_focal_crossentropy"), ONE_HOT, F, from_logits=True)
case(BOTH_OF("binary_focal_crossentropy"), ONE_HOT, SURE, True, 0.75, 1.5)
case(BOTH_OF("binary_focal_crossentropy"), ONE_HOT, F, from_logits=True, label_smoothing=0.1)
case(BOTH_OF("categorical_focal_crossentropy"), ONE_HOT, SURE)
case(BOTH_OF("categorical_focal_crossentropy"), ONE_HOT.T, SURE.T, 0.5, 1.0, axis=0)
case(BOTH_OF("categorical_focal_crossentropy"), ONE_HOT, F, from_logits=True, label_smoothing=0.1)
case(BOTH_OF("binary_crossentropy"), ONE_HOT, CERTAIN, label_smoothing=0.1)
case(BOTH_OF("categorical_crossentropy"), ONE_HOT, CERTAIN, label_smoothing=0.1)
case(BOTH_OF("categorical_crossentropy"), ONE_HOT, F, True, 0.2)

# Matrices taken apart: their numbers differ well.
WIDE, TALL = numbers(2, 3, 4), numbers(2, 5, 3)
case("linalg.qr", SQUARE)
case("linalg.qr", TALL)
case("linalg.qr", WIDE)
case("linalg.qr", TALL, full_matrices=True)
LOPSIDED = numbers(2, 4, 4)
case("linalg.svd", LOPSIDED)
case("linalg.svd", TALL)
case("linalg.svd", WIDE, full_matrices=False)
case("linalg.svd", WIDE, True)
case("linalg.svd", TALL, compute_uv=False)
case("linalg.svd", LOPSIDED, False, False)
case("linalg.eigh linalg.eigvalsh", LOPSIDED)
case("linalg.eigh linalg.eigvalsh", LOPSIDED[0] + LOPSIDED[0].T)
case("linalg.slogdet", SQUARE)
case("linalg.slogdet", -SQUARE)
case("linalg.lstsq", TALL, numbers(2, 5, 2))
case("linalg.lstsq", WIDE, numbers(2, 3, 2))
case("linalg.lstsq", TALL, numbers(2, 5, 2), 0.5)
case("linalg.pinv linalg.matrix_rank", SQUARE)
case("linalg.pinv linalg.matrix_rank", TALL)
case("linalg.pinv linalg.matrix_rank", WIDE)
case("linalg.pinv", np.ones((2, 3), "float32"))
case("linalg.matrix_rank", np.ones((2, 3, 3), "float32"))
case("linalg.matrix_rank", SQUARE, tol=2.0)
case("linalg.set_diag", SQUARE, numbers(2, 3))
case("linalg.set_diag", T, numbers(2, 3))
case("linalg.set_diag", TALL.astype("float16"), numbers(2, 3).astype("float16"), k=0)
case("linalg.set_diag", TI, whole(2, 3))
case("linalg.tensor_diag_part", SQUARE[0])
case("linalg.tensor_diag_part", numbers(2, 3, 2, 3))

# Counts, norms and polynomials.
for x in (F, H):
    case("linalg.global_norm", [x, 2 * x])
    case("clip_by_global_norm", [x, x], 1.5)
    case("clip_by_global_norm", [x], 1000.0)
    case("math.polyval", [1.0, -2.0, 0.5], x)
    case("nn.weighted_moments", x, [0], np.abs(x))
    case("nn.weighted_moments", x, [0, 1], 2.0, keepdims=True)
    case("nn.sufficient_statistics", x, [0], x[:1])
    case("nn.sufficient_statistics", x, [0, 1])
    case("nn.log_poisson_loss", np.abs(2 * x), x)
    case("nn.log_poisson_loss", np.abs(2 * x), x, True)
    case("nn.weighted_cross_entropy_with_logits", (x > 0).astype(x.dtype), 3 * x, 2.5)
case("clip_by_global_norm", [F, G], 1.0, use_norm=np.array(4.0, "float32"))
case("math.polyval", [], F)
case("math.polyval", [ROW, G], F)
case("compat.v1.nn.weighted_moments", T, [1], U * U, keep_dims=True)
case("compat.v1.nn.sufficient_statistics", T, [1, 2], keep_dims=True)
case("nn.normalize_moments", np.array(12.0, "float32"), ROW, ROW * ROW + 9, None)
case(
    "nn.normalize_moments",
    np.array(12.0, "float32"),
    ROW,
    ROW * ROW + 9,
    shift=np.array(0.5, "float32"),
)
case("compat.v1.nn.weighted_cross_entropy_with_logits", targets=ONE_HOT, logits=F, pos_weight=0.5)
for x in (F, np.sort(ROW), np.array([1, 1, 3], "int32"), np.array([[1.0, 2], [3, 4]], "float32")):
    case("math.is_non_decreasing math.is_strictly_increasing", x)
for x in (numbers(4), numbers(4, 3), whole(4, 3)):
    case("math.unsorted_segment_prod", x, IDS, 4)
HITS = np.array([[1, 3, 1], [0, 7, 1]], "int32")
case("math.bincount", HITS, minlength=5, maxlength=5)
case("math.bincount", HITS, U[:, :, 0], 8, 8)
case("math.bincount", HITS, minlength=4, maxlength=4, axis=-1, dtype="int64")
case("math.bincount", HITS, minlength=4, maxlength=4, axis=-1, binary_output=True)
case("math.confusion_matrix", np.array([0, 2, 1, 2], "int32"), np.array([0, 2, 2, 2], "int32"), 4)
case(
    "math.confusion_matrix",
    np.array([0, 1], "int32"),
    np.array([1, 1], "int32"),
    2,
    np.array([0.5, 2], "float32"),
    "float32",
)
case(
    "compat.v1.confusion_matrix", np.array([0, 1], "int64"), np.array([1, 1], "int64"), 2, "float32"
)
case("unravel_index", np.array([22, 41, 37], "int32"), [7, 6])
case("unravel_index", np.array([5], "int64"), dims=[2, 2, 3])

# Networks, and images.
case("nn.batch_norm_with_global_normalization", IMAGES, MEAN, VARIANCE, OFFSET, SCALE, 0.001, True)
case("nn.batch_norm_with_global_normalization", IMAGES, MEAN, VARIANCE, OFFSET, SCALE, 0.01, False)
case(
    "compat.v1.nn.batch_norm_with_global_normalization",
    IMAGES,
    MEAN,
    VARIANCE,
    OFFSET,
    SCALE,
    0.01,
    True,
)
MOUND = numbers(3, 2, 3)
for padding in ("SAME", "VALID"):
    case("nn.dilation2d nn.erosion2d", ODD, MOUND, [1, 1, 1, 1], padding, "NHWC", [1, 1, 1, 1])
    case("nn.dilation2d nn.erosion2d", ODD, MOUND, [1, 2, 1, 1], padding, "NHWC", [1, 1, 2, 1])
    case("compat.v1.nn.dilation2d", ODD, MOUND, [1, 1, 1, 1], [1, 1, 1, 1], padding)
    case("compat.v1.nn.erosion2d", ODD, MOUND, [1, 1, 1, 1], [1, 2, 2, 1], padding)
case(
    "nn.dilation2d",
    ODD.astype("float16"),
    MOUND.astype("float16"),
    [1, 2, 2, 1],
    "SAME",
    "NHWC",
    [1, 1, 1, 1],
)
SAID, HEARD = np.array([[1, 2, 2, 0], [3, 1, 0, 0]], "int32"), numbers(7, 2, 5)
LENGTHS = np.array([3, 2], "int32"), np.array([7, 5], "int32")
case("nn.ctc_loss", SAID, HEARD, *LENGTHS)
case(
    "nn.ctc_loss", SAID, HEARD.transpose(1, 0, 2), *LENGTHS, logits_time_major=False, blank_index=-1
)
case("nn.ctc_loss", SAID, HEARD, *LENGTHS, blank_index=4)
for size in ((8, 8), (3, 9), (6, 2), (5, 7), (12, 7)):
    case("image.resize_with_pad", ODD, *size)
case("image.resize_with_pad", IMAGE, 9, 5, "nearest")
case("image.resize_with_pad", ODD, 4, 4, method="bicubic", antialias=True)
BOXES = np.array([[0, 0, 1, 1], [0.2, 0.1, 0.7, 0.9], [0.8, 1.2, -0.2, 0]], "float32")
OF_BOXES = np.array([0, 1, 1], "int32")
case("image.crop_and_resize", ODD, BOXES, OF_BOXES, [4, 3])
case("image.crop_and_resize", ODD, BOXES, OF_BOXES, [3, 1], "nearest", 0.5)
case("compat.v1.image.crop_and_resize", ODD, BOXES, OF_BOXES, [1, 5], extrapolation_value=2.0)
case("image.crop_and_resize", BYTES, BOXES[:2], OF_BOXES[:2], (2, 2))
case("image.image_gradients", ODD)
case("image.image_gradients", ODD.astype("float16"))
LARGE = numbers(2, 14, 13, 3, low=0, high=1)
case("image.psnr", LARGE, LARGE[::-1].copy(), 1.0)
case("image.psnr", BYTES, BYTES[::-1].copy(), max_val=255)
ALIKE = (3 * LARGE + LARGE[::-1]) / 4  # of others there is little but noise
case("image.ssim", LARGE, ALIKE, 1.0)
case("image.ssim", LARGE[0], ALIKE[0], max_val=1.0, filter_size=5, filter_sigma=1.0, k1=0.02)
case("image.ssim", LARGE, ALIKE, 1.0, return_index_map=True)
for x in (IMAGES, IMAGE, BYTES):
    case("image.random_flip_left_right image.random_flip_up_down", x)
    case("image.random_brightness image.random_hue", x, 0.2)
    case("image.random_contrast image.random_saturation", x, 0.5, 1.5)
case("image.random_brightness", IMAGES.astype("float16"), 0.2)
case("random_crop", ODD, [2, 3, 4, 3])
case("random_crop", IMAGE, (4, 4, 3))
