"""Functions of `tf.keras.backend`, and the one function of Keras 3 that computes the same.

The rows are as those of `operations.py`, and tested with them. Source: Keras 2.15, backend.py.
"""

from collections.abc import Mapping

from keras_mp.migration.to_backend.operations import Operation, table

_REDUCTIONS = "sum mean max min prod all any std var"
_OF_ONE = (
    "abs cos exp log round sigmoid sign sin softplus softsign sqrt square tanh transpose ndim shape"
)
_OF_TWO = "equal not_equal greater greater_equal less less_equal maximum minimum dot"

BACKEND_OPERATIONS: tuple[Operation, ...] = (
    *(Operation(each, f"keras.ops.{each}", "x axis keepdims") for each in _REDUCTIONS.split()),
    *(Operation(each, f"keras.ops.{each}") for each in _OF_ONE.split()),
    *(Operation(each, f"keras.ops.{each}", "x=x1 y=x2") for each in _OF_TWO.split()),
    *table("""
arange = arange(start stop step dtype) ; defaults: dtype='int32'
argmax = argmax(x axis) ; defaults: axis=-1
argmin = argmin(x axis) ; defaults: axis=-1
binary_crossentropy = binary_crossentropy(target output from_logits)
categorical_crossentropy = categorical_crossentropy(target output from_logits axis)
sparse_categorical_crossentropy = sparse_categorical_crossentropy(target output from_logits axis -ignore_class)
cast = cast(x dtype)
clip = clip(x min_value=x_min max_value=x_max)
concatenate = concatenate(tensors=xs axis) ; defaults: axis=-1
constant = convert_to_tensor(value=x dtype -shape)
cumprod = cumprod(x axis) ; defaults: axis=0
cumsum = cumsum(x axis) ; defaults: axis=0
dropout = keras.random.dropout(x=inputs level=rate noise_shape seed) ; note: {seed}
elu = elu(x alpha)
eval get_value = convert_to_numpy(x)
expand_dims = expand_dims(x axis) ; defaults: axis=-1
eye = eye(size=N dtype*)
flatten = ravel(x)
gather = take(reference=x indices) ; also: axis=0
in_top_k = in_top_k(predictions* targets* k)
map_fn = map(fn=f elems=xs -dtype)
one_hot = one_hot(indices=x num_classes)
ones = ones(shape dtype)
ones_like = ones_like(x dtype)
permute_dimensions = transpose(x pattern=axes)
pow = power(x=x1 a=x2)
random_normal = keras.random.normal(shape mean stddev dtype seed) ; note: {seed}
random_uniform = keras.random.uniform(shape minval maxval dtype seed) ; note: {seed}
truncated_normal = keras.random.truncated_normal(shape mean stddev dtype seed) ; note: {seed}
relu = keras.activations.relu(x alpha=negative_slope max_value threshold)
repeat_elements = repeat(x rep=repeats axis)
reshape = reshape(x shape=newshape)
reverse = flip(x axes=axis)
softmax = softmax(x axis)
squeeze = squeeze(x axis)
stack = stack(x axis)
stop_gradient = stop_gradient(variables=variable)
tile = tile(x n=repeats)
zeros = zeros(shape dtype)
zeros_like = zeros_like(x dtype)
"""),
)

HINTS: Mapping[str, str] = {
    "batch_flatten": "write keras.ops.reshape(x, (keras.ops.shape(x)[0], -1))",
    "int_shape": "write tuple(x.shape)",
    "dtype": "write keras.backend.standardize_dtype(x.dtype)",
    "hard_sigmoid": "write keras.ops.clip(0.2 * x + 0.5, 0, 1): Keras 3 has another function",
    "l2_normalize": "write keras.ops.normalize(x, axis), which needs the axis",
    "switch": "write keras.ops.where for tensors, and keras.ops.cond for functions",
    "variable": "write keras.Variable(...)",
    "name_scope": "write keras.name_scope(...)",
    "placeholder": "write keras.Input(...)",
    "set_value": "write x.assign(value)",
    "update": "write x.assign(...)",
    "update_add": "write x.assign(x + ...)",
    "update_sub": "write x.assign(x - ...)",
    "batch_get_value": "write [keras.ops.convert_to_numpy(x) for x in ...]",
    "batch_set_value": "write x.assign(value) for each",
    "gradients": "Keras has no gradients: use jax.grad, or torch.autograd.grad",
    "function": "write a keras.Model of these inputs and outputs",
    "learning_phase": "use the argument training of call",
    "set_learning_phase": "give training=False to the call of the model",
    "in_train_phase": "use the argument training of call, and an if",
    "in_test_phase": "use the argument training of call, and an if",
    "get_session": "remove it: Keras 3 has no sessions",
    "set_session": "remove it: Keras 3 has no sessions",
    "logsumexp": "write keras.ops.logsumexp",
    "batch_dot": "write keras.ops.einsum, or keras.layers.Dot",
    "rnn": "write keras.layers.RNN with a cell, or keras.ops.scan",
    "ctc_batch_cost": "write keras.ops.ctc_loss, whose arguments have another order",
    "count_params": "write keras.ops.size(x)",
    "random_bernoulli": "compare keras.random.uniform(...) with p",
    "bias_add": "write x + bias",
    "set_image_dim_ordering": "write keras.config.set_image_data_format",
}
