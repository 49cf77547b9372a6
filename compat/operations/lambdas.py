"""Python expressions, as they stood in Lambda layers, as operations.

Takes what `keras_mp.compat.code_objects` read out of byte code: names, calls and operators, none of
which is ever run. Names are what they are by custom: `tf`, `K`, `np`.
"""

import ast
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from keras_mp.compat.code_objects import Array
from keras_mp.compat.operations import expressions, functions, python_types, tables
from keras_mp.compat.operations.expressions import Expression, operation
from keras_mp.compat.operations.tables import NotConverted
from keras_mp.compat.operations.vocabulary import SEVERAL

# Global name -> what it stands for, below `tf.`.
ROOTS = {
    "tf": "",
    "tensorflow": "",
    "keras": "keras.",
    "tfk": "keras.",
    **dict.fromkeys(("K", "KB", "Kb", "kb", "backend", "keras_backend"), "keras.backend."),
    **dict.fromkeys(("nn", "tfnn"), "nn."),
    **dict.fromkeys(("losses", "objectives"), "keras.losses."),
    "metrics": "keras.metrics.",
    "activations": "keras.activations.",
    "applications": "keras.applications.",
    **{name: f"keras.applications.{name}." for name in functions.APPLICATIONS},
    "math_ops": "math.",
    "array_ops": "",
}
DTYPES = frozenset(
    (
        *("bfloat16", "bool", "double", "float16", "float32", "float64", "half", "int16"),
        *("int32", "int64", "int8", "uint16", "uint32", "uint64", "uint8"),
    )
)
_OTHER_DTYPES = {"double": "float64", "half": "float16"}
_NUMBERS = {
    **{f"{of}.pi": math.pi for of in ("np", "numpy", "math")},
    **{f"{of}.e": math.e for of in ("np", "numpy", "math")},
    **{f"{of}.inf": math.inf for of in ("np", "numpy", "math")},
}
# Of NumPy and Python's math: on plain numbers, as tensors had none.
_PLAIN = {
    **dict.fromkeys(
        ("array", "asarray", "float32", "int32", "float64", "int64", "float16"), "constant"
    ),
    **{name: name for name in ("sqrt", "exp", "log", "sin", "cos", "tan", "tanh", "floor", "ceil")},
    **{name: name for name in ("square", "prod", "sum", "mean", "max", "min", "log1p", "expm1")},
    "abs": "absolute",
    "fabs": "absolute",
    "power": "power",
    "pow": "power",
    "round": "round",
    "maximum": "maximum",
    "minimum": "minimum",
    "divide": "divide",
    "multiply": "multiply",
    "add": "add",
    "subtract": "subtract",
    "arange": "arange",
    "negative": "negative",
}
_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "mod",
    ast.Pow: "power",
    ast.MatMult: "matmul",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}
_BOOL = frozenset(
    (
        *_COMPARE.values(),
        *("logical_not", "logical_and", "logical_or", "logical_xor"),
        *("isnan", "isinf", "isfinite", "in_top_k", "all", "any"),
    )
)
_SAME_TYPE: dict[type[ast.cmpop], bool] = {
    **dict.fromkeys((ast.Eq, ast.Is, ast.In), True),
    **dict.fromkeys((ast.NotEq, ast.IsNot, ast.NotIn), False),
}
_IS_TENSOR = frozenset(("tf.is_tensor", "tensorflow.is_tensor", "tf.contrib.framework.is_tensor"))
_LISTS = SEVERAL | {"as_list", "join_lists"}
_SHAPES = frozenset(("static_shape", "as_list", "join_lists"))
# Of tf.signal, and of tf in TF 1.
_COMPLEX = frozenset(
    (
        *("fft", "ifft", "rfft", "irfft", "fft2d", "ifft2d", "rfft2d", "irfft2d", "fft3d"),
        *("ifft3d", "rfft3d", "irfft3d", "fftnd", "ifftnd", "rfftnd", "irfftnd", "stft"),
        *("inverse_stft", "complex", "dtypes.complex"),
    )
)
_FIELDS = {("top_k", "values"): 0, ("top_k", "indices"): 1}
_TRAINING = "training"
_LEVELS_OF_A_LINE = 20  # above that a value is a step of its own


