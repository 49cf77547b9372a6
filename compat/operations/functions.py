"""TensorFlow's public functions below `tf.`, as operations.

One line says which arguments functions take, in their order, and what they compute. `name` may be
left out of a line where it is the last. Functions of TF 1 stand with those of TF 2 where one line
can say both; `first` is the first argument that is not None. After ";" stand the values that
arguments may have.
"""

_PLAIN = {
    # Operation -> the functions of one tensor that are it.
    "absolute": "abs math.abs keras.backend.abs",
    "negative": "negative math.negative",
    "sign": "sign math.sign keras.backend.sign",
    "square": "square math.square keras.backend.square",
    "sqrt": "sqrt math.sqrt",
    "rsqrt": "math.rsqrt rsqrt",
    "reciprocal": "math.reciprocal reciprocal",
    "exp": "exp math.exp keras.backend.exp keras.activations.exponential",
    "expm1": "math.expm1 expm1",
    "log": "math.log log keras.backend.log",
    "log1p": "math.log1p log1p",
    "sin": "sin math.sin keras.backend.sin",
    "cos": "cos math.cos keras.backend.cos",
    "tan": "tan math.tan",
    "arcsin": "asin math.asin",
    "arccos": "acos math.acos",
    "arctan": "atan math.atan",
    "sinh": "sinh math.sinh",
    "cosh": "cosh math.cosh",
    "tanh": "tanh math.tanh nn.tanh keras.backend.tanh keras.activations.tanh",
    "arcsinh": "asinh math.asinh",
    "arccosh": "acosh math.acosh",
    "arctanh": "atanh math.atanh",
    "erf": "math.erf erf",
    "erfinv": "math.erfinv",
    "floor": "floor math.floor",
    "ceil": "math.ceil ceil",
    "round": "round math.round math.rint rint keras.backend.round",
    "isfinite": "math.is_finite is_finite debugging.is_finite",
    "isinf": "math.is_inf is_inf debugging.is_inf",
    "isnan": "math.is_nan is_nan debugging.is_nan",
    "logical_not": "logical_not math.logical_not",
    "bitwise_invert": "bitwise.invert",
    "identity": "identity keras.backend.identity keras.activations.linear keras.backend.to_dense "
    "guarantee_const conj math.conj real math.real",
    "stop_gradient": "stop_gradient",
    "relu6": "nn.relu6",
    "selu": "nn.selu keras.activations.selu",
    "sigmoid": "sigmoid math.sigmoid nn.sigmoid keras.backend.sigmoid keras.activations.sigmoid",
    "log_sigmoid": "math.log_sigmoid log_sigmoid",
    "softplus": "math.softplus nn.softplus keras.backend.softplus keras.activations.softplus",
    "softsign": "nn.softsign math.softsign keras.backend.softsign keras.activations.softsign",
    "keras2_hard_sigmoid": "keras.backend.hard_sigmoid keras.activations.hard_sigmoid",
    "mish": "keras.activations.mish",
    "flatten": "keras.backend.flatten",
    "batch_flatten": "keras.backend.batch_flatten",
    "matrix_transpose": "linalg.adjoint",
    "tensor_diag": "linalg.tensor_diag diag",
    "trace": "linalg.trace trace",
    "eigh": "linalg.eigh self_adjoint_eig",
    "slogdet": "linalg.slogdet",
    "tensor_diagonal": "linalg.tensor_diag_part diag_part",
    "global_norm": "linalg.global_norm global_norm",
    "is_increasing": "math.is_non_decreasing is_non_decreasing debugging.is_non_decreasing",
    "image_gradients": "image.image_gradients",
    "det": "linalg.det matrix_determinant",
    "cholesky": "linalg.cholesky cholesky",
    "rank": "rank keras.backend.ndim",
    "add_n": "math.add_n add_n",
    "rgb_to_grayscale": "image.rgb_to_grayscale",
    "grayscale_to_rgb": "image.grayscale_to_rgb",
    "rgb_to_hsv": "image.rgb_to_hsv",
    "hsv_to_rgb": "image.hsv_to_rgb",
    "per_image_standardization": "image.per_image_standardization",
    "total_variation": "image.total_variation",
    "sobel_edges": "image.sobel_edges",
}

_BINARY = {
    # The same of two tensors; the arguments are x and y.
    "add": "add math.add __operators__.add",
    "subtract": "subtract math.subtract",
    "multiply": "multiply math.multiply",
    "divide": "divide math.divide truediv math.truediv",
    "python2_divide": "div",
    "divide_no_nan": "math.divide_no_nan div_no_nan",
    "multiply_no_nan": "math.multiply_no_nan",
    "floor_divide": "math.floordiv floordiv floor_div",
    "truncate_divide": "truncatediv",
    "mod": "math.floormod floormod math.mod mod",
    "truncate_mod": "truncatemod",
    "power": "pow math.pow",
    "maximum": "maximum math.maximum keras.backend.maximum",
    "minimum": "minimum math.minimum keras.backend.minimum",
    "xlogy": "math.xlogy",
    "xlog1py": "math.xlog1py",
    "xdivy": "math.xdivy",
    "equal": "equal math.equal keras.backend.equal",
    "not_equal": "not_equal math.not_equal keras.backend.not_equal",
    "greater": "greater math.greater keras.backend.greater",
    "greater_equal": "greater_equal math.greater_equal keras.backend.greater_equal",
    "less": "less math.less keras.backend.less",
    "less_equal": "less_equal math.less_equal keras.backend.less_equal",
    "logical_and": "logical_and math.logical_and",
    "logical_or": "logical_or math.logical_or",
    "logical_xor": "math.logical_xor logical_xor",
    "bitwise_and": "bitwise.bitwise_and",
    "bitwise_or": "bitwise.bitwise_or",
    "bitwise_xor": "bitwise.bitwise_xor",
    "left_shift": "bitwise.left_shift",
    "right_shift": "bitwise.right_shift",
}

_REDUCTIONS = {
    "sum": "reduce_sum math.reduce_sum",
    "mean": "reduce_mean math.reduce_mean",
    "prod": "reduce_prod math.reduce_prod",
    "max": "reduce_max math.reduce_max",
    "min": "reduce_min math.reduce_min",
    "all": "reduce_all math.reduce_all",
    "any": "reduce_any math.reduce_any",
    "logsumexp": "reduce_logsumexp math.reduce_logsumexp",
    "var": "math.reduce_variance",
    "std": "math.reduce_std",
}

# How the images of a network are prepared -> the modules of keras.applications.
# Source: TF 2.15, Keras' applications/imagenet_utils.py, _preprocess_symbolic_input.
_PREPARED = {
    "caffe": "resnet resnet50 vgg16 vgg19",
    "tf": "inception_resnet_v2 inception_v3 mobilenet mobilenet_v2 nasnet resnet_v2 xception",
    "torch": "densenet",
    "": "convnext efficientnet efficientnet_v2 mobilenet_v3 regnet resnet_rs",
}
APPLICATIONS = ("imagenet_utils", *(name for of in _PREPARED.values() for name in of.split()))
_PREPARATIONS = {
    "caffe": "bias_add(flip(x, -3 if data_format == 'channels_first' else -1),"
    " [-103.939, -116.779, -123.68], first(data_format, 'channels_last'))",
    "tf": "subtract(divide(x, 127.5), 1.0)",
    "torch": "divide(bias_add(divide(x, 255.0), [-0.485, -0.456, -0.406],"
    " first(data_format, 'channels_last')), [[[0.229]], [[0.224]], [[0.225]]]"
    " if data_format == 'channels_first' else [0.229, 0.224, 0.225])",
    "": "identity(x)",
}

