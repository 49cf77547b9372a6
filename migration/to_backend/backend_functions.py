"""KMP214: functions of `tf.keras.backend` that Keras 3 does not have.

before:  K.sum(K.square(x), axis=-1)
after:   keras.ops.sum(keras.ops.square(x), axis=-1)

What Keras 3 has of it, such as `K.epsilon()` and `K.clear_session()`, is left alone.
"""

from keras_mp.migration.to_backend.backend_operations import BACKEND_OPERATIONS, HINTS
from keras_mp.migration.to_backend.tensorflow_ops import differences_of, written
from keras_mp.migration.to_backend.uses import Use, message

ANCHOR = "backend-functions"
_TABLE = {name: one for one in BACKEND_OPERATIONS for name in one.names.split()}
# Source: Keras 3.10 and 3.15, keras.backend.
OF_KERAS_3 = {
    *("backend", "clear_session", "epsilon", "floatx", "get_uid", "image_data_format"),
    *("is_float_dtype", "is_int_dtype", "is_keras_tensor", "result_type", "set_epsilon"),
    *("set_floatx", "set_image_data_format", "standardize_dtype"),
}


def decide(use: Use) -> str | None:
    module, _, name = use.keras.partition(".")
    if module != "backend" or not name or "." in name or name in OF_KERAS_3:
        return None
    return message(f"keras.backend.{name}", _advice(use, name), ANCHOR, use.target)


def _advice(use: Use, name: str) -> str:
    row = _TABLE.get(name)
    if row is not None and use.call is None:
        return f"write {row.counterpart}"
    differences = None if row is None or use.call is None else differences_of(row, use.call)
    if row is not None and differences is not None:
        return written(row, differences)
    return HINTS.get(name, "removed in Keras 3: compute it with keras.ops")