class Function(Protocol):
    """What a Lambda layer computed; see `keras_mp.compat.code_objects`."""

    @property
    def parameters(self) -> tuple[str, ...]: ...
    @property
    def defaults(self) -> Mapping[str, object]: ...
    @property
    def closure(self) -> Mapping[str, object]: ...
    @property
    def steps(self) -> tuple[tuple[str, ast.expr], ...]: ...
    @property
    def result(self) -> ast.expr: ...
    @property
    def assumed(self) -> Container[str]: ...


@dataclass(frozen=True, slots=True)
class Program:
    """What a layer computes: steps, and the result."""

    steps: list[Expression]
    result: Expression


@dataclass(frozen=True, slots=True)
class _Name:
    """A name that is no value yet: "tf.math", "np"."""

    text: str


@dataclass(slots=True)
class _Walk:
    known: dict[str, object]
    given: Expression
    steps: list[Expression] = field(default_factory=list)

    def value(self, node: ast.expr) -> Expression:
        """Returns the expression of a node.

        Raises:
            NotConverted: It has none.
        """
        found = self._any(node)
        if isinstance(found, _Name):
            short = _dtype(found.text)
            if short is None:
                raise NotConverted(f"needs {found.text!r}, {_kind_of_name(found.text)}")
            return short
        return found

    def _any(self, node: ast.expr) -> Expression | _Name:
        match node:
            case ast.Constant(value):
                return _constant(value)
            case ast.Name(name):
                return self._name(name)
            case ast.Attribute(of, name):
                return self._attribute(self._any(of), name)
            case ast.Tuple(items) | ast.List(items):
                return self._items(items)
            case ast.Subscript(of, key):
                return self._subscript(self.value(of), key)
            case ast.UnaryOp(sign, of):
                return _unary(sign, self.value(of))
            case ast.BinOp(left, sign, right):
                return self._binary(sign, self.value(left), self.value(right))
            case ast.Compare(left, signs, others):
                return self._compare(left, signs, others)
            case ast.IfExp(test, then, otherwise):
                return self._if(test, then, otherwise)
            case ast.BoolOp(sign, values):
                return self._bool(sign, values)
            case ast.Call(function, arguments, keywords):
                return self._call(function, arguments, keywords)
        raise NotConverted(f"has `{_text(node)}`")

    def _items(self, items: Sequence[ast.expr]) -> Expression:
        """Returns a list of what is given, where `*of` gives all that is in it."""
        parts: list[Expression] = []
        joined: Expression = None
        for item in items:
            if not isinstance(item, ast.Starred):
                parts.append(self.value(item))
                continue
            of = self.value(item.value)
            if isinstance(of, list):
                parts += of
                continue
            before = parts if joined is None else _with(joined, parts)
            more = operation("as_list", of)
            joined, parts = more if before == [] else operation("join_lists", before, more), []
        return parts if joined is None else _with(joined, parts)

    def _name(self, name: str) -> Expression | _Name:
        if name in self.known:
            return self.known[name]
        return _Name(name)

    def _attribute(self, of: Expression | _Name, name: str) -> Expression | _Name:
        if isinstance(of, _Name):
            text = f"{of.text}.{name}"
            if text in _NUMBERS:
                return _NUMBERS[text]
            if name == "newaxis":
                return None
            if name in ("BILINEAR", "NEAREST_NEIGHBOR", "BICUBIC", "AREA", "LANCZOS3", "LANCZOS5"):
                return name.lower().removesuffix("_neighbor")
            return _Name(text)
        kind = of.get("operation") if isinstance(of, Mapping) else None
        if (str(kind), name) in _FIELDS:
            return operation("item", of, _FIELDS[str(kind), name])
        if kind in _SHAPES:
            if name in ("ndims", "rank"):
                return operation("length", of)
        elif kind == "item" and name == "value":  # of a Dimension, in TF 1
            return of
        elif name == "shape":
            return operation("static_shape", of)
        elif name == "dtype":
            return operation("dtype", of)
        elif name == "ndim":
            return operation("rank", of)
        elif name == "T":
            return operation("transpose", of)
        raise NotConverted(f"has `.{name}` of {expressions.as_source(of)}")

    def _subscript(self, of: Expression, key: ast.expr) -> Expression:
        found = self._key(key)
        if isinstance(found, str):
            raise NotConverted(f"takes [{found!r}] of a dict")
        if isinstance(of, list):
            if isinstance(found, int):
                if not -len(of) <= found < len(of):
                    raise NotConverted(f"takes number {found} of {len(of)}")
                return of[found]
            if isinstance(found, Mapping) and expressions.is_literal(
                list(found.get("slice", [{}]))
            ):
                return of[slice(*found["slice"])]
            raise NotConverted(f"takes {expressions.as_source(found)} of a list")
        kind = self._kind(of)
        if kind in _LISTS | _SHAPES or (kind == "shape" and not isinstance(found, Mapping)):
            return operation("item", of, found)
        return operation("get_item", of, found)

    def _kind(self, of: Expression) -> object:
        """Returns the operation whose result it is."""
        if isinstance(of, Mapping) and "step" in of:
            of = self.steps[int(str(of["step"]))]
        if not isinstance(of, Mapping) or "operation" not in of:
            return None
        if of["operation"] == "item":
            arguments = of["arguments"]
            assert isinstance(arguments, Mapping)
            key = arguments["key"]
            is_part = isinstance(key, Mapping)  # a slice of a list is a list
            return self._kind(arguments["value"]) if is_part else None
        return of["operation"]

    def _key(self, key: ast.expr) -> Expression:
        match key:
            case ast.Slice(lower, upper, step):
                parts = (None if one is None else self.value(one) for one in (lower, upper, step))
                return {"slice": list(parts)}
            case ast.Tuple(items):
                return [self._key(item) for item in items]
        return self.value(key)

    def _compare(
        self, left: ast.expr, signs: Sequence[ast.cmpop], others: Sequence[ast.expr]
    ) -> Expression:
        match left, signs:
            case ast.Call(ast.Name("type"), [of], []), [sign] if type(sign) in _SAME_TYPE:
                return self._is_of_type(of, others[0]) is _SAME_TYPE[type(sign)]
        values = [self.value(node) for node in (left, *others)]
        found: list[Expression] = []
        for i, sign in enumerate(signs):
            a, b = values[i], values[i + 1]
            if isinstance(sign, ast.Is | ast.IsNot):
                is_same = _is_none(a, b)
                no = isinstance(sign, ast.IsNot)
                if isinstance(is_same, bool):
                    found.append(is_same is not no)
                else:
                    found.append(operation("logical_not", is_same) if no else is_same)
            elif isinstance(sign, ast.In | ast.NotIn):
                if not isinstance(b, list):
                    raise NotConverted("has `in` of no list")
                same: Expression = False
                for one in b:
                    same = _either(same, _folded("equal", a, one))
                found.append(_folded_not(same) if isinstance(sign, ast.NotIn) else same)
            else:
                found.append(_folded(_COMPARE[type(sign)], a, b))
        result = found[0]
        for other in found[1:]:
            result = operation("logical_and", result, other)
        return result

    def _is_of_type(self, of: ast.expr, types: ast.expr) -> bool:
        names = types.elts if isinstance(types, ast.Tuple | ast.List) else [types]
        return python_types.is_one_of(
            self.value(of), map(ast.unparse, names), given=self.given, steps=self.steps
        )

    def _if(self, test: ast.expr, then: ast.expr, otherwise: ast.expr) -> Expression:
        condition = self.value(test)
        if expressions.is_literal(condition):
            return self.value(then if condition else otherwise)
        return operation("if_else", condition, self.value(then), self.value(otherwise))

    def _bool(self, sign: ast.boolop, values: Sequence[ast.expr]) -> Expression:
        is_and = isinstance(sign, ast.And)
        result = self.value(values[0])
        for node in values[1:]:
            if expressions.is_literal(result):
                if bool(result) is is_and:
                    result = self.value(node)
                continue
            other = self.value(node)
            a, b = (other, result) if is_and else (result, other)
            result = operation("if_else", result, a, b)
        return result

    def _call(
        self, function: ast.expr, given: Sequence[ast.expr], keywords: Sequence[ast.keyword]
    ) -> Expression:
        match function, given, keywords:
            case ast.Name("isinstance"), [value, types], []:
                return self._is_of_type(value, types)
        if isinstance(function, ast.Attribute):
            of = self._any(function.value)
            if not isinstance(of, _Name):
                return self._method(of, function.attr, given)
        named = self._any(function)
        if not isinstance(named, _Name):
            shown = expressions.as_source(named)
            more = ", a function of the old program, of which the file holds only the name"
            raise NotConverted(f"calls {shown}{more if isinstance(named, str) else ''}")
        arguments = self._items(given)
        if not isinstance(arguments, list) or any(k.arg is None for k in keywords):
            raise NotConverted("calls with * or **")
        options = {str(one.arg): self.value(one.value) for one in keywords}
        if named.text in _IS_TENSOR and len(arguments) == 1 and not options:
            return python_types.is_tensor(arguments[0], given=self.given, steps=self.steps)
        return result_of_call(named.text, arguments, options)

    def _method(self, of: Expression, name: str, given: Sequence[ast.expr]) -> Expression:
        kind = self._kind(of)
        if name in ("get_shape", "shape") and not given:
            return operation("static_shape", of)
        if name == "as_list" and kind in _SHAPES:
            return of
        if name in ("num_elements",) and kind in _SHAPES:
            return operation("prod", of)
        raise NotConverted(f"calls `.{name}()` of {expressions.as_source(of)}")

    def _binary(self, sign: ast.operator, a: Expression, b: Expression) -> Expression:
        if type(sign) not in _BINARY:
            raise NotConverted(f"has the operator {type(sign).__name__}")
        if isinstance(sign, ast.Add) and self._is_list(a) and self._is_list(b):
            both = isinstance(a, list) and isinstance(b, list)
            return [*a, *b] if both else operation("join_lists", a, b)  # type: ignore[misc]
        if isinstance(sign, ast.Mult):
            for items, times in ((a, b), (b, a)):
                if isinstance(items, list) and isinstance(times, int) and times >= 0:
                    size = sum(1 for _ in expressions.walk(items))
                    if times * size > expressions.MOST_NODES:
                        raise NotConverted(f"makes a list of {times} times {len(items)}")
                    return items * times
        name = _BINARY[type(sign)]
        if name.startswith("bitwise_") and (_is_bool(a) or _is_bool(b)):
            name = name.replace("bitwise", "logical")
        return operation(name, a, b)

    def _is_list(self, value: Expression) -> bool:
        """Returns whether a value was a list or a tuple, and no tensor."""
        if isinstance(value, Mapping) and "step" in value:
            value = self.steps[int(str(value["step"]))]
        if not isinstance(value, Mapping):
            return isinstance(value, list)
        if value.get("operation") == "item":
            arguments = value["arguments"]
            assert isinstance(arguments, Mapping)
            return isinstance(arguments["key"], Mapping) and self._is_list(arguments["value"])
        if value.get("operation") == "if_else":
            arguments = value["arguments"]
            assert isinstance(arguments, Mapping)
            return self._is_list(arguments["then"]) or self._is_list(arguments["otherwise"])
        return value.get("operation") in _SHAPES


