"""One call of a TensorFlow operation, or of a Lambda layer, as TF 1.15 to 2.15 saved it.

Tensors are found in whatever is nested, and numbered; what is computed with them is an expression.
"""

import base64
import binascii
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from keras_mp.compat.code_objects import CodeError, from_config, shortened
from keras_mp.compat.configs import checks
from keras_mp.compat.configs.checks import at, describe
from keras_mp.compat.configs.serialized import Config
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.operations import expressions, lambdas, tables
from keras_mp.compat.operations.expressions import Expression
from keras_mp.compat.operations.tables import NotConverted

CONSTANT, COMPOSITE = "_CONSTANT_VALUE", "_COMPOSITE_TYPE"
IN_CODE = "write it with keras.ops, and build the model in code"
_LAMBDA = "write it as a layer or a function of your own: --model script.py:name, or custom_objects"

Reference = tuple[str, int, int]  # layer, call, tensor


@dataclass(slots=True)
class Call:
    """What a call computes.

    Attributes:
        path: Where the layer is.
        result: The expression; None of AddLoss and AddMetric.
        inputs: The tensors that it names by numbers.
        steps: Expressions that come first.
        depth: How many operations that compute shapes are inside one another.
    """

    path: str
    result: Expression
    inputs: list[Reference]
    steps: list[Expression] = field(default_factory=list)
    depth: int = 0


def is_reference(value: object, names: Collection[str]) -> TypeGuard[list[object]]:
    """Returns whether a list is a tensor, or a constant, and no list of such."""
    return (
        isinstance(value, list)
        and len(value) in (3, 4)
        and isinstance(value[0], str)
        and (value[0] in names or value[0] == CONSTANT)
        and isinstance(value[1], int)
    )


def references(value: object, names: Collection[str]) -> list[Reference]:
    """Returns the tensors of a call, or of outputs, in their order, as often as they are there."""
    if is_reference(value, names):
        further = references(list(value[3:]), names)
        if value[0] == CONSTANT:
            return references([value[2]], names) + further
        name, index, number = value[:3]
        if not isinstance(index, int) or not isinstance(number, int):
            return further
        return [(str(name), index, number), *further]
    if isinstance(value, Mapping):
        value = list(value.values())
    items = value if isinstance(value, list) else []
    return [reference for item in items for reference in references(item, names)]


def function_call(
    config: Config, node: object, names: Collection[str], path: str, where: str
) -> Call:
    """Returns a call of a TFOpLambda or a SlicingOpLambda.

    Args:
        config: Of the layer.
        node: The call.
        names: Of the layers that there are.
        path: Where the layer is.
        where: Where the call is.

    Raises:
        LegacyError: The function has no counterpart, or not with these arguments.
    """
    name = config.get("function")
    if not isinstance(name, str):
        raise LegacyError(f"{path}.config.function", describe(name), "expected a function's name")
    arguments = _Arguments(names)
    first = arguments.first(node, where)
    options = {
        key: arguments.value(value, at(where, key)) for key, value in _options(node, names).items()
    }
    try:
        result = expressions.checked_expression(lambdas.of_tensorflow(name, [first], options))
    except (NotConverted, ValueError) as error:
        raise LegacyError(
            f"{path}.config.function", describe(name), f"{error}; {IN_CODE}"
        ) from None
    return Call(path, result, arguments.inputs)


def _options(node: object, names: Collection[str]) -> dict[str, object]:
    """Returns the keyword arguments, which each tensor of the first argument repeats."""
    if is_reference(node, names):
        return dict(node[3]) if len(node) == 4 and isinstance(node[3], Mapping) else {}
    result: dict[str, object] = {}
    for item in node if isinstance(node, list) else ():
        result |= _options(item, names)
    return result


