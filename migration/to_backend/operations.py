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


_SPACE = "padding is in lower case, and strides and dilations are those of the space alone"
_SEED = "seed= is a keras.random.SeedGenerator of the layer"


def table(text: str) -> tuple[Operation, ...]:
    """Returns the rows of a text, a line each.

    A line is `names = counterpart(parameters)`, the counterpart being below keras.ops where it does
    not begin with keras; then, after ` ; `, further attributes of the row, such as `also: axis=-1`.
    {space} and {seed} stand for sentences that many rows have.

    >>> table("linalg.cross = cross(a=x1 b=x2) ; also: axis=-1")[0].counterpart
    'keras.ops.cross'
    """
    rows = []
    for line in text.format(space=_SPACE, seed=_SEED).strip().splitlines():
        call, *more = line.split(" ; ")
        names, _, call = call.partition(" = ")
        counterpart, _, parameters = call.removesuffix(")").partition("(")
        if not counterpart.startswith("keras."):
            counterpart = f"keras.ops.{counterpart}"
        given = dict(one.split(": ", 1) for one in more)
        parameter, _, what = given.pop("mind", "").partition(", ")
        rows.append(Operation(names, counterpart, parameters, mind=(parameter, what), **given))
    return tuple(rows)


OPERATIONS = table("""
reduce_mean math.reduce_mean = mean(input_tensor=x axis keepdims)
reduce_sum math.reduce_sum = sum(input_tensor=x axis keepdims)
reduce_prod math.reduce_prod = prod(input_tensor=x axis keepdims)
reduce_max math.reduce_max = max(input_tensor=x axis keepdims)
reduce_min math.reduce_min = min(input_tensor=x axis keepdims)
reduce_all math.reduce_all = all(input_tensor=x axis keepdims)
reduce_any math.reduce_any = any(input_tensor=x axis keepdims)
reduce_logsumexp math.reduce_logsumexp = logsumexp(input_tensor=x axis keepdims)
math.reduce_std = std(input_tensor=x axis keepdims)
math.reduce_variance = var(input_tensor=x axis keepdims)
abs math.abs = abs(x)
negative math.negative = negative(x)
sign math.sign = sign(x)
square math.square = square(x)
sqrt math.sqrt = sqrt(x)
math.rsqrt rsqrt = rsqrt(x)
math.reciprocal reciprocal = reciprocal(x)
exp math.exp = exp(x)
math.expm1 expm1 = expm1(x)
math.log log = log(x)
math.log1p log1p = log1p(x)
sin math.sin = sin(x)
cos math.cos = cos(x)
tan math.tan = tan(x)
asin math.asin = arcsin(x)
acos math.acos = arccos(x)
atan math.atan = arctan(x)
sinh math.sinh = sinh(x)
cosh math.cosh = cosh(x)
tanh math.tanh nn.tanh = tanh(x)
asinh math.asinh = arcsinh(x)
acosh math.acosh = arccosh(x)
atanh math.atanh = arctanh(x)
math.erf erf = erf(x)
math.erfinv = erfinv(x)
floor math.floor = floor(x)
math.ceil ceil = ceil(x)
round math.round = round(x)
math.is_finite is_finite = isfinite(x)
math.is_inf is_inf = isinf(x)
math.is_nan is_nan = isnan(x)
logical_not math.logical_not = logical_not(x)
sigmoid math.sigmoid nn.sigmoid = sigmoid(x)
math.log_sigmoid log_sigmoid = log_sigmoid(x)
nn.relu = relu(features=x)
nn.relu6 = relu6(features=x)
nn.elu = elu(features=x)
nn.selu = selu(features=x)
math.softplus nn.softplus = softplus(features=x)
math.softsign nn.softsign = softsign(features=x)
math.real = real(input=x)
math.imag = imag(input=x)
math.angle = angle(input=x)
add math.add = add(x=x1 y=x2)
subtract math.subtract = subtract(x=x1 y=x2)
multiply math.multiply = multiply(x=x1 y=x2)
divide math.divide truediv math.truediv = divide(x=x1 y=x2)
math.divide_no_nan = divide_no_nan(x=x1 y=x2)
math.floordiv = floor_divide(x=x1 y=x2)
math.floormod math.mod = mod(x=x1 y=x2)
pow math.pow = power(x=x1 y=x2)
maximum math.maximum = maximum(x=x1 y=x2)
minimum math.minimum = minimum(x=x1 y=x2)
equal math.equal = equal(x=x1 y=x2)
not_equal math.not_equal = not_equal(x=x1 y=x2)
greater math.greater = greater(x=x1 y=x2)
greater_equal math.greater_equal = greater_equal(x=x1 y=x2)
less math.less = less(x=x1 y=x2)
less_equal math.less_equal = less_equal(x=x1 y=x2)
logical_and math.logical_and = logical_and(x=x1 y=x2)
logical_or math.logical_or = logical_or(x=x1 y=x2)
math.logical_xor = logical_xor(x=x1 y=x2)
bitwise.bitwise_and = bitwise_and(x y)
bitwise.bitwise_or = bitwise_or(x y)
bitwise.bitwise_xor = bitwise_xor(x y)
bitwise.invert = bitwise_invert(x)
bitwise.left_shift = bitwise_left_shift(x y)
bitwise.right_shift = bitwise_right_shift(x y)
math.atan2 = arctan2(y=x1 x=x2)
math.conj = conj(x)
stop_gradient = stop_gradient(input=variable)
math.count_nonzero = count_nonzero(input=x axis -keepdims -dtype)
math.reduce_euclidean_norm = norm(input_tensor=x axis* keepdims*)
norm linalg.norm = norm(tensor=x ord axis keepdims) ; mind: ord, its ord=None is 'euclidean'
argmax math.argmax = argmax(input=x axis -output_type) ; defaults: axis=0
argmin math.argmin = argmin(input=x axis -output_type) ; defaults: axis=0
cumsum math.cumsum = cumsum(x axis -exclusive -reverse) ; defaults: axis=0
math.cumprod = cumprod(x axis -exclusive -reverse) ; defaults: axis=0
math.top_k nn.top_k = top_k(input=x k sorted -index_type) ; defaults: k=1
math.in_top_k nn.in_top_k = in_top_k(targets predictions k)
sort = sort(values=x axis -direction)
argsort = argsort(values=x axis -direction -stable)
searchsorted = searchsorted(sorted_sequence values side -out_type)
math.segment_sum = segment_sum(data segment_ids) ; also: num_segments ; note: a compiled step must know how many there are
math.unsorted_segment_sum = segment_sum(data segment_ids num_segments)
math.unsorted_segment_max = segment_max(data segment_ids num_segments)
clip_by_value = clip(t=x clip_value_min=x_min clip_value_max=x_max)
where = where(condition x=x1 y=x2) ; needs: x y
cast = cast(x dtype)
saturate_cast = saturate_cast(value=x dtype)
convert_to_tensor = convert_to_tensor(value=x dtype -dtype_hint)
constant = convert_to_tensor(value=x dtype -shape)
is_tensor = is_tensor(x)
shape = shape(input=x -out_type) ; note: it gives a tuple, and no tensor
size = size(input=x -out_type)
rank = ndim(input=x)
reshape = reshape(tensor=x shape=newshape)
transpose = transpose(a=x perm=axes -conjugate)
expand_dims = expand_dims(input=x axis)
squeeze = squeeze(input=x axis)
tile = tile(input=x multiples=repeats)
repeat = repeat(input=x repeats axis)
broadcast_to = broadcast_to(input=x shape)
pad = pad(tensor=x paddings=pad_width mode constant_values) ; mind: mode, mode= is in lower case
reverse = flip(tensor=x axis) ; note: its axis= is one number
roll = roll(input=x shift axis)
stack = stack(values=x axis)
unstack = unstack(value=x num axis)
concat = concatenate(values=xs axis)
split = split(value=x num_or_size_splits=indices_or_sections axis -num) ; note: a list means split indices, not sizes
slice = slice(input_=inputs begin=start_indices size=shape) ; note: -1 is not supported as a size
gather = take(params=x indices -validate_indices axis* -batch_dims) ; defaults: axis=0
nn.embedding_lookup = take(params=x ids=indices -max_norm) ; also: axis=0
one_hot = one_hot(indices=x depth=num_classes -on_value -off_value axis* dtype*)
zeros = zeros(shape dtype -layout)
ones = ones(shape dtype -layout)
fill = full(dims=shape value=fill_value -layout)
zeros_like = zeros_like(input=x dtype -layout)
ones_like = ones_like(input=x dtype -layout)
range = arange(start limit=stop delta=step dtype)
meshgrid = meshgrid(args=x indexing)
linspace = linspace(start stop num axis*)
eye linalg.eye = eye(num_rows=N num_columns=M -batch_shape dtype)
scatter_nd = scatter(indices updates=values shape -bad_indices_policy)
tensor_scatter_nd_update = scatter_update(tensor=inputs indices updates)
matmul linalg.matmul = matmul(a=x1 b=x2 -transpose_a -transpose_b -adjoint_a -adjoint_b -a_is_sparse -b_is_sparse -output_type -grad_a -grad_b) ; instead: keras.ops.swapaxes(x, -1, -2) transposes
tensordot linalg.tensordot = tensordot(a=x1 b=x2 axes)
einsum linalg.einsum = einsum(equation=subscripts inputs=operands)
linalg.cross = cross(a=x1 b=x2) ; also: axis=-1
linalg.inv = inv(input=x -adjoint)
linalg.det = det(input=x)
linalg.cholesky = cholesky(input=x)
linalg.solve = solve(matrix=a rhs=b -adjoint)
linalg.triangular_solve = solve_triangular(matrix=a rhs=b lower -adjoint) ; defaults: lower=True
linalg.trace = trace(x) ; also: axis1=-2 axis2=-1
linalg.diag_part = diagonal(input=x k=offset -padding_value -align) ; also: axis1=-2 axis2=-1
nn.leaky_relu = leaky_relu(features=x alpha=negative_slope)
nn.gelu = gelu(features=x approximate) ; defaults: approximate=False
nn.silu nn.swish = silu(features=x -beta)
nn.softmax = softmax(logits=x axis)
nn.log_softmax math.log_softmax = log_softmax(logits=x axis)
nn.moments = moments(x axes -shift keepdims*)
nn.batch_normalization = batch_normalization(x mean variance offset* scale* variance_epsilon=epsilon*) ; also: axis=-1
nn.l2_normalize math.l2_normalize linalg.l2_normalize = normalize(x axis epsilon* -dim) ; needs: axis ; mind: epsilon, its epsilon= is of the norm, and not of its square
nn.conv1d = conv(input=inputs filters=kernel stride=strides padding data_format dilations=dilation_rate) ; note: {space}
nn.conv2d nn.conv3d = conv(input=inputs filters=kernel strides padding data_format dilations=dilation_rate) ; note: {space}
nn.depthwise_conv2d = depthwise_conv(input=inputs filter=kernel strides padding data_format dilations=dilation_rate) ; note: {space}
nn.max_pool nn.max_pool2d = max_pool(input=inputs ksize=pool_size strides padding data_format) ; note: {space}
nn.avg_pool nn.avg_pool2d = average_pool(input=inputs ksize=pool_size strides padding data_format) ; note: {space}; with padding 'same' PyTorch averages zeros at the edge
nn.sigmoid_cross_entropy_with_logits = binary_crossentropy(labels=target logits=output) ; also: from_logits=True
nn.softmax_cross_entropy_with_logits = categorical_crossentropy(labels=target logits=output axis*) ; also: from_logits=True
nn.sparse_softmax_cross_entropy_with_logits = sparse_categorical_crossentropy(labels=target logits=output) ; also: from_logits=True
nn.dropout = keras.random.dropout(x=inputs rate noise_shape seed) ; note: {seed}
random.normal = keras.random.normal(shape mean stddev dtype seed) ; note: {seed}
random.truncated_normal = keras.random.truncated_normal(shape mean stddev dtype seed) ; note: {seed}
random.uniform = keras.random.uniform(shape minval maxval dtype seed) ; note: {seed}; whole numbers are those of keras.random.randint
random.shuffle = keras.random.shuffle(value=x seed*) ; note: {seed}
random.categorical = keras.random.categorical(logits num_samples dtype seed) ; note: {seed}
image.resize = image.resize(images size method=interpolation -preserve_aspect_ratio antialias*)
image.rgb_to_grayscale = image.rgb_to_grayscale(images)
image.rgb_to_hsv = image.rgb_to_hsv(images)
image.hsv_to_rgb = image.hsv_to_rgb(images)
image.extract_patches = image.extract_patches(images sizes=size strides rates=dilation_rate padding) ; note: {space}
image.pad_to_bounding_box = image.pad_images(image=images offset_height=top_padding offset_width=left_padding target_height* target_width*)
image.crop_to_bounding_box = image.crop_images(image=images offset_height=top_cropping offset_width=left_cropping target_height* target_width*)
cond = cond(pred true_fn false_fn)
while_loop = while_loop(cond body loop_vars -shape_invariants -parallel_iterations -back_prop -swap_memory maximum_iterations*)
switch_case = switch(branch_index=index branch_fns=branches -default)
map_fn = map(fn=f elems=xs -dtype -parallel_iterations -back_prop -swap_memory -infer_shape -fn_output_signature)
vectorized_map = vectorized_map(fn=function elems=elements -fallback_to_while_loop -warn)
""")

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