def _with(items: Expression, more: list[Expression]) -> Expression:
    return operation("join_lists", items, more) if more else items


def _kind_of_name(text: str) -> str:
    root = text.partition(".")[0]
    if root in ROOTS or root in ("np", "numpy", "math"):
        return "which is no number"
    return "a global variable of the old program, which the file does not hold"


def _text(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 80 else f"{text[:76]}..."


def _constant(value: object) -> Expression:
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, tuple | frozenset):
        return [_constant(item) for item in value]
    if isinstance(value, bool | int | float | str | None):
        return value
    raise NotConverted(f"has a constant of type {type(value).__name__}")


def _dtype(text: str) -> str | None:
    root, _, name = text.rpartition(".")
    if name in DTYPES and root in ("tf", "tensorflow", "np", "numpy", "tf.dtypes", "dtypes"):
        return _OTHER_DTYPES.get(name, name)
    return None


def _is_none(a: Expression, b: Expression) -> Expression:
    if a is None or b is None:
        other = b if a is None else a
        if other is None:
            return True
        if isinstance(other, Mapping) and other.get("operation") == "item":
            return operation("is_none", other)  # a size, which may not be known
        return False
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    raise NotConverted("has `is` of something else than None")


def _folded(name: str, a: Expression, b: Expression) -> Expression:
    """Compares what is plain here and now: it decides which code there is."""
    if expressions.is_literal(a) and expressions.is_literal(b) and name in ("equal", "not_equal"):
        return (a == b) is (name == "equal")
    return operation(name, a, b)