_OTHERS = """
math.squared_difference, squared_difference(x, y) = square(subtract(x, y))
__operators__.eq(self, other=None) = refuse("was saved without its second operand, by a bug of TensorFlow") if other is None else equal(self, other)
__operators__.ne(self, other=None) = refuse("was saved without its second operand, by a bug of TensorFlow") if other is None else not_equal(self, other)
math.atan2, atan2(y, x) = arctan2(y, x)
math.cumsum, cumsum(x, axis=0, exclusive=False, reverse=False) = cumsum(x, axis, exclusive, reverse)
math.cumprod, cumprod(x, axis=0, exclusive=False, reverse=False) = cumprod(x, axis, exclusive, reverse)
math.scalar_mul, scalar_mul(scalar, x) = multiply(x, scalar)
math.reciprocal_no_nan(x) = divide_no_nan(ones_like(x), x)
math.erfc, erfc(x) = subtract(1.0, erf(x))
math.reduce_euclidean_norm(input_tensor, axis=None, keepdims=False) = norm(input_tensor, "euclidean", axis, keepdims)
norm, linalg.norm(tensor, ord="euclidean", axis=None, keepdims=None, name=None, keep_dims=None) = norm(tensor, ord, axis, first(keepdims, keep_dims, False))
math.count_nonzero, count_nonzero(input, axis=None, keepdims=None, dtype="int64", name=None, reduction_indices=None, keep_dims=None, input_tensor=None) = count_nonzero(first(input, input_tensor), first(axis, reduction_indices), first(keepdims, keep_dims, False), dtype)
math.argmax, argmax, arg_max(input, axis=None, output_type="int64", name=None, dimension=None) = argmax(input, first(axis, dimension, 0), output_type)
math.argmin, argmin, arg_min(input, axis=None, output_type="int64", name=None, dimension=None) = argmin(input, first(axis, dimension, 0), output_type)
compat.v1.argmax(input, axis=None, name=None, dimension=None, output_type="int64") = argmax(input, first(axis, dimension, 0), output_type)
compat.v1.argmin(input, axis=None, name=None, dimension=None, output_type="int64") = argmin(input, first(axis, dimension, 0), output_type)
math.segment_max, segment_max(data, segment_ids) = refuse("has as many results as there are segments, which is known only when it runs")
math.segment_mean, segment_mean(data, segment_ids) = refuse("has as many results as there are segments, which is known only when it runs")
math.segment_min, segment_min(data, segment_ids) = refuse("has as many results as there are segments, which is known only when it runs")
math.segment_prod, segment_prod(data, segment_ids) = refuse("has as many results as there are segments, which is known only when it runs")
math.segment_sum, segment_sum(data, segment_ids) = refuse("has as many results as there are segments, which is known only when it runs")
math.unsorted_segment_sum, unsorted_segment_sum(data, segment_ids, num_segments) = segment_sum(data, segment_ids, num_segments)
math.unsorted_segment_max, unsorted_segment_max(data, segment_ids, num_segments) = segment_max(data, segment_ids, num_segments)
math.unsorted_segment_min, unsorted_segment_min(data, segment_ids, num_segments) = segment_min(data, segment_ids, num_segments)
math.unsorted_segment_mean, unsorted_segment_mean(data, segment_ids, num_segments) = divide_no_nan(segment_sum(data, segment_ids, num_segments), segment_sum(ones_like(data), segment_ids, num_segments))
math.unsorted_segment_sqrt_n, unsorted_segment_sqrt_n(data, segment_ids, num_segments) = divide_no_nan(segment_sum(data, segment_ids, num_segments), sqrt(segment_sum(ones_like(data), segment_ids, num_segments)))
math.unsorted_segment_prod, unsorted_segment_prod(data, segment_ids, num_segments) = segment_prod(data, segment_ids, num_segments)
math.is_strictly_increasing, is_strictly_increasing, debugging.is_strictly_increasing(x) = is_increasing(x, True)
math.polyval(coeffs, x) = polyval(coeffs, x)
math.bincount, bincount(arr, weights=None, minlength=None, maxlength=None, dtype="int32", name=None, axis=None, binary_output=False) = refuse("has as many results as its largest number, which is known only when it runs") if minlength is None else bincount(arr, weights, minlength, axis, binary_output, dtype) if minlength == maxlength else refuse("has as many results as its largest number, which is known only when it runs")
math.confusion_matrix(labels, predictions, num_classes=None, weights=None, dtype="int32") = refuse("has as many results as there are classes, which is known only when it runs") if num_classes is None else confusion_matrix(labels, predictions, num_classes, weights, dtype)
compat.v1.confusion_matrix, compat.v1.math.confusion_matrix, confusion_matrix(labels, predictions, num_classes=None, dtype="int32", name=None, weights=None) = refuse("has as many results as there are classes, which is known only when it runs") if num_classes is None else confusion_matrix(labels, predictions, num_classes, weights, dtype)
unravel_index(indices, dims) = unravel_index(indices, dims)
math.invert_permutation, invert_permutation(x) = argsort(x)
boolean_mask(tensor, mask, axis=None) = refuse("has as many results as the mask is true, which is known only when it runs")
unique(x, out_idx="int32") = refuse("has as many results as there are different numbers, which is known only when it runs")
math.l2_normalize, nn.l2_normalize, linalg.l2_normalize(x, axis=None, epsilon=1e-12, name=None, dim=None) = l2_normalize(x, first(axis, dim), epsilon)
math.in_top_k, nn.in_top_k(targets, predictions, k) = in_top_k(targets, predictions, k)
compat.v1.nn.in_top_k(predictions, targets, k) = in_top_k(targets, predictions, k)
math.top_k, nn.top_k(input, k=1, sorted=True, index_type="int32") = top_k(input, k, sorted) ; index_type in ("int32",)
clip_by_value(t, clip_value_min, clip_value_max) = clip(t, clip_value_min, clip_value_max)
clip_by_norm(t, clip_norm, axes=None) = clip_by_norm(t, clip_norm, axes)
clip_by_global_norm(t_list, clip_norm, use_norm=None) = clip_by_global_norm(t_list, clip_norm, use_norm)
where, where_v2(condition, x=None, y=None) = refuse("finds places, whose number is known only when it runs") if x is None else where(condition, x, y)
compat.v1.where(condition, x=None, y=None) = refuse("finds places, whose number is known only when it runs") if x is None else select(condition, x, y)
cast, dtypes.cast(x, dtype) = cast(x, dtype)
saturate_cast, dtypes.saturate_cast(value, dtype) = saturate_cast(value, dtype)
to_float(x) = cast(x, "float32")
to_double(x) = cast(x, "float64")
to_int32(x) = cast(x, "int32")
to_int64(x) = cast(x, "int64")
to_bfloat16(x) = cast(x, "bfloat16")
constant(value, dtype=None, shape=None) = constant(value, dtype, shape)
compat.v1.constant(value, dtype=None, shape=None, name=None, verify_shape=False) = constant(value, dtype, shape)
convert_to_tensor(value, dtype=None, dtype_hint=None) = identity(value) if dtype is None else constant(value, dtype)
compat.v1.convert_to_tensor(value, dtype=None, name=None, preferred_dtype=None, dtype_hint=None) = identity(value) if dtype is None else constant(value, dtype)
ensure_shape(x, shape) = identity(x)
identity_n(input) = as_list(input)
realdiv(x, y) = divide(x, y)
debugging.check_numerics, check_numerics(tensor, message) = identity(tensor)
debugging.assert_all_finite, verify_tensor_all_finite(x, message, name=None, t=None, msg=None) = identity(first(x, t))
Print(input_, data, message=None, first_n=None, summarize=None) = identity(input_)

shape(input, out_type="int32") = shape(input) if out_type == "int32" else cast(shape(input), out_type)
compat.v1.shape(input, name=None, out_type="int32") = shape(input) if out_type == "int32" else cast(shape(input), out_type)
size(input, out_type="int32") = size(input) if out_type == "int32" else cast(size(input), out_type)
compat.v1.size(input, name=None, out_type="int32") = size(input) if out_type == "int32" else cast(size(input), out_type)
reshape, manip.reshape(tensor, shape) = reshape(tensor, shape)
transpose(a, perm=None, conjugate=False) = transpose(a, perm)
compat.v1.transpose(a, perm=None, name=None, conjugate=False) = transpose(a, perm)
expand_dims(input, axis=None, name=None, dim=None) = expand_dims(input, first(axis, dim))
squeeze(input, axis=None, name=None, squeeze_dims=None) = squeeze(input, first(axis, squeeze_dims))
tile, manip.tile(input, multiples) = tile(input, multiples)
repeat(input, repeats, axis=None) = repeat(input, repeats, axis)
broadcast_to(input, shape) = broadcast_to(input, shape)
pad(tensor, paddings, mode="CONSTANT", constant_values=0) = pad(tensor, paddings, mode, constant_values)
compat.v1.pad(tensor, paddings, mode="CONSTANT", name=None, constant_values=0) = pad(tensor, paddings, mode, constant_values)
reverse, reverse_v2, manip.reverse(tensor, axis) = flip(tensor, axis)
roll, manip.roll(input, shift, axis) = roll(input, shift, axis)
stack(values, axis=0) = stack(values, axis)
unstack(value, num=None, axis=0) = unstack(value, num, axis)
concat(values, axis) = concatenate(values, axis)
split(value, num_or_size_splits, axis=0, num=None) = split(value, num_or_size_splits, axis, num)
slice(input_, begin, size) = slice(input_, begin, size)
strided_slice(input_, begin, end, strides=None, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0, var=None) = strided_slice(input_, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
__operators__.getitem(tensor, slice_spec, var=None) = get_item(tensor, slice_spec)
gather(params, indices, validate_indices=None, axis=None, batch_dims=0) = take(params, indices, first(axis, batch_dims), batch_dims)
compat.v1.gather(params, indices, validate_indices=None, name=None, axis=None, batch_dims=0) = take(params, indices, first(axis, batch_dims), batch_dims)
gather_nd(params, indices, batch_dims=0) = gather_nd(params, indices, batch_dims)
compat.v1.gather_nd(params, indices, name=None, batch_dims=0) = gather_nd(params, indices, batch_dims)
batch_gather(params, indices) = take(params, indices, -1, -1)
nn.embedding_lookup(params, ids, max_norm=None, name=None) = take(params, ids, 0) ; max_norm in (None,)
compat.v1.nn.embedding_lookup(params, ids, partition_strategy="mod", name=None, validate_indices=True, max_norm=None) = take(params, ids, 0) ; max_norm in (None,)
one_hot(indices, depth, on_value=None, off_value=None, axis=None, dtype=None) = one_hot(indices, depth, on_value, off_value, first(axis, -1), dtype)
sequence_mask(lengths, maxlen=None, dtype="bool") = sequence_mask(lengths, maxlen, dtype)
reverse_sequence(input, seq_lengths, seq_axis=None, batch_axis=None, name=None, seq_dim=None, batch_dim=None) = reverse_sequence(input, seq_lengths, first(seq_axis, seq_dim), first(batch_axis, batch_dim, 0))
zeros(shape, dtype="float32", name=None, layout=None) = zeros(shape, dtype)
ones(shape, dtype="float32", name=None, layout=None) = ones(shape, dtype)
fill(dims, value, name=None, layout=None) = full(dims, value)
zeros_like(input, dtype=None, name=None, optimize=True, layout=None, tensor=None) = zeros_like(input, dtype)
ones_like(input, dtype=None, name=None, optimize=True, layout=None, tensor=None) = ones_like(input, dtype)
compat.v1.zeros_like(tensor, dtype=None, name=None, optimize=True) = zeros_like(tensor, dtype)
compat.v1.ones_like(tensor, dtype=None, name=None, optimize=True) = ones_like(tensor, dtype)
range(start, limit=None, delta=1, dtype=None) = arange(0, start, delta, dtype) if limit is None else arange(start, limit, delta, dtype)
linspace, lin_space(start, stop, num, name=None, axis=0) = linspace(start, stop, num) ; axis in (0,)
eye, linalg.eye(num_rows, num_columns=None, batch_shape=None, dtype="float32") = eye(num_rows, num_columns, dtype) ; batch_shape in (None,)
linalg.matrix_transpose, linalg.transpose, matrix_transpose(a, name=None, conjugate=False) = matrix_transpose(a)
linalg.diag, matrix_diag(diagonal, name=None, k=0, num_rows=-1, num_cols=-1, padding_value=0, align="RIGHT_LEFT") = diag(diagonal) ; k in (0,) and num_rows in (-1,) and num_cols in (-1,) and padding_value in (0,)
linalg.diag_part, matrix_diag_part(input, name=None, k=0, padding_value=0, align="RIGHT_LEFT") = diagonal(input) ; k in (0,)
linalg.set_diag, matrix_set_diag(input, diagonal, name="set_diag", k=0, align="RIGHT_LEFT") = set_diagonal(input, diagonal) ; k in (0,)
math.accumulate_n, accumulate_n(inputs, shape=None, tensor_dtype=None) = add_n(inputs)
meshgrid(*xs, indexing="xy") = meshgrid(xs, indexing)
linalg.band_part, matrix_band_part(input, num_lower, num_upper) = band_part(input, num_lower, num_upper)
sort(values, axis=-1, direction="ASCENDING") = sort(values, axis, direction)
argsort(values, axis=-1, direction="ASCENDING", stable=False) = argsort(values, axis, direction)
searchsorted(sorted_sequence, values, side="left", out_type="int32") = cast(searchsorted(sorted_sequence, values, side), out_type)
space_to_depth, nn.space_to_depth(input, block_size, data_format="NHWC") = space_to_depth(input, block_size, data_format)
depth_to_space, nn.depth_to_space(input, block_size, data_format="NHWC") = depth_to_space(input, block_size, data_format)
space_to_batch, space_to_batch_nd, nn.space_to_batch(input, block_shape, paddings) = space_to_batch(input, block_shape, paddings)
compat.v1.space_to_batch, compat.v1.nn.space_to_batch(input, paddings, block_size=None, name=None, block_shape=None) = space_to_batch(input, first(block_shape, [block_size, block_size]), paddings)
batch_to_space, batch_to_space_nd(input, block_shape, crops) = batch_to_space(input, block_shape, crops)
compat.v1.batch_to_space(input, crops, block_size=None, name=None, block_shape=None) = batch_to_space(input, first(block_shape, [block_size, block_size]), crops)
compat.v1.space_to_depth, compat.v1.nn.space_to_depth(input, block_size, name=None, data_format="NHWC") = space_to_depth(input, block_size, data_format)
compat.v1.depth_to_space, compat.v1.nn.depth_to_space(input, block_size, name=None, data_format="NHWC") = depth_to_space(input, block_size, data_format)
tensor_scatter_nd_update, tensor_scatter_update(tensor, indices, updates) = tensor_scatter_update(tensor, indices, updates)
tensor_scatter_nd_add, tensor_scatter_add(tensor, indices, updates) = tensor_scatter_add(tensor, indices, updates)
tensor_scatter_nd_sub, tensor_scatter_sub(tensor, indices, updates) = tensor_scatter_add(tensor, indices, negative(updates))
scatter_nd(indices, updates, shape) = tensor_scatter_add(full(shape, 0, dtype(updates)), indices, updates)

linalg.matmul, matmul(a, b, transpose_a=False, transpose_b=False, adjoint_a=False, adjoint_b=False, a_is_sparse=False, b_is_sparse=False, output_type=None) = matmul(a, b, transpose_a or adjoint_a, transpose_b or adjoint_b) ; output_type in (None,)
linalg.matvec(a, b, transpose_a=False, adjoint_a=False, a_is_sparse=False, b_is_sparse=False) = matvec(a, b, transpose_a or adjoint_a)
tensordot, linalg.tensordot(a, b, axes) = tensordot(a, b, axes)
linalg.cross, cross(a, b) = cross(a, b)
einsum, linalg.einsum(equation, *inputs, optimize="greedy") = refuse("was saved without its tensors, by a fault of TensorFlow") if inputs == [] else einsum(equation, inputs)
linalg.inv, matrix_inverse(input, adjoint=False) = inv(input) ; adjoint in (False,)
linalg.solve, matrix_solve(matrix, rhs, adjoint=False) = solve(matrix, rhs) ; adjoint in (False,)
linalg.triangular_solve, matrix_triangular_solve(matrix, rhs, lower=True, adjoint=False) = triangular_solve(matrix, rhs, lower, adjoint)
linalg.cholesky_solve, cholesky_solve(chol, rhs) = triangular_solve(chol, triangular_solve(chol, rhs), True, True)
linalg.qr, qr(input, full_matrices=False) = qr(input, full_matrices)
linalg.svd, svd(tensor, full_matrices=False, compute_uv=True) = svd(tensor, full_matrices) if compute_uv == True else item(svd(tensor), 0)
linalg.eigvalsh, self_adjoint_eigvals(tensor) = item(eigh(tensor), 0)
linalg.lstsq, matrix_solve_ls(matrix, rhs, l2_regularizer=0.0, fast=True) = lstsq(matrix, rhs, l2_regularizer) ; fast in (True,)
linalg.pinv(a, rcond=None, validate_args=False) = pinv(a, rcond)
linalg.matrix_rank(a, tol=None, validate_args=False) = matrix_rank(a, tol)
linalg.logdet(matrix) = multiply(sum(log(diagonal(cholesky(matrix))), -1), 2.0)
linalg.normalize(tensor, ord="euclidean", axis=None) = [divide(tensor, norm(tensor, ord, axis, True)), norm(tensor, ord, axis, True)]

nn.relu(features) = relu(features)
nn.leaky_relu(features, alpha=0.2) = leaky_relu(features, alpha)
nn.elu(features) = elu(features)
nn.gelu(features, approximate=False) = gelu(features, approximate)
nn.silu, nn.swish(features, beta=1.0) = silu(features, beta)
nn.crelu(features, axis=-1) = crelu(features, axis)
compat.v1.nn.crelu(features, name=None, axis=-1) = crelu(features, axis)
nn.softmax, math.softmax(logits, axis=None, name=None, dim=None) = softmax(logits, first(axis, dim, -1))
nn.log_softmax, math.log_softmax(logits, axis=None, name=None, dim=None) = log_softmax(logits, first(axis, dim, -1))
nn.bias_add(value, bias, data_format=None) = bias_add(value, bias, first(data_format, "NHWC"))
nn.batch_normalization(x, mean, variance, offset, scale, variance_epsilon) = batch_normalization(x, mean, variance, offset, scale, variance_epsilon)
compat.v1.nn.fused_batch_norm, nn.fused_batch_norm(x, scale, offset, mean=None, variance=None, epsilon=0.001, data_format="NHWC", is_training=True, name=None, exponential_avg_factor=1.0) = [batch_normalization(x, mean, variance, offset, scale, epsilon), mean, variance] ; is_training in (False,) and data_format in ("NHWC",)
nn.local_response_normalization, nn.lrn(input, depth_radius=5, bias=1, alpha=1, beta=0.5) = local_response_normalization(input, depth_radius, bias, alpha, beta)
nn.moments(x, axes, shift=None, keepdims=False, name=None, keep_dims=None) = moments(x, axes, keepdims or keep_dims or False)
compat.v1.nn.moments(x, axes, shift=None, name=None, keep_dims=None, keepdims=None) = moments(x, axes, keepdims or keep_dims or False)
nn.weighted_moments(x, axes, frequency_weights, keepdims=False, name=None, keep_dims=None) = weighted_moments(x, axes, frequency_weights, keepdims or keep_dims or False)
compat.v1.nn.weighted_moments(x, axes, frequency_weights, name=None, keep_dims=None, keepdims=None) = weighted_moments(x, axes, frequency_weights, keepdims or keep_dims or False)
nn.normalize_moments(counts, mean_ss, variance_ss, shift) = [multiply(mean_ss, reciprocal(counts)) if shift is None else add(multiply(mean_ss, reciprocal(counts)), shift), subtract(multiply(variance_ss, reciprocal(counts)), square(multiply(mean_ss, reciprocal(counts))))]
nn.sufficient_statistics(x, axes, shift=None, keepdims=False, name=None, keep_dims=None) = sufficient_statistics(x, axes, shift, keepdims or keep_dims or False)
compat.v1.nn.sufficient_statistics(x, axes, shift=None, keep_dims=None, name=None, keepdims=None) = sufficient_statistics(x, axes, shift, keepdims or keep_dims or False)
nn.batch_norm_with_global_normalization(input, mean, variance, beta, gamma, variance_epsilon, scale_after_normalization) = batch_normalization(input, mean, variance, beta, gamma if scale_after_normalization == True else None, variance_epsilon)
compat.v1.nn.batch_norm_with_global_normalization(t=None, m=None, v=None, beta=None, gamma=None, variance_epsilon=None, scale_after_normalization=None, name=None, input=None, mean=None, variance=None) = batch_normalization(first(t, input), first(m, mean), first(v, variance), beta, gamma if scale_after_normalization == True else None, variance_epsilon)
nn.dilation2d(input, filters, strides, padding, data_format, dilations) = dilation(input, filters, strides, padding, dilations) ; data_format in ("NHWC",)
compat.v1.nn.dilation2d(input, filter=None, strides=None, rates=None, padding=None, name=None, filters=None, dilations=None) = dilation(input, first(filter, filters), strides, padding, first(rates, dilations))
nn.erosion2d(value, filters, strides, padding, data_format, dilations) = erosion(value, filters, strides, padding, dilations) ; data_format in ("NHWC",)
compat.v1.nn.erosion2d(value, kernel, strides, rates, padding) = erosion(value, kernel, strides, padding, rates)
nn.convolution(input, filters=None, strides=None, padding="VALID", data_format=None, dilations=None, name=None, filter=None) = conv(input, first(filters, filter), first(strides, 1), padding, data_format, first(dilations, 1)) ; padding in ("VALID", "SAME")
compat.v1.nn.convolution(input, filter=None, padding="VALID", strides=None, dilation_rate=None, name=None, data_format=None, filters=None, dilations=None) = conv(input, first(filter, filters), first(strides, 1), padding, data_format, first(dilations, dilation_rate, 1)) ; padding in ("VALID", "SAME")
nn.atrous_conv2d(value, filters, rate, padding) = conv(value, filters, 1, padding, None, rate)
nn.conv1d(input, filters, stride=1, padding="VALID", data_format=None, dilations=None) = conv(input, filters, stride, padding, data_format, first(dilations, 1))
compat.v1.nn.conv1d(value, filters=None, stride=1, padding="VALID", use_cudnn_on_gpu=None, data_format=None, name=None, input=None, dilations=None) = conv(first(value, input), filters, stride, padding, data_format, first(dilations, 1))
nn.conv2d(input, filters=None, strides=1, padding="VALID", data_format="NHWC", dilations=None, name=None, filter=None) = conv(input, first(filters, filter), strides, padding, data_format, first(dilations, 1))
nn.conv3d(input, filters=None, strides=1, padding="VALID", data_format="NDHWC", dilations=None, name=None, filter=None) = conv(input, first(filters, filter), strides, padding, data_format, first(dilations, 1))
compat.v1.nn.conv2d(input, filter=None, strides=None, padding=None, use_cudnn_on_gpu=True, data_format="NHWC", dilations=None, name=None, filters=None) = conv(input, first(filter, filters), strides, padding, data_format, first(dilations, 1))
nn.depthwise_conv2d(input, filter, strides, padding, data_format=None, dilations=None, name=None, rate=None) = depthwise_conv(input, filter, strides, padding, first(data_format, "NHWC"), first(dilations, rate, 1))
compat.v1.nn.depthwise_conv2d(input, filter, strides, padding, rate=None, name=None, data_format=None, dilations=None) = depthwise_conv(input, filter, strides, padding, first(data_format, "NHWC"), first(dilations, rate, 1))
nn.depthwise_conv2d_native(input, filter, strides, padding, data_format="NHWC", dilations=1) = depthwise_conv(input, filter, strides, padding, data_format, dilations)
nn.separable_conv2d(input, depthwise_filter, pointwise_filter, strides, padding, data_format=None, dilations=None, name=None, rate=None) = separable_conv(input, depthwise_filter, pointwise_filter, strides, padding, first(data_format, "NHWC"), first(dilations, rate, 1))
compat.v1.nn.separable_conv2d(input, depthwise_filter, pointwise_filter, strides, padding, rate=None, name=None, data_format=None, dilations=None) = separable_conv(input, depthwise_filter, pointwise_filter, strides, padding, first(data_format, "NHWC"), first(dilations, rate, 1))
nn.conv1d_transpose(input, filters, output_shape, strides, padding="SAME", data_format="NWC", dilations=None) = conv_transpose(input, filters, output_shape, strides, padding, data_format) ; dilations in (None, 1)
nn.conv2d_transpose(input, filters=None, output_shape=None, strides=1, padding="SAME", data_format="NHWC", dilations=None, name=None, filter=None) = conv_transpose(input, first(filters, filter), output_shape, strides, padding, data_format) ; dilations in (None, 1)
nn.conv3d_transpose(input, filters=None, output_shape=None, strides=1, padding="SAME", data_format="NDHWC", dilations=None, name=None, filter=None) = conv_transpose(input, first(filters, filter), output_shape, strides, padding, data_format) ; dilations in (None, 1)
nn.max_pool, nn.max_pool1d, nn.max_pool2d, nn.max_pool3d, nn.max_pool_v2(input, ksize, strides, padding, data_format=None) = max_pool(input, ksize, strides, padding, data_format) ; padding in ("VALID", "SAME")
nn.avg_pool, nn.avg_pool1d, nn.avg_pool2d, nn.avg_pool3d, nn.avg_pool_v2(input, ksize, strides, padding, data_format=None) = average_pool(input, ksize, strides, padding, data_format)
compat.v1.nn.max_pool(value, ksize, strides, padding, data_format="NHWC", name=None, input=None) = max_pool(first(value, input), ksize, strides, padding, data_format) ; padding in ("VALID", "SAME")
compat.v1.nn.avg_pool(value, ksize, strides, padding, data_format="NHWC", name=None, input=None) = average_pool(first(value, input), ksize, strides, padding, data_format)
nn.pool(input, window_shape, pooling_type, strides=None, padding="VALID", data_format=None, dilations=None) = max_pool(input, window_shape, first(strides, 1), padding, data_format) if pooling_type == "MAX" else average_pool(input, window_shape, first(strides, 1), padding, data_format) ; dilations in (None, 1) and padding in ("VALID", "SAME")
compat.v1.nn.pool(input, window_shape, pooling_type, padding, dilation_rate=None, strides=None, name=None, data_format=None, dilations=None) = max_pool(input, window_shape, first(strides, 1), padding, data_format) if pooling_type == "MAX" else average_pool(input, window_shape, first(strides, 1), padding, data_format) ; dilations in (None, 1) and dilation_rate in (None, 1)
nn.dropout(x, rate=None, noise_shape=None, seed=None, name=None, keep_prob=None) = dropout(x, subtract(1.0, keep_prob) if rate is None else rate, noise_shape)
compat.v1.nn.dropout(x, keep_prob=None, noise_shape=None, seed=None, name=None, rate=None) = dropout(x, subtract(1.0, keep_prob) if rate is None else rate, noise_shape)
nn.softmax_cross_entropy_with_logits, nn.softmax_cross_entropy_with_logits_v2(labels, logits, axis=None, name=None, dim=None) = softmax_cross_entropy(labels, logits, first(axis, dim, -1))
nn.sparse_softmax_cross_entropy_with_logits(labels, logits) = sparse_softmax_cross_entropy(labels, logits)
nn.sigmoid_cross_entropy_with_logits(labels, logits) = sigmoid_cross_entropy(labels, logits)
nn.weighted_cross_entropy_with_logits(labels=None, logits=None, pos_weight=None, name=None, targets=None) = weighted_cross_entropy(first(labels, targets), logits, pos_weight)
nn.log_poisson_loss(targets, log_input, compute_full_loss=False) = log_poisson_loss(targets, log_input, compute_full_loss)
nn.ctc_loss, nn.ctc_loss_v2(labels, logits, label_length, logit_length, logits_time_major=True, unique=None, blank_index=None) = ctc_loss(labels, logits, label_length, logit_length, logits_time_major, first(blank_index, 0)) ; unique in (None,)
nn.l2_loss(t) = divide(sum(square(t)), 2.0)
math.zero_fraction, nn.zero_fraction(value) = mean(cast(equal(value, 0), "float32"))

image.resize(images, size, method="bilinear", preserve_aspect_ratio=False, antialias=False) = resize(images, size, method, antialias) ; preserve_aspect_ratio in (False,)
compat.v1.image.resize, image.resize_images(images, size, method="bilinear", align_corners=False, preserve_aspect_ratio=False) = resize_v1(images, size, method, align_corners) ; preserve_aspect_ratio in (False,)
image.resize_bilinear(images, size, align_corners=False, name=None, half_pixel_centers=False) = resize_v1(images, size, "bilinear", align_corners, half_pixel_centers)
image.resize_nearest_neighbor(images, size, align_corners=False, name=None, half_pixel_centers=False) = resize_v1(images, size, "nearest", align_corners, half_pixel_centers)
image.resize_area(images, size, align_corners=False) = resize(images, size, "area") ; align_corners in (False,)
image.resize_with_crop_or_pad, image.resize_image_with_crop_or_pad(image, target_height, target_width) = resize_with_crop_or_pad(image, target_height, target_width)
image.resize_with_pad(image, target_height, target_width, method="bilinear", antialias=False) = resize_with_pad(image, target_height, target_width, method, antialias)
image.crop_and_resize(image, boxes, box_indices, crop_size, method="bilinear", extrapolation_value=0.0) = crop_and_resize(image, boxes, box_indices, crop_size, method, extrapolation_value)
compat.v1.image.crop_and_resize(image, boxes, box_ind=None, crop_size=None, method="bilinear", extrapolation_value=0, name=None, box_indices=None) = crop_and_resize(image, boxes, first(box_ind, box_indices), crop_size, method, extrapolation_value)
image.psnr(a, b, max_val) = psnr(a, b, max_val)
image.ssim(img1, img2, max_val, filter_size=11, filter_sigma=1.5, k1=0.01, k2=0.03, return_index_map=False) = ssim(img1, img2, max_val, filter_size, filter_sigma, k1, k2, return_index_map)
image.rot90(image, k=1) = rot90(image, k)
image.flip_left_right(image) = flip(image, -2)
image.flip_up_down(image) = flip(image, -3)
image.transpose, image.transpose_image(image) = transpose_images(image)
image.adjust_brightness(image, delta) = adjust_brightness(image, delta)
image.adjust_contrast(images, contrast_factor) = adjust_contrast(images, contrast_factor)
image.adjust_saturation(image, saturation_factor) = adjust_saturation(image, saturation_factor)
image.adjust_hue(image, delta) = adjust_hue(image, delta)
image.adjust_gamma(image, gamma=1, gain=1) = adjust_gamma(image, gamma, gain)
image.yuv_to_rgb(images) = tensordot(images, [[1.0, 1.0, 1.0], [0.0, -0.394642334, 2.03206185], [1.13988303, -0.58062185, 0.0]], [[-1], [0]])
image.yiq_to_rgb(images) = tensordot(images, [[1.0, 1.0, 1.0], [0.95598634, -0.27201283, -1.10674021], [0.6208248, -0.64720424, 1.70423049]], [[-1], [0]])
image.rgb_to_yuv(images) = tensordot(images, [[0.299, -0.14714119, 0.61497538], [0.587, -0.28886916, -0.51496512], [0.114, 0.43601035, -0.10001026]], [[-1], [0]])
image.rgb_to_yiq(images) = tensordot(images, [[0.299, 0.59590059, 0.2115], [0.587, -0.27455667, -0.52273617], [0.114, -0.32134392, 0.31119955]], [[-1], [0]])
image.convert_image_dtype(image, dtype, saturate=False) = convert_image_dtype(image, dtype)
image.central_crop(image, central_fraction) = central_crop(image, central_fraction)
image.crop_to_bounding_box(image, offset_height, offset_width, target_height, target_width) = crop_to_bounding_box(image, offset_height, offset_width, target_height, target_width)
image.pad_to_bounding_box(image, offset_height, offset_width, target_height, target_width) = pad_to_bounding_box(image, offset_height, offset_width, target_height, target_width)
image.extract_patches(images, sizes, strides, rates, padding) = extract_patches(images, sizes, strides, rates, padding)
extract_image_patches, image.extract_image_patches(images, ksizes=None, strides=None, rates=None, padding=None, name=None, sizes=None) = extract_patches(images, first(ksizes, sizes), strides, rates, padding)

random.normal, random_normal(shape, mean=0.0, stddev=1.0, dtype="float32", seed=None) = random_normal(shape, mean, stddev, dtype)
random.truncated_normal, truncated_normal(shape, mean=0.0, stddev=1.0, dtype="float32", seed=None) = random_truncated_normal(shape, mean, stddev, dtype)
random.uniform, random_uniform(shape, minval=0, maxval=None, dtype="float32", seed=None) = random_uniform(shape, minval, maxval, dtype)
random.shuffle, random_shuffle(value, seed=None) = random_shuffle(value)

random_crop, image.random_crop(value, size, seed=None) = random_crop(value, size)
image.random_flip_left_right(image, seed=None) = random_flip(image, -2)
image.random_flip_up_down(image, seed=None) = random_flip(image, -3)
image.random_brightness(image, max_delta, seed=None) = adjust_brightness(image, random_uniform([], negative(max_delta), max_delta))
image.random_contrast(image, lower, upper, seed=None) = adjust_contrast(image, random_uniform([], lower, upper))
image.random_saturation(image, lower, upper, seed=None) = adjust_saturation(image, random_uniform([], lower, upper))
image.random_hue(image, max_delta, seed=None) = adjust_hue(image, random_uniform([], negative(max_delta), max_delta))

keras.backend.all(x, axis=None, keepdims=False) = all(cast(x, "bool"), axis, keepdims)
keras.backend.any(x, axis=None, keepdims=False) = any(cast(x, "bool"), axis, keepdims)
keras.backend.sum(x, axis=None, keepdims=False) = sum(x, axis, keepdims)
keras.backend.mean(x, axis=None, keepdims=False) = mean(x, axis, keepdims)
keras.backend.prod(x, axis=None, keepdims=False) = prod(x, axis, keepdims)
keras.backend.max(x, axis=None, keepdims=False) = max(x, axis, keepdims)
keras.backend.min(x, axis=None, keepdims=False) = min(x, axis, keepdims)
keras.backend.var(x, axis=None, keepdims=False) = var(x, axis, keepdims)
keras.backend.std(x, axis=None, keepdims=False) = std(x, axis, keepdims)
keras.backend.logsumexp(x, axis=None, keepdims=False) = logsumexp(x, axis, keepdims)
keras.backend.argmax(x, axis=-1) = argmax(x, axis)
keras.backend.argmin(x, axis=-1) = argmin(x, axis)
keras.backend.cumsum(x, axis=0) = cumsum(x, axis)
keras.backend.cumprod(x, axis=0) = cumprod(x, axis)
keras.backend.pow(x, a) = power(x, a)
keras.backend.sqrt(x) = sqrt(maximum(x, 0.0))
keras.backend.clip(x, min_value, max_value) = clip(x, min_value, max_value)
keras.backend.cast(x, dtype) = cast(x, dtype)
keras.backend.cast_to_floatx(x) = cast(x, "float32")
keras.backend.constant(value, dtype=None, shape=None) = constant(value, first(dtype, "float32"), shape)
keras.backend.stop_gradient(variables) = stop_gradient(variables)
keras.backend.switch(condition, then_expression, else_expression) = select(condition, then_expression, else_expression)
keras.backend.in_train_phase(x, alt, training=None) = in_training(x, alt) if training is None else x if training == True else x if training == 1 else alt if training == False else alt if training == 0 else in_training(x, alt)
keras.backend.in_test_phase(x, alt, training=None) = in_training(alt, x) if training is None else alt if training == True else alt if training == 1 else x if training == False else x if training == 0 else in_training(alt, x)
keras.backend.shape(x) = shape(x)
keras.backend.int_shape(x) = static_shape(x)
keras.backend.dtype(x) = dtype(x)
keras.backend.epsilon() = 1e-07
keras.backend.floatx() = "float32"
keras.backend.image_data_format() = "channels_last"
keras.backend.backend() = "tensorflow"
keras.backend.is_sparse(tensor) = False
keras.backend.print_tensor(x, message="", summarize=3) = identity(x)
keras.backend.variable(value, dtype=None, name=None, constraint=None) = constant(value, first(dtype, "float32"))
keras.backend.in_top_k(predictions, targets, k) = in_top_k(targets, predictions, k)
keras.backend.is_keras_tensor(x) = refuse("is true in one version of TensorFlow and false in another")
keras.backend.learning_phase() = in_training(True, False)
keras.backend.reshape(x, shape) = reshape(x, shape)
keras.backend.permute_dimensions(x, pattern) = transpose(x, pattern)
keras.backend.transpose(x) = transpose(x)
keras.backend.expand_dims(x, axis=-1) = expand_dims(x, axis)
keras.backend.squeeze(x, axis) = squeeze(x, axis)
keras.backend.tile(x, n) = tile(x, n)
keras.backend.repeat(x, n) = repeat(expand_dims(x, 1), n, 1)
keras.backend.repeat_elements(x, rep, axis) = repeat(x, rep, axis)
keras.backend.reverse(x, axes) = flip(x, axes)
keras.backend.stack(x, axis=0) = stack(x, axis)
keras.backend.concatenate(tensors, axis=-1) = concatenate(tensors, axis)
keras.backend.gather(reference, indices) = take(reference, indices)
keras.backend.one_hot(indices, num_classes) = one_hot(indices, num_classes)
keras.backend.arange(start, stop=None, step=1, dtype="int32") = arange(0, start, step, dtype) if stop is None else arange(start, stop, step, dtype)
keras.backend.zeros(shape, dtype=None) = zeros(shape, first(dtype, "float32"))
keras.backend.ones(shape, dtype=None) = ones(shape, first(dtype, "float32"))
keras.backend.zeros_like(x, dtype=None) = zeros_like(x, dtype)
keras.backend.ones_like(x, dtype=None) = ones_like(x, dtype)
keras.backend.eye(size, dtype=None) = eye(size, None, first(dtype, "float32"))
keras.backend.dot(x, y) = dot(x, y)
keras.backend.batch_dot(x, y, axes=None) = batch_dot(x, y, axes)
keras.backend.l2_normalize(x, axis=None) = l2_normalize(x, axis)
keras.backend.relu, keras.activations.relu(x, alpha=0.0, max_value=None, threshold=0.0) = relu(x, alpha, max_value, threshold)
keras.backend.elu, keras.activations.elu(x, alpha=1.0) = elu(x, alpha)
keras.backend.softmax, keras.activations.softmax(x, axis=-1) = softmax(x, axis)
keras.activations.swish(x) = silu(x)
keras.activations.gelu(x, approximate=False) = gelu(x, approximate)
keras.backend.bias_add(x, bias, data_format=None) = bias_add(x, bias, first(data_format, "NHWC"))
keras.backend.batch_normalization(x, mean, var, beta, gamma, axis=-1, epsilon=0.001) = batch_normalization(x, mean, var, beta, gamma, epsilon) ; axis in (-1,)
keras.backend.conv1d(x, kernel, strides=1, padding="valid", data_format=None, dilation_rate=1) = conv(x, kernel, strides, padding, data_format, dilation_rate)
keras.backend.conv2d(x, kernel, strides=1, padding="valid", data_format=None, dilation_rate=1) = conv(x, kernel, strides, padding, data_format, dilation_rate)
keras.backend.conv3d(x, kernel, strides=1, padding="valid", data_format=None, dilation_rate=1) = conv(x, kernel, strides, padding, data_format, dilation_rate)
keras.backend.conv2d_transpose(x, kernel, output_shape, strides=1, padding="valid", data_format=None, dilation_rate=1) = conv_transpose(x, kernel, output_shape, strides, padding, first(data_format, "NHWC")) ; dilation_rate in (1, [1, 1])
keras.backend.depthwise_conv2d(x, depthwise_kernel, strides=1, padding="valid", data_format=None, dilation_rate=1) = depthwise_conv(x, depthwise_kernel, strides, padding, first(data_format, "NHWC"), dilation_rate)
keras.backend.separable_conv2d(x, depthwise_kernel, pointwise_kernel, strides=1, padding="valid", data_format=None, dilation_rate=1) = separable_conv(x, depthwise_kernel, pointwise_kernel, strides, padding, first(data_format, "NHWC"), dilation_rate)
keras.backend.pool2d, keras.backend.pool3d(x, pool_size, strides=1, padding="valid", data_format=None, pool_mode="max") = max_pool(x, pool_size, strides, padding, data_format) if pool_mode == "max" else average_pool(x, pool_size, strides, padding, data_format)
keras.backend.temporal_padding(x, padding=(1, 1)) = temporal_padding(x, padding)
keras.backend.spatial_2d_padding(x, padding=((1, 1), (1, 1)), data_format=None) = spatial_padding(x, padding, data_format)
keras.backend.spatial_3d_padding(x, padding=((1, 1), (1, 1), (1, 1)), data_format=None) = spatial_padding(x, padding, data_format)
keras.backend.resize_images(x, height_factor, width_factor, data_format, interpolation="nearest") = resize_by(x, height_factor, width_factor, data_format, interpolation)
keras.backend.resize_volumes(x, depth_factor, height_factor, width_factor, data_format) = repeat(repeat(repeat(x, depth_factor, 2), height_factor, 3), width_factor, 4) if data_format == "channels_first" else repeat(repeat(repeat(x, depth_factor, 1), height_factor, 2), width_factor, 3)
keras.backend.dropout(x, level, noise_shape=None, seed=None) = dropout(x, level, noise_shape)
keras.backend.random_normal(shape, mean=0.0, stddev=1.0, dtype=None, seed=None) = random_normal(shape, mean, stddev, first(dtype, "float32"))
keras.backend.truncated_normal(shape, mean=0.0, stddev=1.0, dtype=None, seed=None) = random_truncated_normal(shape, mean, stddev, first(dtype, "float32"))
keras.backend.random_uniform(shape, minval=0.0, maxval=1.0, dtype=None, seed=None) = random_uniform(shape, minval, maxval, first(dtype, "float32"))
keras.backend.random_bernoulli, keras.backend.random_binomial(shape, p=0.0, dtype=None, seed=None) = random_binomial(shape, p, first(dtype, "float32"))
keras.backend.categorical_crossentropy(target, output, from_logits=False, axis=-1) = categorical_crossentropy(target, output, from_logits, axis)
keras.backend.sparse_categorical_crossentropy(target, output, from_logits=False, axis=-1, ignore_class=None) = sparse_categorical_crossentropy(target, output, from_logits) ; axis in (-1,) and ignore_class in (None,)
keras.backend.ctc_batch_cost(y_true, y_pred, input_length, label_length) = ctc_batch_cost(y_true, y_pred, input_length, label_length)
keras.backend.binary_crossentropy(target, output, from_logits=False) = binary_crossentropy(target, output, from_logits)

keras.metrics.mean_squared_error, keras.losses.mean_squared_error, keras.losses.mse, keras.losses.MSE, keras.metrics.mse, keras.metrics.MSE(y_true, y_pred) = mean(square(subtract(y_pred, y_true)), -1)
keras.metrics.mean_absolute_error, keras.losses.mean_absolute_error, keras.losses.mae, keras.losses.MAE, keras.metrics.mae, keras.metrics.MAE(y_true, y_pred) = mean(absolute(subtract(y_pred, y_true)), -1)
keras.metrics.binary_crossentropy, keras.losses.binary_crossentropy(y_true, y_pred, from_logits=False, label_smoothing=0, axis=-1) = mean(binary_crossentropy(y_true if label_smoothing == 0 else smooth_labels(y_true, y_pred, label_smoothing, 2), y_pred, from_logits), axis)
keras.metrics.categorical_crossentropy, keras.losses.categorical_crossentropy(y_true, y_pred, from_logits=False, label_smoothing=0, axis=-1) = categorical_crossentropy(y_true if label_smoothing == 0 else smooth_labels(y_true, y_pred, label_smoothing, item(shape(y_true), axis)), y_pred, from_logits, axis)
keras.metrics.sparse_categorical_crossentropy, keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=False, axis=-1, ignore_class=None) = sparse_categorical_crossentropy(y_true, y_pred, from_logits) ; axis in (-1,) and ignore_class in (None,)
keras.losses.cosine_similarity(y_true, y_pred, axis=-1) = negative(sum(multiply(l2_normalize(y_true, axis), l2_normalize(y_pred, axis)), axis))
compat.v1.keras.losses.cosine_similarity(y_true, y_pred, axis=-1) = sum(multiply(l2_normalize(y_true, axis), l2_normalize(y_pred, axis)), axis)
keras.losses.mean_absolute_percentage_error, keras.metrics.mean_absolute_percentage_error, keras.losses.mape, keras.metrics.mape, keras.losses.MAPE, keras.metrics.MAPE(y_true, y_pred) = mean_absolute_percentage_error(y_true, y_pred)
keras.losses.mean_squared_logarithmic_error, keras.metrics.mean_squared_logarithmic_error, keras.losses.msle, keras.metrics.msle, keras.losses.MSLE, keras.metrics.MSLE(y_true, y_pred) = mean_squared_logarithmic_error(y_true, y_pred)
keras.losses.huber(y_true, y_pred, delta=1.0) = huber(y_true, y_pred, delta)
keras.losses.log_cosh, keras.metrics.log_cosh, keras.losses.logcosh, keras.metrics.logcosh(y_true, y_pred) = log_cosh(y_true, y_pred)
keras.losses.kl_divergence, keras.metrics.kl_divergence, keras.losses.kullback_leibler_divergence, keras.metrics.kullback_leibler_divergence, keras.losses.kld, keras.metrics.kld, keras.losses.KLD, keras.metrics.KLD(y_true, y_pred) = kl_divergence(y_true, y_pred)
keras.losses.poisson, keras.metrics.poisson(y_true, y_pred) = poisson(y_true, y_pred)
keras.losses.hinge, keras.metrics.hinge(y_true, y_pred) = hinge(y_true, y_pred)
keras.losses.squared_hinge, keras.metrics.squared_hinge(y_true, y_pred) = squared_hinge(y_true, y_pred)
keras.losses.categorical_hinge(y_true, y_pred) = categorical_hinge(y_true, y_pred)
keras.losses.binary_focal_crossentropy, keras.metrics.binary_focal_crossentropy(y_true, y_pred, apply_class_balancing=False, alpha=0.25, gamma=2.0, from_logits=False, label_smoothing=0.0, axis=-1) = binary_focal_crossentropy(y_true, y_pred, apply_class_balancing, alpha, gamma, from_logits, label_smoothing, axis)
keras.losses.categorical_focal_crossentropy, keras.metrics.categorical_focal_crossentropy(y_true, y_pred, alpha=0.25, gamma=2.0, from_logits=False, label_smoothing=0.0, axis=-1) = categorical_focal_crossentropy(y_true, y_pred, alpha, gamma, from_logits, label_smoothing, axis)
keras.metrics.binary_accuracy(y_true, y_pred, threshold=0.5) = binary_accuracy(y_true, y_pred, threshold)
keras.metrics.categorical_accuracy(y_true, y_pred) = sparse_categorical_accuracy(argmax(y_true, -1), y_pred)
keras.metrics.sparse_categorical_accuracy(y_true, y_pred) = sparse_categorical_accuracy(y_true, y_pred)
keras.metrics.top_k_categorical_accuracy(y_true, y_pred, k=5) = sparse_top_k_categorical_accuracy(argmax(y_true, -1), y_pred, k)
keras.metrics.sparse_top_k_categorical_accuracy(y_true, y_pred, k=5) = sparse_top_k_categorical_accuracy(y_true, y_pred, k)
"""


