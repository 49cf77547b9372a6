"""KMP017: private names of layers, and an argument of add_weight, that have to do with dtypes.

before:  tf.cast(x, self._compute_dtype)
after:   tf.cast(x, self.compute_dtype)

before:  tf.cast(x, layer._compute_dtype_object)
after:   tf.cast(x, layer.compute_dtype)

before:  policy = layer._mixed_precision_policy
after:   policy = layer.dtype_policy

before:  self.add_weight(name="scale", shape=(), experimental_autocast=False)
after:   self.add_weight(name="scale", shape=(), autocast=False)

Safe: no other class of TensorFlow or Keras has these names.
Left alone: where the program assigns such an attribute, which is then its own.
Reported: an attribute of a dtype that is read of `_compute_dtype_object`, as Keras 3 has a string.
"""

import libcst as cst

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.parsed import Program
from keras_mp.migration.code.sites import Decision

_NOW = {
    "_compute_dtype": "compute_dtype",
    "_compute_dtype_object": "compute_dtype",
    "_mixed_precision_policy": "dtype_policy",
}
ATTRIBUTES = frozenset(_NOW)
_OLD_ARGUMENT, _ARGUMENT = "experimental_autocast", "autocast"


def of_attribute(program: Program, node: cst.Attribute, own: frozenset[str]) -> Decision:
    """Returns what becomes of one of `ATTRIBUTES`.

    Args:
        program: What it is in.
        node: The attribute.
        own: Names of attributes that the program assigns.
    """
    name = node.attr.value
    if name in own:
        return Decision("kept", f"the program assigns {name} itself")
    parent = program.parent(node)
    if name == "_compute_dtype_object" and isinstance(parent, cst.Attribute):
        why = "compute_dtype of Keras 3 is a string, such as 'float16': tf.as_dtype makes a dtype"
        return Decision("manual", why)
    start, end = program.span(node.attr)
    return Decision("rewritten", f"{_NOW[name]} is public", (Edit(start, end, _NOW[name]),))


def of_argument(program: Program, node: cst.Arg) -> Decision | None:
    """Returns what becomes of an argument of add_weight; None of any other."""
    if node.keyword is None or node.keyword.value != _OLD_ARGUMENT:
        return None
    edit = Edit(*program.span(node.keyword), _ARGUMENT)
    return Decision("rewritten", f"Keras 3 calls it {_ARGUMENT}", (edit,))