def _folded_not(value: Expression) -> Expression:
    return not value if isinstance(value, bool) else operation("logical_not", value)


def _either(a: Expression, b: Expression) -> Expression:
    if a is True or b is True:
        return True
    if a is False:
        return b
    return a if b is False else operation("logical_or", a, b)


def _unary(sign: ast.unaryop, value: Expression) -> Expression:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(sign, ast.USub):
            return -value
        if isinstance(sign, ast.UAdd):
            return value
    match sign:
        case ast.USub():
            return operation("negative", value)
        case ast.UAdd():
            return value
        case ast.Not() if expressions.is_literal(value):
            return not value
        case ast.Invert() if not _is_bool(value):
            return operation("bitwise_invert", value)
    return operation("logical_not", value)


def _is_bool(value: Expression) -> bool:
    """Returns whether a result is sure to be true or false."""
    return isinstance(value, Mapping) and value.get("operation") in _BOOL


def result_of_call(
    name: str, arguments: Sequence[Expression], options: Mapping[str, Expression]
) -> Expression:
    """Returns what a call of a function computes, by its name in a program.

    Raises:
        NotConverted: There is no such function here.

    >>> expressions.as_source(result_of_call("K.mean", [{"tensor": 0}], {"axis": 1}))
    'ops.mean(x, axis=1)'
    """
    root, _, rest = name.partition(".")
    if not rest:
        return _builtin(name, arguments, options)
    if root in ("np", "numpy", "math"):
        return _plain(name, rest, arguments, options)
    if root not in ROOTS:
        raise NotConverted(f"calls {name}, which is not known")
    return of_tensorflow(ROOTS[root] + rest, arguments, options)


