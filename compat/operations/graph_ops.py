"""Ops of TensorFlow's graphs, as TF 1.15 to 2.3 saved them, as operations.

As in `functions`: inputs in their order, then behind "*" the attributes that count. Attributes that
are not there say nothing about the result.
"""

_SAME = {
    # Operation -> the ops of the same inputs.
    "absolute": "Abs",
    "negative": "Neg",
    "sign": "Sign",
    "square": "Square",
    "sqrt": "Sqrt",
    "rsqrt": "Rsqrt",
    "reciprocal": "Reciprocal Inv",
    "exp": "Exp",
    "expm1": "Expm1",
    "log": "Log",
    "log1p": "Log1p",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "arcsin": "Asin",
    "arccos": "Acos",
    "arctan": "Atan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "tanh": "Tanh",
    "arcsinh": "Asinh",
    "arccosh": "Acosh",
    "arctanh": "Atanh",
    "erf": "Erf",
    "erfinv": "Erfinv",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round Rint",
    "isfinite": "IsFinite",
    "isinf": "IsInf",
    "isnan": "IsNan",
    "logical_not": "LogicalNot",
    "bitwise_invert": "Invert",
    "identity": "Identity Snapshot CheckNumerics PreventGradient",
    "stop_gradient": "StopGradient",
    "relu": "Relu",
    "relu6": "Relu6",
    "elu": "Elu",
    "selu": "Selu",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "softsign": "Softsign",
    "softmax": "Softmax",
    "log_softmax": "LogSoftmax",
    "zeros_like": "ZerosLike",
    "ones_like": "OnesLike",
    "rank": "Rank",
    "diag": "MatrixDiag",
    "tensor_diag": "Diag",
    "diagonal": "MatrixDiagPart",
    "det": "MatrixDeterminant",
    "cholesky": "Cholesky",
    "slogdet": "LogMatrixDeterminant",
    "tensor_diagonal": "DiagPart",
    "rgb_to_hsv": "RGBToHSV",
    "hsv_to_rgb": "HSVToRGB",
    "random_shuffle": "RandomShuffle",
}

_OF_TWO = {
    "add": "Add AddV2",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "RealDiv",
    "divide_no_nan": "DivNoNan",
    "multiply_no_nan": "MulNoNan",
    "floor_divide": "FloorDiv",
    "truncate_divide": "TruncateDiv Div",  # of floating numbers, Div alone
    "mod": "FloorMod",
    "truncate_mod": "TruncateMod Mod",
    "power": "Pow",
    "maximum": "Maximum",
    "minimum": "Minimum",
    "arctan2": "Atan2",
    "xlogy": "Xlogy",
    "xlog1py": "Xlog1py",
    "xdivy": "Xdivy",
    "equal": "Equal",
    "not_equal": "NotEqual",
    "greater": "Greater",
    "greater_equal": "GreaterEqual",
    "less": "Less",
    "less_equal": "LessEqual",
    "logical_and": "LogicalAnd",
    "logical_or": "LogicalOr",
    "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
    "left_shift": "LeftShift",
    "right_shift": "RightShift",
    "cross": "Cross",
}

_REDUCTIONS = {
    "sum": "Sum",
    "mean": "Mean",
    "prod": "Prod",
    "max": "Max",
    "min": "Min",
    "all": "All",
    "any": "Any",
    "norm": "EuclideanNorm",
}