def lines() -> list[str]:
    """Returns a line for each group of functions, as described above."""
    found = [line for line in _OTHERS.splitlines() if line]
    for name, names in _PLAIN.items():
        found.append(f"{', '.join(names.split())}(x) = {name}(x)")
    for name, names in _BINARY.items():
        found.append(f"{', '.join(names.split())}(x, y) = {name}(x, y)")
    for mode, names in _PREPARED.items():
        whole = ", ".join(f"keras.applications.{name}.preprocess_input" for name in names.split())
        found.append(f"{whole}(x, data_format=None) = {_PREPARATIONS[mode]}")
    by_mode = " else ".join(
        f"{_PREPARATIONS[mode]} if mode == {mode!r}" for mode in ("caffe", "tf", "torch")
    )
    found.append(
        "keras.applications.imagenet_utils.preprocess_input(x, data_format=None, mode='caffe') ="
        f" {by_mode} else refuse('has no such mode') ; mode in ('caffe', 'tf', 'torch')"
    )
    for name, names in _REDUCTIONS.items():
        arguments = "input_tensor, axis=None, keepdims=None, name=None"
        of_1 = "reduction_indices=None, keep_dims=None"
        both = "first(axis, reduction_indices), first(keepdims, keep_dims, False)"
        found.append(
            f"{', '.join(names.split())}({arguments}, {of_1}) = {name}(input_tensor, {both})"
        )
    return found
