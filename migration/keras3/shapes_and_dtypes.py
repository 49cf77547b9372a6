"""KMP116: shapes that are tuples in Keras 3, and dtypes that are strings.

before:  size = input_shape.as_list()            # in build(self, input_shape) of a layer
after:   size = list(input_shape)

before:  width = x.get_shape().as_list()[-1]     # x comes from keras.Input
after:   width = list(x.shape)[-1]

before:  name = layer.kernel.dtype.name          # of a variable, a layer or a KerasTensor
after:   name = layer.kernel.dtype

before:  width = input_shape[-1].value
after:   width = input_shape[-1]

Safe where the object is one of Keras. The shape is that of one input.
Reported: other attributes of a TensorShape or a DType, such as dtype.base_dtype.
Left alone: a name that is assigned anew, such as input_shape = tf.TensorShape(input_shape), and the
tensors in `call`, which are TensorFlow's.
"""

from collections.abc import Iterator

import libcst as cst

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3.code import Code

_OF_SHAPES = ("as_list", "rank", "ndims", "dims", "num_elements", "is_fully_defined", "with_rank")
_OF_DTYPES = ("as_numpy_dtype", "base_dtype", "is_floating", "is_integer", "as_datatype_enum")
_METHODS = ("build", "compute_output_shape")
_SHAPE = "a shape is a tuple in Keras 3"
_DTYPE = "a dtype is a string in Keras 3"
_HAVING_SHAPES = ("KerasTensor",)
_HAVING_DTYPES = ("Variable", "KerasTensor", "layers.Layer")


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    for node in code.attributes:
        found = _of_dtype(code, node) or _of_shape(code, node) or _of_dimension(code, node)
        if found is None:
            found = _of_getter(code, node)
        if found is not None:
            yield node, found


def _of_dtype(code: Code, node: cst.Attribute) -> Decision | None:
    """Returns what becomes of `variable.dtype.name`."""
    dtype, name = node.value, node.attr.value
    if not isinstance(dtype, cst.Attribute) or dtype.attr.value != "dtype":
        return None
    if name != "name" and name not in _OF_DTYPES:
        return None
    receiver = code.objects.of(dtype.value)
    if receiver is None or not any(receiver.is_a(kind) for kind in _HAVING_DTYPES):
        return None
    if code.objects.defines(receiver, "dtype"):
        return None
    if name == "name":
        start, end = code.program.span(dtype)[1], code.program.span(node)[1]
        return Decision("rewritten", _DTYPE, (Edit(start, end, ""),))
    return Decision("manual", f"{_DTYPE}: write tf.as_dtype({code.program.source(dtype)}).{name}")


def _of_shape(code: Code, node: cst.Attribute) -> Decision | None:
    """Returns what becomes of `shape.as_list()`, of a shape of Keras."""
    name, shape = node.attr.value, node.value
    if name not in _OF_SHAPES or not _is_shape(code, shape):
        return None
    call = code.program.call_of(node)
    if name == "as_list" and call is not None and not call.args:
        edit = Edit(*code.program.span(call), f"list({_text(code, shape)})")
        return Decision("rewritten", _SHAPE, (edit,))
    if name in ("rank", "ndims"):
        return Decision("rewritten", _SHAPE, (code.replaced(node, f"len({_text(code, shape)})"),))
    return Decision("manual", f"{_SHAPE}, which has no {name}")


def _of_dimension(code: Code, node: cst.Attribute) -> Decision | None:
    """Returns what becomes of `shape[-1].value`."""
    if node.attr.value != "value" or not isinstance(node.value, cst.Subscript):
        return None
    if not _is_shape(code, node.value.value) or code.program.is_bound(node):
        return None
    start, end = code.program.span(node.value)[1], code.program.span(node)[1]
    return Decision("rewritten", _SHAPE, (Edit(start, end, ""),))


def _of_getter(code: Code, node: cst.Attribute) -> Decision | None:
    """Returns what becomes of `x.get_shape()` where nothing more is asked of it."""
    call = code.program.call_of(node)
    if call is None or not _is_getter(code, call):
        return None
    parent = code.program.parent(call)
    if isinstance(parent, cst.Attribute) and parent.attr.value in _OF_SHAPES:
        return None  # told as a whole
    start, end = code.program.span(node.attr)[0], code.program.span(call)[1]
    return Decision("rewritten", _SHAPE, (Edit(start, end, "shape"),))


def _text(code: Code, shape: cst.CSTNode) -> str:
    """Returns the text of a shape as it is written today."""
    if isinstance(shape, cst.Call) and isinstance(shape.func, cst.Attribute):
        return f"{code.program.source(shape.func.value)}.shape"
    return code.program.source(shape)


def _is_shape(code: Code, node: cst.CSTNode) -> bool:
    """Returns whether an expression is a shape of Keras."""
    if isinstance(node, cst.Call):
        return _is_getter(code, node)
    if isinstance(node, cst.Attribute) and node.attr.value == "shape":
        return any(code.objects.is_a(node.value, kind) for kind in _HAVING_SHAPES)
    return isinstance(node, cst.Name) and _is_parameter(code, node)


def _is_getter(code: Code, call: cst.Call) -> bool:
    """Returns whether it is `get_shape()` of a tensor or a variable of Keras."""
    function = call.func
    if not isinstance(function, cst.Attribute) or function.attr.value != "get_shape" or call.args:
        return False
    return any(code.objects.is_a(function.value, kind) for kind in ("KerasTensor", "Variable"))


def _is_parameter(code: Code, node: cst.Name) -> bool:
    """Returns whether a name is the shape that `build` of a layer is given, and nothing else."""
    scope = code.program.scope(node)
    assigned = [getattr(one, "node", None) for one in scope[node.value]] if scope else []
    if len(assigned) != 1 or not isinstance(assigned[0], cst.Param):
        return False
    parameters = code.program.parent(assigned[0])
    function = code.program.parent(parameters) if parameters is not None else None
    if not isinstance(function, cst.FunctionDef) or function.name.value not in _METHODS:
        return False
    params = function.params.params
    if len(params) < 2 or params[1] is not assigned[0]:
        return False
    body = code.program.parent(function)
    around = code.program.parent(body) if body is not None else None
    found = code.objects.class_of(around) if isinstance(around, cst.ClassDef) else None
    return found is not None and found.is_a("layers.Layer")
