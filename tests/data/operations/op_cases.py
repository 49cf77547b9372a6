"""What ops of graphs are given: inputs in their order, attributes by name. As function_cases."""

import numpy as np
from function_cases import (
    BOXES,
    BYTES,
    CELLS,
    CERTAIN,
    DEPTHWISE,
    EDGES,
    HALF_ROW,
    IMAGES,
    KERNEL_2,
    KERNEL_3,
    LABELS,
    LOPSIDED,
    LOWER,
    MEAN,
    MOUND,
    ODD,
    OF_BOXES,
    OFFSET,
    ONE_HOT,
    ROW,
    ROWS,
    SCALE,
    SMALL,
    SPOTS,
    SQUARE,
    TALL,
    TH,
    TI,
    TIES,
    TURNED_2,
    TURNED_3,
    VARIANCE,
    VOLUME,
    WIDE,
    B,
    C,
    F,
    G,
    H,
    K,
    M,
    N,
    P,
    Q,
    T,
    U,
)

ALL = []


def case(names, *arguments, **options):
    """Adds a case of each name."""
    ALL.extend((name, arguments, options) for name in names.split())


def cases():
    """Returns (name, inputs, attributes) of all."""
    return ALL


for x in (F, H):
    case("Abs Neg Sign Square Exp Expm1 Sin Cos Tan Atan Sinh Cosh Tanh Asinh Erf Erfc Floor", x)
    case("Ceil Round IsFinite IsInf IsNan Identity StopGradient Relu Relu6 Elu Selu Sigmoid", x)
    case("Softplus Softsign Softmax LogSoftmax ZerosLike OnesLike LeakyRelu L2Loss", x)
    positive, unit = np.abs(x) + x.dtype.type(0.1), x / x.dtype.type(2.5)
    case("Sqrt Rsqrt Reciprocal Log Log1p", positive)
    case("Acosh", positive + x.dtype.type(1))
    case("Asin Acos Atanh Erfinv", unit)
case("Abs Neg Sign Square ZerosLike OnesLike Invert", P)
case("Abs IsFinite IsInf IsNan Relu Softplus", EDGES)
case("Round Rint", TIES)
case("=CheckNumerics =PreventGradient", F, message="is it")
case("=Print", F, F, message="see")
case("EnsureShape", F, shape=[None, 4])
case("IdentityN", F, P)
case("LogicalNot", B)
case("LeakyRelu", F, alpha=0.3)

BOTH = "Add Sub Mul RealDiv DivNoNan FloorDiv FloorMod Maximum Minimum"
COMPARED = "Equal NotEqual Greater GreaterEqual Less LessEqual"
for x, y, row in ((F, G, ROW), (H, K, HALF_ROW)):
    case(f"{BOTH} {COMPARED} MulNoNan SquaredDifference", x, y)
    case("AddV2 Mul RealDiv Maximum", x, row)
    case("Pow", np.abs(x) + x.dtype.type(0.5), y)
    case("Xlogy Xdivy", x, np.abs(y) + x.dtype.type(0.5))
    case("Div Mod", x, np.abs(y) + x.dtype.type(0.5))
    case("=AddN", x, y, x)
case("Xlog1py Atan2", F, np.abs(G) + np.float32(0.5))
case("Mul AddV2 Sub", F, 2.0)
case("Mul Sub RealDiv", 2.0, F)
case(
    f"Add Sub Mul FloorDiv FloorMod Maximum Minimum TruncateDiv TruncateMod Div Mod {COMPARED}",
    P,
    Q,
)
case("BitwiseAnd BitwiseOr BitwiseXor SquaredDifference", P, Q)
case("LeftShift RightShift", P, np.array([1, 2, 3, 4], "int32"))
case("Pow", P, 2)
case("LogicalAnd LogicalOr", B, C)
case("=AccumulateNV2", F, G, shape=[3, 4])
case("=AddN", P, Q)
case("ClipByValue", F, -0.5, 0.75)
case("ClipByValue", H, np.array(0, "float16"), np.array(1, "float16"))
for dtype in ("float16", "float32", "float64", "int32", "int64", "uint8", "bool"):
    case("Cast", np.abs(F), DstT=dtype)
