"""The operations that there are, with their arguments: what both sides of this room agree on.

Names and arguments are those of `keras.ops` where it computes the same; results and dtypes are
those of TensorFlow. `computing` has a function for each.
"""

import ast
import functools
from dataclasses import dataclass

REQUIRED = object()

_TEXT = """
# What a tensor is.
shape(x)                     a list: ints, and scalar tensors for what is not known
static_shape(x)              a list: ints, and None for what is not known
rank(x)
size(x)
dtype(x)

# Elementwise.
absolute(x)
negative(x)
sign(x)
square(x)
sqrt(x)
rsqrt(x)
reciprocal(x)
exp(x)
expm1(x)
log(x)
log1p(x)
sin(x)
cos(x)
tan(x)
arcsin(x)
arccos(x)
arctan(x)
sinh(x)
cosh(x)
tanh(x)
arcsinh(x)
arccosh(x)
arctanh(x)
arctan2(x1, x2)
erf(x)
erfinv(x)
floor(x)
ceil(x)
round(x)                     halves to even
isfinite(x)
isinf(x)
isnan(x)
logical_not(x)
bitwise_invert(x)
add(x1, x2)
subtract(x1, x2)
multiply(x1, x2)
divide(x1, x2)               of whole numbers, too, a floating number
python2_divide(x1, x2)       of whole numbers, downwards
divide_no_nan(x1, x2)
multiply_no_nan(x1, x2)
floor_divide(x1, x2)
truncate_divide(x1, x2)      of whole numbers, towards zero
mod(x1, x2)                  with the sign of x2
truncate_mod(x1, x2)         with the sign of x1
power(x1, x2)
maximum(x1, x2)
minimum(x1, x2)
xlogy(x1, x2)
xlog1py(x1, x2)
xdivy(x1, x2)
equal(x1, x2)
not_equal(x1, x2)
greater(x1, x2)
greater_equal(x1, x2)
less(x1, x2)
less_equal(x1, x2)
logical_and(x1, x2)
logical_or(x1, x2)
logical_xor(x1, x2)
bitwise_and(x1, x2)
bitwise_or(x1, x2)
bitwise_xor(x1, x2)
left_shift(x1, x2)
right_shift(x1, x2)
clip(x, x_min=None, x_max=None)
clip_by_norm(x, clip_norm, axis=None)
where(condition, x1, x2)
select(condition, x1, x2)    where; a condition of rank 1 picks rows
cast(x, dtype)
saturate_cast(x, dtype)
constant(value, dtype=None, shape=None)
identity(x)
stop_gradient(x)
add_n(inputs)
polyval(coefficients, x)
clip_by_global_norm(inputs, clip_norm, norm=None)

# Reductions: over all axes where none is given.
sum(x, axis=None, keepdims=False)
mean(x, axis=None, keepdims=False)
prod(x, axis=None, keepdims=False)
max(x, axis=None, keepdims=False)
min(x, axis=None, keepdims=False)
all(x, axis=None, keepdims=False)
any(x, axis=None, keepdims=False)
var(x, axis=None, keepdims=False)
std(x, axis=None, keepdims=False)
logsumexp(x, axis=None, keepdims=False)
count_nonzero(x, axis=None, keepdims=False, dtype="int64")
norm(x, ord="euclidean", axis=None, keepdims=False)
argmax(x, axis=0, dtype="int64")
argmin(x, axis=0, dtype="int64")
cumsum(x, axis=0, exclusive=False, reverse=False)
cumprod(x, axis=0, exclusive=False, reverse=False)
moments(x, axes, keepdims=False)
segment_sum(data, segment_ids, num_segments)
segment_max(data, segment_ids, num_segments)
segment_min(data, segment_ids, num_segments)
segment_prod(data, segment_ids, num_segments)
weighted_moments(x, axes, frequency_weights, keepdims=False)
sufficient_statistics(x, axes, shift=None, keepdims=False)
global_norm(inputs)
is_increasing(x, strictly=False)
bincount(x, weights=None, length=0, axis=None, binary_output=False, dtype="int32")
confusion_matrix(labels, predictions, classes, weights=None, dtype="int32")

# Shapes.
reshape(x, newshape)
transpose(x, axes=None)
matrix_transpose(x)
expand_dims(x, axis)
squeeze(x, axis=None)
flatten(x)
batch_flatten(x)
tile(x, repeats)
repeat(x, repeats, axis=None)
broadcast_to(x, shape)
pad(x, pad_width, mode="constant", constant_values=0)
flip(x, axis)
roll(x, shift, axis)
stack(x, axis=0)
unstack(x, num=None, axis=0)
concatenate(xs, axis)
split(x, indices_or_sections, axis=0, num=None)
get_item(x, key)
slice(x, begin, size)
strided_slice(x, begin, end, strides=None, begin_mask=0, end_mask=0, ellipsis_mask=0, \
new_axis_mask=0, shrink_axis_mask=0)
take(x, indices, axis=0, batch_dims=0)
gather_nd(x, indices, batch_dims=0)
one_hot(indices, depth, on_value=None, off_value=None, axis=-1, dtype=None)
sequence_mask(lengths, maxlen, dtype="bool")
reverse_sequence(x, seq_lengths, seq_axis, batch_axis=0)
zeros(shape, dtype="float32")
ones(shape, dtype="float32")
full(shape, fill_value, dtype=None)
zeros_like(x, dtype=None)
ones_like(x, dtype=None)
arange(start, stop, step=1, dtype=None)
linspace(start, stop, num)
eye(rows, columns=None, dtype="float32")
meshgrid(xs, indexing="xy")
diag(x)                      the last axis on the diagonal of a matrix
tensor_diag(x)               all axes on a diagonal
diagonal(x)
set_diagonal(x, diagonal)
tensor_diagonal(x)           what tensor_diag was made of
unravel_index(indices, dims)
band_part(x, lower, upper)
sort(x, axis=-1, direction="ASCENDING")
argsort(x, axis=-1, direction="ASCENDING")
top_k(x, k=1, sorted=True)
in_top_k(targets, predictions, k)
searchsorted(sorted_sequence, values, side="left")
space_to_depth(x, block_size, data_format="NHWC")
depth_to_space(x, block_size, data_format="NHWC")
space_to_batch(x, block_shape, paddings)
batch_to_space(x, block_shape, crops)
tensor_scatter_update(x, indices, updates)
tensor_scatter_add(x, indices, updates)

# Linear algebra.
matmul(a, b, transpose_a=False, transpose_b=False)
matvec(a, b, transpose_a=False)
dot(x, y)
batch_dot(x, y, axes=None)
tensordot(a, b, axes)
einsum(equation, operands)
cross(a, b)
trace(x)
inv(x)
det(x)
cholesky(x)
solve(a, b)
triangular_solve(a, b, lower=True, adjoint=False)
qr(x, full_matrices=False)
svd(x, full_matrices=False)
eigh(x)
slogdet(x)
lstsq(a, b, l2_regularizer=0.0)
pinv(x, rcond=None)
matrix_rank(x, tol=None)

# Neural networks.
relu(x, negative_slope=0.0, max_value=None, threshold=0.0)
relu6(x)
leaky_relu(x, negative_slope=0.2)
elu(x, alpha=1.0)
selu(x)
gelu(x, approximate=False)
silu(x, beta=1.0)
sigmoid(x)
log_sigmoid(x)
keras2_hard_sigmoid(x)
softplus(x)
softsign(x)
mish(x)
crelu(x, axis=-1)
softmax(x, axis=-1)
log_softmax(x, axis=-1)
l2_normalize(x, axis=None, epsilon=1e-12)
bias_add(x, bias, data_format="NHWC")
batch_normalization(x, mean, variance, offset, scale, epsilon)
fused_batch_normalization(x, scale, offset, mean, variance, epsilon, data_format="NHWC", \
is_training=False, factor=1.0)
local_response_normalization(x, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5)
conv(x, kernel, strides=1, padding="VALID", data_format=None, dilations=1)
depthwise_conv(x, kernel, strides=1, padding="VALID", data_format="NHWC", dilations=1)
separable_conv(x, depthwise_kernel, pointwise_kernel, strides=1, padding="VALID", \
data_format="NHWC", dilations=1)
conv_transpose(x, kernel, output_shape, strides, padding="SAME", data_format="NHWC")
max_pool(x, pool_size, strides=None, padding="VALID", data_format=None)
average_pool(x, pool_size, strides=None, padding="VALID", data_format=None)
dilation(x, kernel, strides, padding, dilations=1)
erosion(x, kernel, strides, padding, dilations=1)
dropout(x, rate, noise_shape=None)
in_training(x, alternative)
softmax_cross_entropy(labels, logits, axis=-1)
sparse_softmax_cross_entropy(labels, logits)
sigmoid_cross_entropy(labels, logits)
weighted_cross_entropy(labels, logits, pos_weight)
log_poisson_loss(targets, log_input, compute_full_loss=False)
ctc_loss(labels, logits, label_length, logit_length, logits_time_major=True, blank_index=0)
categorical_crossentropy(target, output, from_logits=False, axis=-1)
sparse_categorical_crossentropy(target, output, from_logits=False)
binary_crossentropy(target, output, from_logits=False)
ctc_batch_cost(y_true, y_pred, input_length, label_length)

# Losses and metrics of Keras 2.
mean_absolute_percentage_error(y_true, y_pred)
mean_squared_logarithmic_error(y_true, y_pred)
huber(y_true, y_pred, delta=1.0)
log_cosh(y_true, y_pred)
kl_divergence(y_true, y_pred)
poisson(y_true, y_pred)
hinge(y_true, y_pred)
squared_hinge(y_true, y_pred)
categorical_hinge(y_true, y_pred)
binary_focal_crossentropy(y_true, y_pred, apply_class_balancing=False, alpha=0.25, gamma=2.0, \
from_logits=False, label_smoothing=0.0, axis=-1)
categorical_focal_crossentropy(y_true, y_pred, alpha=0.25, gamma=2.0, from_logits=False, \
label_smoothing=0.0, axis=-1)
smooth_labels(y_true, y_pred, label_smoothing, classes)
binary_accuracy(y_true, y_pred, threshold=0.5)
sparse_categorical_accuracy(y_true, y_pred)
sparse_top_k_categorical_accuracy(y_true, y_pred, k=5)

# Images: batch, height, width, channels, or one image without the batch.
resize(images, size, method="bilinear", antialias=False)
resize_v1(images, size, method, align_corners=False, half_pixel_centers=False)
resize_by(images, height_factor, width_factor, data_format, interpolation="nearest")
temporal_padding(x, padding)
spatial_padding(x, padding, data_format)
rot90(images, k=1)
transpose_images(images)
rgb_to_grayscale(images)
grayscale_to_rgb(images)
rgb_to_hsv(images)
hsv_to_rgb(images)
adjust_brightness(images, delta)
adjust_gamma(images, gamma=1, gain=1)
adjust_contrast(images, factor)
adjust_saturation(images, factor)
adjust_hue(images, delta)
per_image_standardization(images)
convert_image_dtype(images, dtype)
central_crop(images, fraction)
crop_to_bounding_box(images, top, left, height, width)
pad_to_bounding_box(images, top, left, height, width)
resize_with_crop_or_pad(images, height, width)
extract_patches(images, sizes, strides, rates, padding)
resize_with_pad(images, height, width, method="bilinear", antialias=False)
crop_and_resize(images, boxes, box_indices, crop_size, method="bilinear", extrapolation_value=0.0)
image_gradients(images)
psnr(a, b, max_val)
ssim(a, b, max_val, filter_size=11, filter_sigma=1.5, k1=0.01, k2=0.03, return_index_map=False)
total_variation(images)
sobel_edges(images)

# Random numbers: others at each call.
random_normal(shape, mean=0.0, stddev=1.0, dtype="float32")
random_truncated_normal(shape, mean=0.0, stddev=1.0, dtype="float32")
random_uniform(shape, minval=0, maxval=None, dtype="float32")
random_binomial(shape, p=0.0, dtype="float32")
random_shuffle(x)
random_flip(images, axis)
random_crop(x, size)

# Python, on what is known before anything is computed.
item(value, key)
length(value)
as_list(value)
join_lists(x1, x2)
int(value)
float(value)
is_none(value)
if_else(condition, then, otherwise)
"""