def of_tensorflow(
    name: str, arguments: Sequence[Expression], options: Mapping[str, Expression]
) -> Expression:
    """Returns what a public function of TensorFlow computes.

    Args:
        name: As below `tf.`: "math.reduce_mean".
        arguments: The positional ones.
        options: The others.

    Raises:
        NotConverted: It has no counterpart, or these arguments have none.
    """
    found = tables.of_functions()
    line = found.get(name)
    for prefix in ("compat.v1.", "compat.v2.", "python.", "_api.v2."):
        if line is None and name.startswith(prefix):
            line = found.get(name.removeprefix(prefix))
    if line is None and name.removeprefix("signal.").removeprefix("spectral.") in _COMPLEX:
        raise NotConverted(f"calls tf.{name}, which has complex numbers")
    if line is None:
        raise NotConverted(f"calls tf.{name}, which has no counterpart here")
    try:
        return tables.result_of_call(line, arguments, options)
    except NotConverted as error:
        raise NotConverted(f"calls tf.{name}, which {error}") from None
    except TypeError as error:
        raise NotConverted(f"calls tf.{name}: {error}") from None


def _builtin(
    name: str, arguments: Sequence[Expression], options: Mapping[str, Expression]
) -> Expression:
    if options:
        raise NotConverted(f"calls {name} with {', '.join(options)}")
    if name in ("tuple", "list") and len(arguments) == 1:
        only = arguments[0]
        return only if isinstance(only, list) else operation("as_list", only)
    if name == "len" and len(arguments) == 1:
        only = arguments[0]
        return len(only) if isinstance(only, list) else operation("length", only)
    if name in ("int", "float") and len(arguments) == 1:
        return operation(name, arguments[0])
    if name in ("abs", "round") and len(arguments) == 1:
        return operation({"abs": "absolute"}.get(name, name), arguments[0])
    if name == "pow" and len(arguments) == 2:
        return operation("power", *arguments)
    if name in ("max", "min") and len(arguments) == 2:
        return operation(f"{name}imum", *arguments)
    if name == "sum" and len(arguments) == 1 and isinstance(arguments[0], list):
        return operation("add_n", arguments[0])
    if name == "slice" and 1 <= len(arguments) <= 3:
        parts = [None, *arguments] if len(arguments) == 1 else list(arguments)
        return {"slice": [*parts, None, None][:3]}
    if name == "preprocess_input":
        raise NotConverted(
            "calls preprocess_input, of which each module of keras.applications has its own"
        )
    if name in ROOTS or name in ("np", "numpy", "math"):
        raise NotConverted(f"calls {name}, which is a module")
    raise NotConverted(f"calls {name}, which is not known")