case("Cast", P, DstT="float32")
case("Cast", F, DstT="int32")
case("Select", B, F, G)
case("Select", B[:, 0], F, G)
case("SelectV2", B[:, :1], F, G)
case("SelectV2", B, F, 0.0)

for x in (T, TH):
    case("Sum Mean Prod Max Min EuclideanNorm", x, [1])
    case("Sum Mean Max", x, [0, -1], keep_dims=True)
case("Sum Mean Prod Max Min", TI, [1])
case("Sum Mean", T, 2)
case("Mean", T, [0, 1, 2])
case("All Any", T > 0, [1])
case("All Any", T > 0, [0, -1], keep_dims=True)
for x in (F, H, P):
    case("Cumsum Cumprod", x, 1)
    case("Cumsum Cumprod", x, -1, exclusive=True, reverse=True)
    case("ArgMax ArgMin", x, 1)
    case("ArgMax ArgMin", x, 0, output_type="int32")
IDS = np.array([0, 2, 0], "int32")
for x in (F, P):
    case("UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin", x, IDS, 4)

case("Shape Rank Size", T)
case("Shape Size", T, out_type="int64")
case("Reshape", T, [2, -1])
case("Reshape", TI, [-1])
case("Transpose", T, [0, 2, 1])
case("ExpandDims", F, 1)
case("ExpandDims", F, -1)
case("Squeeze", F[:, None, :, None])
case("Squeeze", F[:, None, :, None], squeeze_dims=[1, -1])
case("Tile", F, [2, 3])
case("BroadcastTo", F[:, :1], [2, 3, 4])
case("Pad", F, [[1, 0], [2, 1]])
case("PadV2", F, [[1, 0], [2, 1]], 1.5)
case("PadV2", P, [[1, 0], [2, 1]], -1)
case("MirrorPad", F, [[1, 1], [2, 1]], mode="REFLECT")
case("MirrorPad", H, [[1, 1], [2, 1]], mode="SYMMETRIC")
case("ReverseV2", T, [1, -1])
case("ReverseSequence", T, np.array([2, 3], "int32"), seq_dim=1)
case("ReverseSequence", T, np.array([2, 1, 4], "int64"), seq_dim=2, batch_dim=1)
case("Roll", F, 1, 1)
case("Roll", F, [1, -2], [0, 1])
case("Pack", F, G)
case("Pack", F, G, axis=-1)
case("Pack", P, Q, axis=1)
case("Unpack", F, num=4, axis=1)
case("Unpack", F, num=3)
case("ConcatV2", F, G, 1)
case("ConcatV2", H, K, H, 0)
case("Concat", -1, F, G)
case("Split", 1, F, num_split=2)
case("SplitV", F, [1, -1, 2], 1, num_split=3)
case("Slice", T, [0, 1, 2], [2, 1, -1])
for begin, end, strides, masks in (
    ([0, 1], [2, 3], [1, 1], {}),
    ([0, -1, 3], [2, -4, 0], [1, -1, -2], {}),
    ([0, 1], [0, 0], [1, 1], {"begin_mask": 1, "end_mask": 3}),
    ([0, 1, 0], [0, 2, 3], [1, 1, 1], {"ellipsis_mask": 1, "shrink_axis_mask": 2}),
    ([0, 0, 1], [2, 0, 3], [1, 1, 1], {"new_axis_mask": 2, "begin_mask": 1}),
    ([0, -1], [0, 0], [1, 1], {"shrink_axis_mask": 2, "begin_mask": 1, "end_mask": 1}),
    ([0, 0], [0, 0], [-1, -1], {"begin_mask": 3, "end_mask": 3}),
):
    case("StridedSlice", T, begin, end, strides, **masks)
