"""KMP114: functions of TensorFlow on what keras.Input begins.

    inputs = tf.keras.Input((4,))
    x = tf.keras.layers.Dense(8)(inputs)
    x = tf.nn.relu(x)                    # keras.ops.relu(x), keras.activations.relu(x)
    x = tf.concat([x, inputs], axis=-1)  # keras.ops.concatenate([x, inputs], axis=-1)

Keras 2 made a layer of each. Keras 3 refuses: what Input and calls of layers return are
KerasTensors, which only layers and keras.ops take. Operators (`x + 1`, `x[:, 0]`) do it, too.
Reported where the program shows that a tensor begins at an Input, through calls of layers,
operators and TensorFlow's functions; so are the functions of tf.keras.backend. What is a parameter
of a function, as in `call`, is left alone: there tensors are TensorFlow's.
"""

from collections.abc import Iterator

import libcst as cst

from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3 import names
from keras_mp.migration.keras3.code import Code
from keras_mp.migration.keras3.symbolic import computes
from keras_mp.migration.to_backend.operations import OPERATIONS

# Of tf.keras.backend: what takes KerasTensors. A test calls all of them.
TAKING = (
    *("backend.eval", "backend.get_uid", "backend.get_value", "backend.int_shape"),
    *("backend.is_float_dtype", "backend.is_keras_tensor", "backend.is_sparse"),
    *("backend.to_dense", "backend.set_epsilon", "backend.clear_session"),
)
# Functions of TensorFlow, by their last name -> what Keras has instead.
_OPS = {
    name.rpartition(".")[2]: operation.counterpart
    for operation in OPERATIONS
    for name in operation.names.split()
} | {"lrelu": "keras.ops.leaky_relu"}


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    for call in code.calls:
        full = code.program.full_name(call.func, is_sole=True)
        if not _computes(full):
            continue
        if any(code.objects.is_symbolic(argument.value) for argument in call.args):
            name = full.rpartition(".")[2]
            op = _OPS.get(name, f"keras.ops.{name}")
            is_there = op.removeprefix("keras.") in names.today("keras")
            what = f"write {op}" if is_there else "write keras.ops"
            source = code.program.source(call.func)
            yield (
                call,
                Decision(
                    "manual",
                    f"{source} takes no KerasTensor in Keras 3: {what}, or "
                    "call it in a custom layer",
                ),
            )


def _computes(full: str) -> bool:
    """Returns whether a function computes something of a tensor that is TensorFlow's."""
    found = names.keras_name(full)
    if found is not None:
        if found.status == "gone" or found.root == "keras":
            return False
        return found.name.startswith("backend.") and found.name not in TAKING
    return computes(full)