class _Arguments:
    """Turns nested JSON into expressions, and numbers its tensors."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = names
        self.inputs: list[Reference] = []

    def first(self, value: object, path: str) -> Expression:
        if is_reference(value, self.names):
            if value[0] == CONSTANT:
                return self.value(value[2], f"{path}[2]")
            return self.tensor(value, path)
        if isinstance(value, list):
            return [self.first(item, f"{path}[{i}]") for i, item in enumerate(value)]
        return self.value(value, path)

    def tensor(self, value: list[object], path: str) -> Expression:
        name, index, number = value[:3]
        if not isinstance(index, int) or not isinstance(number, int):
            raise LegacyError(path, describe(value), "expected [layer, node, tensor]")
        return expressions.tensor(place((str(name), index, number), self.inputs))

    def value(self, value: object, path: str) -> Expression:
        if isinstance(value, list):
            if len(value) == 3 and value[0] != CONSTANT and is_reference(value, self.names):
                return self.tensor(value, path)
            if value[:1] == [COMPOSITE]:
                raise LegacyError(path, "is a ragged or sparse tensor", IN_CODE)
            return [self.value(item, f"{path}[{i}]") for i, item in enumerate(value)]
        if not isinstance(value, Mapping):
            return value
        if value.keys() == {"start", "stop", "step"}:
            parts = [self.value(value[key], at(path, key)) for key in ("start", "stop", "step")]
            return {"slice": parts}
        kind, items = value.get("class_name"), value.get("items", value.get("config"))
        if kind == "__ellipsis__":
            return {"ellipsis": True}
        if kind in ("__tuple__", "TensorShape") and isinstance(items, list):
            return [self.value(item, f"{path}[{i}]") for i, item in enumerate(items)]
        raise LegacyError(path, describe(value), f"of no kind that is known; {IN_CODE}")


def tensor_name(reference: Reference) -> str:
    """Returns what people call a tensor: "conv", or "split:1", the second of a layer."""
    name, _, number = reference
    return f"{name or 'x'}:{number}" if number else name or "x"


def place(reference: Reference, inputs: list[Reference]) -> int:
    """Returns the number of a tensor, which may be a new one."""
    if reference not in inputs:
        inputs.append(reference)
    return inputs.index(reference)


def graph_op_call(config: Config, given: Sequence[Reference], path: str) -> Call:
    """Returns a call of a TensorFlowOpLayer.

    Args:
        config: Of the layer.
        given: Its tensors; constants stand between them by their positions.
        path: Where the layer is.

    Raises:
        LegacyError: The op has no counterpart.
    """
    where = f"{path}.config.node_def"
    node = config.get("node_def")
    if isinstance(node, str):
        try:
            node = json.loads(node)
        except ValueError:
            raise LegacyError(where, describe(node), "expected the op as JSON") from None
    node = checks.mapping(node, where)
    name, attributes = node.get("op"), checks.mapping(node.get("attr", {}), f"{where}.attr")
    line = tables.of_graph_ops().get(name) if isinstance(name, str) else None
    if line is None:
        why = f"this op of TensorFlow's graphs has no counterpart here; {IN_CODE}"
        raise LegacyError(f"{where}.op", describe(name), why)
    inputs: list[Reference] = []
    values: list[Expression] = [expressions.tensor(place(one, inputs)) for one in given]
    constants = checks.mapping(config.get("constants") or {}, f"{path}.config.constants")
    for key in sorted(constants, key=lambda key: (len(key), key)):
        if not key.isdecimal() or int(key) > len(values):
            raise LegacyError(at(f"{path}.config.constants", key), "is no input", IN_CODE)
        values.insert(int(key), _constant(constants[key]))
    known = {
        key: _attribute(value, f"{where}.attr.{key}")
        for key, value in attributes.items()
        if key in line.attributes
    }
    try:
        result = expressions.checked_expression(tables.result_of_call(line, values, known))
    except (NotConverted, TypeError, ValueError) as error:
        raise LegacyError(f"{where}.op", describe(name), f"{error}; {IN_CODE}") from None
    return Call(path, result, inputs)


def _constant(value: object) -> Expression:
    if isinstance(value, Mapping):  # what json wrote of an array, in some versions
        value = value.get("value")
    return value


_TEXT = {"b": bool, "i": int, "f": float}


def _attribute(value: object, path: str) -> Expression:
    """Returns an attribute of an op, from what protobuf writes as JSON."""
    given = checks.mapping(value, path)
    for key, kind in _TEXT.items():
        if key in given:
            try:
                return kind(given[key])
            except (TypeError, ValueError):
                raise LegacyError(
                    f"{path}.{key}", describe(given[key]), "expected a number"
                ) from None
    if "type" in given:
        return _dtype(given["type"], path)
    if "s" in given:
        try:
            return base64.b64decode(str(given["s"]), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, ValueError):
            raise LegacyError(f"{path}.s", describe(given["s"]), "expected base64") from None
    if "list" in given:
        inside = checks.mapping(given["list"], f"{path}.list")
        return [
            _attribute({key: item}, f"{path}.list")
            for key, items in inside.items()
            for item in (items if isinstance(items, list) else [items])
        ]
    raise LegacyError(path, "has a value of no kind that is known", IN_CODE)


_DTYPES = {
    "DT_FLOAT": "float32",
    "DT_HALF": "float16",
    "DT_DOUBLE": "float64",
    "DT_BFLOAT16": "bfloat16",
    "DT_BOOL": "bool",
    **{f"DT_INT{n}": f"int{n}" for n in (8, 16, 32, 64)},
    **{f"DT_UINT{n}": f"uint{n}" for n in (8, 16, 32, 64)},
}


def _dtype(value: object, path: str) -> str:
    if not isinstance(value, str) or value not in _DTYPES:
        raise LegacyError(f"{path}.type", describe(value), "no dtype of Keras")
    return _DTYPES[value]


def lambda_call(config: Config, given: Sequence[Reference], *, is_list: bool, path: str) -> Call:
    """Returns a call of a Lambda layer, read from its byte code; nothing of it is run.

    Args:
        config: Of the layer.
        given: Its tensors.
        is_list: Whether the function gets a list of them.
        path: Where the layer is.

    Raises:
        LegacyError: Its code cannot be read, or has no counterpart.
    """
    where = f"{path}.config.function"
    if config.get("mask") is not None:
        why = f"not read; {_LAMBDA}"
        raise LegacyError(f"{path}.config.mask", describe(config["mask"]), why, needs_code=True)
    try:
        function = from_config(config.get("function"), module=config.get("module"))
    except CodeError as error:
        so_far = f"; read so far: {error.so_far}" if error.so_far else ""
        why = f"{_LAMBDA}{so_far}"
        raise LegacyError(where, f"is code that {error.why}", why, needs_code=True) from None
    arguments = checks.mapping(config.get("arguments") or {}, f"{path}.config.arguments")
    tensors: list[Expression] = [expressions.tensor(i) for i in range(len(given))]
    first: Expression = tensors if is_list else tensors[0]
    try:
        program = lambdas.program(function, first, arguments)
    except (NotConverted, ValueError) as error:
        said = f"is `{shortened(function.source())}`"
        raise LegacyError(where, said, f"it {error}; {_LAMBDA}", needs_code=True) from None
    except RecursionError:
        raise LegacyError(where, "is nested too deeply", _LAMBDA, needs_code=True) from None
    return Call(path, program.result, list(given), program.steps)