case("StridedSlice", np.array([5, 6, 7], "int32"), [1], [2], [1], shrink_axis_mask=1)
case("Gather", F, np.array([2, 0], "int32"))
case("GatherV2", T, np.array([[0, 2], [1, 1]], "int32"), 1)
case("GatherV2", T, np.array([[0, 2], [1, 1]], "int32"), 2, batch_dims=1)
case("GatherNd", T, np.array([[1, 2], [0, 0]], "int32"))
case("OneHot", np.array([0, 2, -1, 5], "int32"), 3, 1.0, 0.0)
case("OneHot", np.array([[0, 2], [1, 1]], "int64"), 3, 5, -1, axis=1)
case("Fill", [2, 3], 1.5)
case("Fill", [2], 3)
case("Range", 1, 9, 3)
case("Range", 0.0, 1.0, 0.25)
case("LinSpace", 0.0, 1.0, 5)
case("MatrixDiag Diag", ROW)
case("MatrixDiag Diag", F)
case("MatrixDiagPart", SQUARE)
case("MatrixDiagV2", F, 0, -1, -1, 0.0)
case("MatrixDiagPartV2", SQUARE, 0, 0.0)
case("MatrixBandPart", T, 1, 0)
case("MatrixBandPart", TI, -1, 0)
case("TopKV2", F, 2)
case("TopKV2", P, 3, sorted=True)
case("InTopKV2", CERTAIN, LABELS, 2)
case("InvertPermutation", np.array([2, 0, 1, 3], "int32"))
case("LowerBound UpperBound", ROWS, np.array([[2.0, 0, 5], [1, 10, 4]], "float32"))
case("LowerBound", ROWS, np.array([[2.0], [9]], "float32"), out_type="int64")
case("SpaceToDepth DepthToSpace", CELLS, block_size=2)
case("SpaceToBatchND", CELLS, [2, 2], [[0, 0], [1, 1]])
case("BatchToSpaceND", np.concatenate([CELLS, CELLS]), [2, 2], [[0, 0], [1, 0]])
case(
    "TensorScatterUpdate TensorScatterAdd TensorScatterSub", F, SPOTS, np.array([9.0, 8], "float32")
)
case("ScatterNd", np.array([[4], [1], [4]], "int32"), np.array([9.0, 8, 1], "float32"), [6])

case("MatMul", M, N)
case("MatMul", M, F, transpose_b=True)
case("MatMul", M, F, transpose_a=True)
case("MatMul", H, K, transpose_b=True)
case("BatchMatMulV2", T, U, adj_y=True)
case("BatchMatMulV2", T, U, adj_x=True)
case("=BatchMatMulV2", T, N)
case("BatchMatMulV2", TH, TH, adj_y=True)
case("=BatchMatMulV3", T, U, adj_y=True, Tout="float32")
case("Einsum", T, U, equation="bij,bkj->bik")
case("Cross", M[:, :3], F[:, 1:])
case("MatrixInverse MatrixDeterminant Cholesky", SQUARE)
case("MatrixSolve", SQUARE, T)
case("MatrixTriangularSolve", LOWER, T)
case("MatrixTriangularSolve", LOWER, T, adjoint=True)
case("MatrixTriangularSolve", LOWER.transpose(0, 2, 1), T, lower=False)

case("BiasAdd", IMAGES, MEAN)
case("BiasAdd", IMAGES, np.arange(6, dtype="float32"), data_format="NCHW")
case("BiasAdd", H, HALF_ROW)
case("FusedBatchNormV3", IMAGES, SCALE, OFFSET, MEAN, VARIANCE, is_training=False, epsilon=0.01)
case("SoftmaxCrossEntropyWithLogits", F, ONE_HOT)
case("SparseSoftmaxCrossEntropyWithLogits", F, LABELS)
case("SigmoidGrad", F, G)
case("LRN", CELLS, depth_radius=2, alpha=0.5)
for padding in ("SAME", "VALID"):
    case("Conv2D", ODD, KERNEL_2, strides=[1, 1, 1, 1], padding=padding)
    case("Conv2D", ODD, KERNEL_2, strides=[1, 2, 2, 1], padding=padding)
    case("Conv2D", ODD, KERNEL_2, strides=[1, 1, 1, 1], padding=padding, dilations=[1, 2, 2, 1])
    case("Conv3D", VOLUME, KERNEL_3, strides=[1, 2, 2, 2, 1], padding=padding)
    case("DepthwiseConv2dNative", ODD, DEPTHWISE, strides=[1, 2, 2, 1], padding=padding)
    for name in ("MaxPool", "AvgPool"):
        case(name, ODD, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding=padding)
        case(name, ODD, ksize=[1, 3, 2, 1], strides=[1, 1, 2, 1], padding=padding)
        case(f"{name}3D", VOLUME, ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding=padding)
    patches = {"ksizes": [1, 2, 3, 1], "strides": [1, 2, 2, 1], "rates": [1, 1, 1, 1]}
    case("ExtractImagePatches", ODD, padding=padding, **patches)
