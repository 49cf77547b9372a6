"""KMP204: operations of TensorFlow in the code of a model.

before:  tf.reduce_mean(tf.transpose(x, perm=[0, 2, 1]), axis=-1)
after:   keras.ops.mean(keras.ops.transpose(x, axes=[0, 2, 1]), axis=-1)

That is in `call`, `build` and the like of layers, models, losses and metrics, in functions of
`y_true` and `y_pred`, under a tape, under @tf.function, and in what these call. Elsewhere, as in a
pipeline of tf.data, TensorFlow's operations run whatever the backend of Keras is. The message has
the function of Keras where exactly one computes the same, and what its arguments are called there.
"""

import libcst as cst

from keras_mp.migration.to_backend.operations import EXPRESSIONS, HINTS, OPERATIONS, Operation
from keras_mp.migration.to_backend.uses import Use, message

ANCHOR = "operations"
_TABLE = {name: one for one in OPERATIONS for name in one.names.split()}
# No operations, or such as other rules speak of.
_OTHERS = {
    *("data", "io", "train", "summary", "distribute", "saved_model", "config", "device", "tpu"),
    *("errors", "nest", "lite", "test", "version", "sysconfig", "logging", "get_logger", "types"),
    *("autograph", "feature_column", "estimator", "profiler", "flags", "app", "gfile", "contrib"),
    *("TensorShape", "Dimension", "TensorSpec", "RaggedTensorSpec", "SparseTensorSpec", "TypeSpec"),
    *("Tensor", "DType", "as_dtype", "type_spec_from_value", "executing_eagerly", "init_scope"),
    *("function", "Variable", "Module", "GradientTape", "inside_function", "get_static_value"),
    *(
        "Graph",
        "Session",
        "ConfigProto",
        "GPUOptions",
        "get_default_graph",
        "enable_eager_execution",
    ),
    *("set_random_seed", "__version__", "name_scope", "control_dependencies"),
    # Keras takes what they return, on every backend.
    *("zeros_initializer", "ones_initializer", "constant_initializer"),
    *("random_normal_initializer", "random_uniform_initializer"),
}


def decide(use: Use) -> str | None:
    name = use.tensorflow
    if not name or name.split(".")[0] in _OTHERS or name == "random.set_seed":
        return None
    if use.call is None:
        return _of_function(use)
    return (
        message(f"tf.{name}", _advice(name, use.call), ANCHOR, use.target) if use.in_model else None
    )


def _of_function(use: Use) -> str | None:
    """Returns what is said of an operation that is given away, as `activation=tf.nn.relu`."""
    name, row = use.tensorflow, _TABLE.get(use.tensorflow)
    if row is None or not isinstance(use.parent, cst.Arg) or not use.in_model:
        return None
    return message(f"tf.{name}", f"give {row.counterpart}", ANCHOR, use.target)


def _advice(name: str, call: cst.Call) -> str:
    row = _TABLE.get(name)
    differences = None if row is None else differences_of(row, call)
    if row is not None and differences is not None:
        return written(row, differences)
    if name in EXPRESSIONS:
        expression = EXPRESSIONS[name]
        return "remove it" if expression.isidentifier() else f"write {expression}"
    starts = (start for start in HINTS if name == start or name.startswith(start))
    hint = next((HINTS[start] for start in starts if start.endswith(".") or name == start), None)
    return hint or "keras.ops has no equivalent: combine other functions"


def differences_of(row: Operation, call: cst.Call) -> list[str] | None:
    """Returns what a call of Keras' function must do otherwise; None where it is another."""
    keywords = [one.keyword.value for one in call.args if one.keyword is not None]
    positional = [one for one in call.args if one.keyword is None]
    if any(one.star for one in call.args):
        return row.differences(len(row.parameters.split()), ())
    return row.differences(len(positional), keywords)


def written(row: Operation, differences: list[str]) -> str:
    """Returns what to write, and what differs."""
    more = f" ({', '.join(differences)})" if differences else ""
    return f"write {row.counterpart}{more}"