_OTHERS = """
EnsureShape(input, *, shape=None) = identity(input)
IdentityN(*input) = as_list(input)
Print(input, *data) = identity(input)
Erfc(x) = subtract(1.0, erf(x))
SquaredDifference(x, y) = square(subtract(x, y))
AddN, AccumulateNV2(*inputs) = add_n(inputs)
Cast(x, *, DstT) = cast(x, DstT)
ClipByValue(t, clip_value_min, clip_value_max) = clip(t, clip_value_min, clip_value_max)
LeakyRelu(features, *, alpha=0.2) = leaky_relu(features, alpha)
Cumsum(x, axis, *, exclusive=False, reverse=False) = cumsum(x, axis, exclusive, reverse)
Cumprod(x, axis, *, exclusive=False, reverse=False) = cumprod(x, axis, exclusive, reverse)
ArgMax(input, dimension, *, output_type="int64") = argmax(input, dimension, output_type)
ArgMin(input, dimension, *, output_type="int64") = argmin(input, dimension, output_type)
UnsortedSegmentSum(data, segment_ids, num_segments) = segment_sum(data, segment_ids, num_segments)
UnsortedSegmentMax(data, segment_ids, num_segments) = segment_max(data, segment_ids, num_segments)
UnsortedSegmentMin(data, segment_ids, num_segments) = segment_min(data, segment_ids, num_segments)
UnsortedSegmentProd(data, segment_ids, num_segments) = segment_prod(data, segment_ids, num_segments)
UnravelIndex(indices, dims) = unravel_index(indices, dims)
Select(condition, x, y) = select(condition, x, y)
SelectV2(condition, x, y) = where(condition, x, y)
Shape(input, *, out_type="int32") = shape(input) if out_type == "int32" else cast(shape(input), out_type)
Size(input, *, out_type="int32") = size(input) if out_type == "int32" else cast(size(input), out_type)
Reshape(tensor, shape) = reshape(tensor, shape)
Transpose(x, perm) = transpose(x, perm)
ExpandDims(input, dim) = expand_dims(input, dim)
Squeeze(input, *, squeeze_dims=None) = squeeze(input, squeeze_dims or None)
Tile(input, multiples) = tile(input, multiples)
BroadcastTo(input, shape) = broadcast_to(input, shape)
Pad(input, paddings) = pad(input, paddings)
PadV2(input, paddings, constant_values) = pad(input, paddings, "constant", constant_values)
MirrorPad(input, paddings, *, mode) = pad(input, paddings, mode)
ReverseV2(tensor, axis) = flip(tensor, axis)
ReverseSequence(input, seq_lengths, *, seq_dim, batch_dim=0) = reverse_sequence(input, seq_lengths, seq_dim, batch_dim)
Roll(input, shift, axis) = roll(input, shift, axis)
Pack(*values, axis=0) = stack(values, axis)
Unpack(value, *, num=None, axis=0) = unstack(value, num, axis)
ConcatV2(*values) = concatenate(all_but_last(values), last(values))
Concat(concat_dim, *values) = concatenate(values, concat_dim)
Split(split_dim, value, *, num_split) = split(value, num_split, split_dim)
SplitV(value, size_splits, split_dim, *, num_split=None) = split(value, size_splits, split_dim)
Slice(input, begin, size) = slice(input, begin, size)
StridedSlice(input, begin, end, strides, *, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0) = strided_slice(input, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
Gather(params, indices) = take(params, indices)
GatherV2(params, indices, axis=0, *, batch_dims=0) = take(params, indices, axis, batch_dims)
GatherNd(params, indices) = gather_nd(params, indices)
OneHot(indices, depth, on_value, off_value, *, axis=-1, T=None) = one_hot(indices, depth, on_value, off_value, axis, T)
Fill(dims, value) = full(dims, value)
Range(start, limit, delta) = arange(start, limit, delta)
LinSpace(start, stop, num) = linspace(start, stop, num)
MatrixDiagV2, MatrixDiagV3(diagonal, k, num_rows, num_cols, padding_value) = diag(diagonal) ; k in (0,) and num_rows in (-1,) and num_cols in (-1,) and padding_value in (0,)
MatrixDiagPartV2, MatrixDiagPartV3(input, k, padding_value) = diagonal(input) ; k in (0,)
MatrixSetDiag(input, diagonal) = set_diagonal(input, diagonal)
MatrixSetDiagV2, MatrixSetDiagV3(input, diagonal, k) = set_diagonal(input, diagonal) ; k in (0,)
InvertPermutation(x) = argsort(x)
LowerBound(sorted_inputs, values, *, out_type="int32") = cast(searchsorted(sorted_inputs, values), out_type)
UpperBound(sorted_inputs, values, *, out_type="int32") = cast(searchsorted(sorted_inputs, values, "right"), out_type)
MatrixBandPart(input, num_lower, num_upper) = band_part(input, num_lower, num_upper)
TopKV2(input, k, *, sorted=True) = top_k(input, k, sorted)
InTopKV2(predictions, targets, k) = in_top_k(targets, predictions, k)
SpaceToBatchND(input, block_shape, paddings) = space_to_batch(input, block_shape, paddings)
BatchToSpaceND(input, block_shape, crops) = batch_to_space(input, block_shape, crops)
SpaceToDepth(input, *, block_size, data_format="NHWC") = space_to_depth(input, block_size, data_format)
DepthToSpace(input, *, block_size, data_format="NHWC") = depth_to_space(input, block_size, data_format)
TensorScatterUpdate(tensor, indices, updates) = tensor_scatter_update(tensor, indices, updates)
TensorScatterAdd(tensor, indices, updates) = tensor_scatter_add(tensor, indices, updates)
TensorScatterSub(tensor, indices, updates) = tensor_scatter_add(tensor, indices, negative(updates))
ScatterNd(indices, updates, shape) = tensor_scatter_add(full(shape, 0, dtype(updates)), indices, updates)
MatMul(a, b, *, transpose_a=False, transpose_b=False) = matmul(a, b, transpose_a, transpose_b)
BatchMatMul, BatchMatMulV2, BatchMatMulV3(x, y, *, adj_x=False, adj_y=False) = matmul(x, y, adj_x, adj_y)
Einsum(*inputs, equation) = einsum(equation, inputs)
MatrixInverse(input, *, adjoint=False) = inv(input) ; adjoint in (False,)
MatrixSolve(matrix, rhs, *, adjoint=False) = solve(matrix, rhs) ; adjoint in (False,)
MatrixTriangularSolve(matrix, rhs, *, lower=True, adjoint=False) = triangular_solve(matrix, rhs, lower, adjoint)
Qr(input, *, full_matrices=False) = qr(input, full_matrices)
Svd(input, *, compute_uv=True, full_matrices=False) = svd(input, full_matrices) if compute_uv == True else [item(svd(input), 0)]
SelfAdjointEigV2(input, *, compute_v=True) = eigh(input) if compute_v == True else [item(eigh(input), 0)]
MatrixSolveLs(matrix, rhs, l2_regularizer, *, fast=True) = lstsq(matrix, rhs, l2_regularizer) ; fast in (True,)
BiasAdd(value, bias, *, data_format="NHWC") = bias_add(value, bias, data_format)
FusedBatchNorm, FusedBatchNormV2, FusedBatchNormV3(x, scale, offset, mean, variance, *, epsilon=0.0001, data_format="NHWC", is_training=True, exponential_avg_factor=1.0) = fused_batch_normalization(x, scale, offset, mean, variance, epsilon, data_format, is_training, exponential_avg_factor)
Bucketize(input, *, boundaries) = searchsorted(boundaries, input, "right")
StatelessRandomUniformV2(shape, key, counter, alg, *, dtype="float32") = random_uniform(shape, 0, None, dtype)
StatelessRandomNormalV2(shape, key, counter, alg, *, dtype="float32") = random_normal(shape, 0.0, 1.0, dtype)
StatelessTruncatedNormalV2(shape, key, counter, alg, *, dtype="float32") = random_truncated_normal(shape, 0.0, 1.0, dtype)
StatelessRandomUniformIntV2(shape, key, counter, alg, minval, maxval, *, dtype="int64") = random_uniform(shape, minval, maxval, dtype)
StatelessRandomUniform(shape, seed, *, dtype="float32") = random_uniform(shape, 0, None, dtype)
StatelessRandomNormal(shape, seed, *, dtype="float32") = random_normal(shape, 0.0, 1.0, dtype)
StatelessTruncatedNormal(shape, seed, *, dtype="float32") = random_truncated_normal(shape, 0.0, 1.0, dtype)
StatelessRandomUniformInt(shape, seed, minval, maxval, *, dtype="int64") = random_uniform(shape, minval, maxval, dtype)
SoftmaxCrossEntropyWithLogits(features, labels) = [softmax_cross_entropy(labels, features), subtract(softmax(features), labels)]
SparseSoftmaxCrossEntropyWithLogits(features, labels) = [sparse_softmax_cross_entropy(labels, features)]
LRN(input, *, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5) = local_response_normalization(input, depth_radius, bias, alpha, beta)
L2Loss(t) = divide(sum(square(t)), 2.0)
Conv2D(input, filter, *, strides, padding, data_format="NHWC", dilations=1, explicit_paddings=None) = conv(input, filter, strides, padding, data_format, dilations) ; padding in ("SAME", "VALID")
Conv3D(input, filter, *, strides, padding, data_format="NDHWC", dilations=1) = conv(input, filter, strides, padding, data_format, dilations)
DepthwiseConv2dNative(input, filter, *, strides, padding, data_format="NHWC", dilations=1, explicit_paddings=None) = depthwise_conv(input, filter, strides, padding, data_format, dilations) ; padding in ("SAME", "VALID")
Conv2DBackpropInput(input_sizes, filter, out_backprop, *, strides, padding, data_format="NHWC", dilations=1) = conv_transpose(out_backprop, filter, input_sizes, strides, padding, data_format) ; dilations in (1, [1, 1, 1, 1]) and padding in ("SAME", "VALID")
Conv3DBackpropInputV2(input_sizes, filter, out_backprop, *, strides, padding, data_format="NDHWC", dilations=1) = conv_transpose(out_backprop, filter, input_sizes, strides, padding, data_format) ; dilations in (1, [1, 1, 1, 1, 1])
Dilation2D(input, filter, *, strides, rates, padding) = dilation(input, filter, strides, padding, rates)
MaxPool(input, *, ksize, strides, padding, data_format="NHWC", explicit_paddings=None) = max_pool(input, ksize, strides, padding, data_format) ; padding in ("SAME", "VALID")
MaxPool3D(input, *, ksize, strides, padding, data_format="NDHWC") = max_pool(input, ksize, strides, padding, data_format)
AvgPool(value, *, ksize, strides, padding, data_format="NHWC") = average_pool(value, ksize, strides, padding, data_format)
AvgPool3D(input, *, ksize, strides, padding, data_format="NDHWC") = average_pool(input, ksize, strides, padding, data_format)
ResizeBilinear(images, size, *, align_corners=False, half_pixel_centers=False) = resize_v1(images, size, "bilinear", align_corners, half_pixel_centers)
ResizeNearestNeighbor(images, size, *, align_corners=False, half_pixel_centers=False) = resize_v1(images, size, "nearest", align_corners, half_pixel_centers)
ResizeBicubic(images, size, *, align_corners=False, half_pixel_centers=False) = resize(images, size, "bicubic") ; align_corners in (False,) and half_pixel_centers in (True,)
ResizeArea(images, size, *, align_corners=False) = resize(images, size, "area") ; align_corners in (False,)
ScaleAndTranslate(images, size, scale, translation, *, kernel_type="lanczos3", antialias=True) = resize(images, size, "bilinear" if kernel_type == "triangle" else "bicubic" if kernel_type == "keyscubic" else kernel_type, antialias) ; translation in ([0.0, 0.0],)
CropAndResize(image, boxes, box_ind, crop_size, *, method="bilinear", extrapolation_value=0.0) = crop_and_resize(image, boxes, box_ind, crop_size, method, extrapolation_value)
AdjustContrastv2(images, contrast_factor) = adjust_contrast(images, contrast_factor)
AdjustSaturation(images, scale) = adjust_saturation(images, scale)
AdjustHue(images, delta) = adjust_hue(images, delta)
ExtractImagePatches(images, *, ksizes, strides, rates, padding) = extract_patches(images, ksizes, strides, rates, padding)
RandomStandardNormal(shape, *, dtype="float32") = random_normal(shape, 0.0, 1.0, dtype)
TruncatedNormal(shape, *, dtype="float32") = random_truncated_normal(shape, 0.0, 1.0, dtype)
RandomUniform(shape, *, dtype="float32") = random_uniform(shape, 0, None, dtype)
RandomUniformInt(shape, minval, maxval, *, Tout="int64") = random_uniform(shape, minval, maxval, Tout)
SigmoidGrad(y, dy) = multiply(multiply(dy, y), subtract(1.0, y))
"""


def lines() -> list[str]:
    """Returns a line for each group of ops."""
    found = [line for line in _OTHERS.splitlines() if line]
    for name, names in _SAME.items():
        found.append(f"{', '.join(names.split())}(x) = {name}(x)")
    for name, names in _OF_TWO.items():
        found.append(f"{', '.join(names.split())}(x, y) = {name}(x, y)")
    for name, names in _REDUCTIONS.items():
        call = f'{name}(x, "euclidean", axis' if name == "norm" else f"{name}(x, axis"
        found.append(
            f"{', '.join(names.split())}(x, axis, *, keep_dims=False) = {call}, keep_dims)"
        )
    return found