def _plain(
    whole: str, name: str, arguments: Sequence[Expression], options: Mapping[str, Expression]
) -> Expression:
    if name not in _PLAIN or options.keys() - {"axis", "dtype"}:
        raise NotConverted(f"calls {whole}, which has no counterpart here")
    given = dict(options)
    if name in DTYPES:
        given["dtype"] = name
    try:
        return operation(_PLAIN[name], *arguments, **given)
    except TypeError as error:
        raise NotConverted(f"calls {whole}: {error}") from None


def program(function: Function, inputs: Expression, arguments: Mapping[str, object]) -> Program:
    """Returns what a function computes.

    Args:
        function: What was read.
        inputs: What its first argument is: a tensor, or a list of them.
        arguments: `arguments` of the layer.

    Raises:
        NotConverted: Something in it has no counterpart, with the reason.
    """
    first, *others = function.parameters or ("",)
    if not first:
        raise NotConverted("takes no argument")
    known: dict[str, object] = {name: _listed(v) for name, v in function.closure.items()}
    used = [*(one for _, one in function.steps), function.result]
    for name in others:
        if name == "mask" and _uses(name, used):
            raise NotConverted("uses its argument 'mask', and a layer gets none here")
        if name in arguments:
            known[name] = _listed(arguments[name])
            if name in function.assumed and known[name] != _listed(function.defaults[name]):
                raise NotConverted(f"repeats as often as {name!r} says, which is another one here")
        elif name == _TRAINING:
            known[name] = operation("in_training", True, False)
        elif name in function.defaults:
            known[name] = _listed(function.defaults[name])
        elif name == "mask":
            known[name] = None
        else:
            raise NotConverted(f"has no value for its argument {name!r}")
    known[first] = inputs
    walk = _Walk(known, inputs)
    for at, (name, node) in enumerate(function.steps):
        value = walk.value(node)
        later = [one for _, one in function.steps[at + 1 :]] + [function.result]
        apart = _uses(name, later) > 1 or expressions.levels(value) > _LEVELS_OF_A_LINE
        walk.known[name] = _apart(value, walk.steps) if apart else value
    result = walk.value(function.result)
    for one in (*walk.steps, result):
        expressions.checked_expression(one)
    return Program(walk.steps, result)


def _apart(value: Expression, steps: list[Expression]) -> Expression:
    """Returns a value as a step, or as a list of steps: each is computed once."""
    if isinstance(value, list):
        return [_apart(item, steps) for item in value]
    if not expressions.is_operation(value):
        return value
    steps.append(value)
    return {"step": len(steps) - 1}


def _listed(value: object) -> Expression:
    if isinstance(value, tuple | list):
        return [_listed(item) for item in value]
    if isinstance(value, Array):
        return operation("constant", _listed(value.items))
    return _constant(value)


def _uses(name: str, nodes: Sequence[ast.expr]) -> int:
    return sum(
        isinstance(part, ast.Name) and part.id == name for node in nodes for part in ast.walk(node)
    )