# Results known when a model is called and not only when it computes: of these, on such results.
STATIC = frozenset(
    ("shape", "static_shape", "rank", "size", "dtype", "item", "length", "as_list", "join_lists")
)
STAYS_STATIC = STATIC | frozenset(
    (
        *("add", "subtract", "multiply", "divide", "floor_divide", "truncate_divide", "mod"),
        *("maximum", "minimum", "negative", "absolute", "square", "sqrt", "power", "floor"),
        *("ceil", "round", "cast", "prod", "sum", "max", "min", "constant", "identity"),
        *("get_item", "strided_slice", "slice", "stack", "concatenate", "unstack", "split"),
        *("equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "logical_and"),
        *("logical_or", "logical_not", "expand_dims", "squeeze", "reshape", "take", "int"),
        *("float", "is_none", "arange", "flip", "zeros_like", "ones_like", "is_none"),
    )
)
# Operations that have several results.
SEVERAL = frozenset(
    (
        *("split", "unstack", "moments", "top_k", "meshgrid", "qr", "svd", "eigh", "slogdet"),
        *("fused_batch_normalization", "weighted_moments", "sufficient_statistics"),
        *("image_gradients", "clip_by_global_norm"),
    )
)
RANDOM = frozenset(
    (
        *("dropout", "random_normal", "random_truncated_normal"),
        *("random_uniform", "random_binomial", "random_shuffle", "random_flip", "random_crop"),
    )
)

# Operations that keras.ops has by the same name, with the same result for float32 tensors where
# no other arguments are given than these.
_ONE = (
    *("absolute", "negative", "sign", "square", "sqrt", "rsqrt", "reciprocal", "exp", "expm1"),
    *("log", "log1p", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh"),
    *("arcsinh", "arccosh", "arctanh", "erf", "floor", "ceil", "round", "isfinite", "isinf"),
    *("isnan", "logical_not", "relu", "relu6", "selu", "elu", "sigmoid", "log_sigmoid", "silu"),
    *("softplus", "softsign", "softmax", "log_softmax", "zeros_like", "ones_like", "transpose"),
)
_TWO = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "equal"),
    *("not_equal", "greater", "greater_equal", "less", "less_equal", "logical_and"),
    *("logical_or", "arctan2"),
)
_OVER_AXES = ("sum", "mean", "prod", "max", "min", "all", "any", "var", "std", "logsumexp")
SAME_IN_KERAS: dict[str, frozenset[str]] = {
    **dict.fromkeys(_ONE, frozenset(("x",))),
    **dict.fromkeys(("softmax", "log_softmax"), frozenset(("x", "axis"))),
    **dict.fromkeys(_TWO, frozenset(("x1", "x2"))),
    **dict.fromkeys(_OVER_AXES, frozenset(("x", "axis", "keepdims"))),
    "transpose": frozenset(("x", "axes")),
    "reshape": frozenset(("x", "newshape")),
    "expand_dims": frozenset(("x", "axis")),
    "squeeze": frozenset(("x", "axis")),
    "tile": frozenset(("x", "repeats")),
    "flip": frozenset(("x", "axis")),
    "concatenate": frozenset(("xs", "axis")),
    "stack": frozenset(("x", "axis")),
    "cast": frozenset(("x", "dtype")),
    "where": frozenset(("condition", "x1", "x2")),
    "get_item": frozenset(("x", "key")),
    "clip": frozenset(("x", "x_min", "x_max")),
    "stop_gradient": frozenset(("x",)),
    "leaky_relu": frozenset(("x", "negative_slope")),
    "matmul": frozenset(("a", "b")),
}


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments of an operation: name -> default, `REQUIRED` without."""

    name: str
    arguments: dict[str, object]


@functools.cache
def signatures() -> dict[str, Signature]:
    """Returns the signature of each operation.

    >>> signatures()["sum"].arguments["keepdims"]
    False
    """
    found = {}
    for line in _TEXT.replace("\\\n", "").splitlines():
        head, _, _ = line.partition(")")
        if head and not head.startswith("#"):
            name, arguments = parsed_signature(head + ")")
            found[name] = Signature(name, arguments)
    return found


def parsed_signature(text: str) -> tuple[str, dict[str, object]]:
    """Returns the name and the arguments of a signature.

    >>> parsed_signature("tile(x, times=2)")[0]
    'tile'
    """
    definition = ast.parse(f"def {text}: pass").body[0]
    assert isinstance(definition, ast.FunctionDef)
    given = definition.args
    names = [one.arg for one in given.args]
    defaults = [ast.literal_eval(one) for one in given.defaults]
    found: dict[str, object] = dict.fromkeys(names[: len(names) - len(defaults)], REQUIRED)
    found |= zip(names[len(names) - len(defaults) :], defaults, strict=True)
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found[one.arg] = REQUIRED if default is None else ast.literal_eval(default)
    return definition.name, found