case("Conv2DBackpropInput", [2, 6, 8, 2], TURNED_2, SMALL, strides=[1, 2, 2, 1], padding="SAME")
case("Conv2DBackpropInput", [2, 8, 10, 2], TURNED_2, SMALL, strides=[1, 2, 2, 1], padding="VALID")
case(
    "Conv3DBackpropInputV2",
    [2, 8, 8, 8, 3],
    TURNED_3,
    VOLUME,
    strides=[1, 2, 2, 2, 1],
    padding="SAME",
)

for options in ({}, {"align_corners": True}, {"half_pixel_centers": True}):
    for size in ([10, 9], [3, 4]):
        case("ResizeBilinear ResizeNearestNeighbor", ODD, size, **options)
case("ResizeBilinear ResizeNearestNeighbor", BYTES, [3, 8], half_pixel_centers=True)
for size in ([10, 9], [3, 4]):
    case("ResizeBicubic", ODD, size, half_pixel_centers=True)
    case("ResizeArea", ODD, size)
    scale = [size[0] / 5, size[1] / 7]
    for kind in ("triangle", "keyscubic", "lanczos3", "gaussian"):
        case("ScaleAndTranslate", ODD, size, scale, [0.0, 0.0], kernel_type=kind)
case(
    "ScaleAndTranslate",
    ODD,
    [3, 4],
    [0.6, 4 / 7],
    [0.0, 0.0],
    kernel_type="lanczos5",
    antialias=False,
)
case("AdjustContrastv2", IMAGES, 1.5)
case("AdjustSaturation", IMAGES, 0.5)
case("AdjustHue", IMAGES, 0.2)
case("RGBToHSV HSVToRGB", IMAGES)

case("RandomStandardNormal TruncatedNormal RandomUniform", [2, 3], dtype="float32")
case("RandomStandardNormal", [2, 3], dtype="float16")
case("RandomUniformInt", [5], 2, 9)
case("RandomShuffle", F)
SEED, KEY, COUNTER = [3, 4], np.array([5], "uint64"), np.array([6, 7], "uint64")
case("StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal", [2, 3], SEED)
case("StatelessRandomUniformInt", [5], SEED, 2, 9)
case(
    "StatelessRandomUniformV2 StatelessRandomNormalV2 StatelessTruncatedNormalV2",
    [2, 3],
    KEY,
    COUNTER,
    1,
    dtype="float32",
)
case("StatelessRandomUniformIntV2", [5], KEY, COUNTER, 1, 2, 9)

case("Bucketize", F, boundaries=[-0.5, 0.0, 1.0])
case("Bucketize", CERTAIN, boundaries=[1.0])

for x in (LOPSIDED, TALL, WIDE):
    case("Qr Svd", x, full_matrices=False)
case("Qr", TALL, full_matrices=True)
case("Svd", WIDE, full_matrices=True)
case("Svd", TALL, compute_uv=False)
case("SelfAdjointEigV2", LOPSIDED)
case("SelfAdjointEigV2", LOPSIDED, compute_v=False)
case("LogMatrixDeterminant", SQUARE)
case("MatrixSolveLs", TALL, TALL[..., :2].copy(), np.array(0.5))
case("MatrixSetDiag", T, SQUARE[:, 0].copy())
case("MatrixSetDiagV2", TALL, SQUARE[:, 0].copy(), 0)
case("DiagPart", SQUARE[0])
for x in (F, P):
    case("UnsortedSegmentProd", x, IDS, 4)
case("UnravelIndex", np.array([22, 41, 37], "int32"), [7, 6])
windows = {"strides": [1, 2, 1, 1], "rates": [1, 1, 2, 1]}
for padding in ("SAME", "VALID"):
    case("Dilation2D", ODD, MOUND, padding=padding, **windows)
case("CropAndResize", ODD, BOXES, OF_BOXES, [4, 3])
case("CropAndResize", BYTES, BOXES, OF_BOXES, [3, 1], method="nearest", extrapolation_value=0.5)
