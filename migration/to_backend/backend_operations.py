"""Functions of `tf.keras.backend`, and the one function of Keras 3 that computes the same.

The rows are as those of `operations.py`, and tested with them. Source: Keras 2.15, backend.py.
"""

from collections.abc import Mapping

from keras_mp.migration.to_backend.operations import Operation

_REDUCTIONS = "sum mean max min prod all any std var"
_OF_ONE = (
    "abs cos exp log round sigmoid sign sin softplus softsign sqrt square tanh transpose ndim shape"
)
_OF_TWO = "equal not_equal greater greater_equal less less_equal maximum minimum dot"
_SEED = "seed= is a keras.random.SeedGenerator of the layer"

BACKEND_OPERATIONS: tuple[Operation, ...] = (
    *(Operation(each, f"keras.ops.{each}", "x axis keepdims") for each in _REDUCTIONS.split()),
    *(Operation(each, f"keras.ops.{each}") for each in _OF_ONE.split()),
    *(Operation(each, f"keras.ops.{each}", "x=x1 y=x2") for each in _OF_TWO.split()),
    Operation("arange", "keras.ops.arange", "start stop step dtype", defaults="dtype='int32'"),
    Operation("argmax", "keras.ops.argmax", "x axis", defaults="axis=-1"),
    Operation("argmin", "keras.ops.argmin", "x axis", defaults="axis=-1"),
    Operation("binary_crossentropy", "keras.ops.binary_crossentropy", "target output from_logits"),
    Operation(
        "categorical_crossentropy",
        "keras.ops.categorical_crossentropy",
        "target output from_logits axis",
    ),
    Operation(
        "sparse_categorical_crossentropy",
        "keras.ops.sparse_categorical_crossentropy",
        "target output from_logits axis -ignore_class",
    ),
    Operation("cast", "keras.ops.cast", "x dtype"),
    Operation("clip", "keras.ops.clip", "x min_value=x_min max_value=x_max"),
    Operation("concatenate", "keras.ops.concatenate", "tensors=xs axis", defaults="axis=-1"),
    Operation("constant", "keras.ops.convert_to_tensor", "value=x dtype -shape"),
    Operation("cumprod", "keras.ops.cumprod", "x axis", defaults="axis=0"),
    Operation("cumsum", "keras.ops.cumsum", "x axis", defaults="axis=0"),
    Operation(
        "dropout", "keras.random.dropout", "x=inputs level=rate noise_shape seed", note=_SEED
    ),
    Operation("elu", "keras.ops.elu", "x alpha"),
    Operation("eval get_value", "keras.ops.convert_to_numpy"),
    Operation("expand_dims", "keras.ops.expand_dims", "x axis", defaults="axis=-1"),
    Operation("eye", "keras.ops.eye", "size=N dtype*"),
    Operation("flatten", "keras.ops.ravel"),
    Operation("gather", "keras.ops.take", "reference=x indices", also="axis=0"),
    Operation("in_top_k", "keras.ops.in_top_k", "predictions* targets* k"),
    Operation("map_fn", "keras.ops.map", "fn=f elems=xs -dtype"),
    Operation("one_hot", "keras.ops.one_hot", "indices=x num_classes"),
    Operation("ones", "keras.ops.ones", "shape dtype"),
    Operation("ones_like", "keras.ops.ones_like", "x dtype"),
    Operation("permute_dimensions", "keras.ops.transpose", "x pattern=axes"),
    Operation("pow", "keras.ops.power", "x=x1 a=x2"),
    Operation("random_normal", "keras.random.normal", "shape mean stddev dtype seed", note=_SEED),
    Operation(
        "random_uniform", "keras.random.uniform", "shape minval maxval dtype seed", note=_SEED
    ),
    Operation(
        "truncated_normal",
        "keras.random.truncated_normal",
        "shape mean stddev dtype seed",
        note=_SEED,
    ),
    Operation("relu", "keras.activations.relu", "x alpha=negative_slope max_value threshold"),
    Operation("repeat_elements", "keras.ops.repeat", "x rep=repeats axis"),
    Operation("reshape", "keras.ops.reshape", "x shape=newshape"),
    Operation("reverse", "keras.ops.flip", "x axes=axis"),
    Operation("softmax", "keras.ops.softmax", "x axis"),
    Operation("squeeze", "keras.ops.squeeze", "x axis"),
    Operation("stack", "keras.ops.stack", "x axis"),
    Operation("stop_gradient", "keras.ops.stop_gradient", "variables=variable"),
    Operation("tile", "keras.ops.tile", "x n=repeats"),
    Operation("zeros", "keras.ops.zeros", "shape dtype"),
    Operation("zeros_like", "keras.ops.zeros_like", "x dtype"),
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
