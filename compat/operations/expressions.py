"""Expressions: what an `Operation` layer computes, as plain JSON.

| JSON                                          | what it is                                    |
| --------------------------------------------- | --------------------------------------------- |
| number, text, true, false, null               | itself                                        |
| list                                          | a list of expressions                         |
| `{"operation": name, "arguments": {...}}`     | an operation of `vocabulary`                  |
| `{"tensor": 0}`                               | an input of the layer, by number              |
| `{"step": 0}`                                 | the result of an earlier step of the layer    |
| `{"slice": [start, stop, step]}`              | as in x[start:stop:step]                      |
| `{"ellipsis": true}`                          | as in x[..., 0]                               |
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from keras_mp.compat.operations.vocabulary import REQUIRED, STATIC, STAYS_STATIC, signatures

Expression = object
Json = dict[str, object]

# Of one expression; written by hand they have tens, and a few.
MOST_NODES = 20_000
MOST_LEVELS = 100


def tensor(number: int) -> Json:
    """Returns the input of a layer."""
    return {"tensor": number}


def operation(name: str, *positional: Expression, **named: Expression) -> Json:
    """Returns an operation of the vocabulary, without the arguments that have their defaults.

    Raises:
        TypeError: It has no such argument, or one is missing.

    >>> operation("sum", {"tensor": 0}, keepdims=True)["arguments"]
    {'x': {'tensor': 0}, 'keepdims': True}
    """
    known = signatures()[name].arguments
    if len(positional) > len(known):
        raise TypeError(f"{name} takes {len(known)} arguments, not {len(positional)}")
    given = dict(zip(known, positional, strict=False))
    for key, value in named.items():
        if key in given or key not in known:
            raise TypeError(f"{name} has no argument {key!r}, or has it twice")
        given[key] = value
    for key, default in known.items():
        if key not in given and default is REQUIRED:
            raise TypeError(f"{name} needs {key!r}")
    arguments = {
        key: given[key]
        for key, default in known.items()
        if key in given and (default is REQUIRED or not _same(given[key], default))
    }
    return {"operation": name, "arguments": arguments}


def _same(value: object, default: object) -> bool:
    return type(value) is type(default) and value == default


def is_operation(value: Expression) -> bool:
    """Returns whether an expression is an operation."""
    return isinstance(value, Mapping) and "operation" in value


def is_literal(value: Expression) -> bool:
    """Returns whether an expression is plain data."""
    return not any(isinstance(part, Mapping) for part in walk(value))


def inside(value: Expression) -> list[Expression]:
    """Returns the expressions of which one is made."""
    if isinstance(value, list):
        return value
    if isinstance(value, Mapping):
        if "operation" in value:
            arguments = value["arguments"]
            assert isinstance(arguments, Mapping)
            return list(arguments.values())
        if "slice" in value:
            parts = value["slice"]
            assert isinstance(parts, list)
            return parts
    return []


def walk(value: Expression) -> Iterator[Expression]:
    """Yields an expression and all inside."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += reversed(inside(part))


def map_parts(value: Expression, change: Callable[[Json], Expression | None]) -> Expression:
    """Returns an expression with other parts where `change` returns one, and not None."""
    if isinstance(value, list):
        return [map_parts(item, change) for item in value]
    if not isinstance(value, Mapping):
        return value
    other = change(dict(value))
    if other is not None:
        return other
    if "operation" in value:
        arguments = value["arguments"]
        assert isinstance(arguments, Mapping)
        done = {key: map_parts(item, change) for key, item in arguments.items()}
        return {"operation": value["operation"], "arguments": done}
    if "slice" in value:
        return {"slice": map_parts(value["slice"], change)}
    return value


def tensors(value: Expression) -> list[int]:
    """Returns the numbers of the inputs that an expression uses, in their order."""
    parts = [part for part in walk(value) if isinstance(part, Mapping)]
    found = {part["tensor"] for part in parts if "tensor" in part}
    return sorted(number for number in found if isinstance(number, int))


def is_static(value: Expression, steps: tuple[bool, ...] = ()) -> bool:
    """Returns whether a result is known when a model is called: shapes, and what is made of them.

    Args:
        value: The expression.
        steps: Whether each earlier step is so.
    """
    if isinstance(value, Mapping):
        if "tensor" in value:
            return False
        if "step" in value:
            number = value["step"]
            return isinstance(number, int) and number < len(steps) and steps[number]
        if "operation" in value:
            name = value["operation"]
            if name in ("shape", "static_shape", "rank", "size", "dtype"):
                return True
            return name in STAYS_STATIC and all(is_static(part, steps) for part in inside(value))
    return all(is_static(part, steps) for part in inside(value))


_Operators = Mapping[str, tuple[str, int]]
_OPERATORS = {
    "add": ("+", 12),
    "subtract": ("-", 12),
    "multiply": ("*", 13),
    "divide": ("/", 13),
    "floor_divide": ("//", 13),
    "mod": ("%", 13),
    "power": ("**", 15),
    "equal": ("==", 6),
    "not_equal": ("!=", 6),
    "greater": (">", 6),
    "greater_equal": (">=", 6),
    "less": ("<", 6),
    "less_equal": ("<=", 6),
}
# Of a symbolic tensor == asks whether it is the same object.
_OF_SYMBOLS = {key: one for key, one in _OPERATORS.items() if key not in ("equal", "not_equal")}
_ATOM, _UNARY = 20, 14


def as_source(
    value: Expression, names: Callable[[int], str] | None = None, *, runs: bool = False
) -> str:
    """Returns an expression as a line of Python, for people.

    Args:
        value: The expression.
        names: What the inputs are called; "x", and "x[1]" of several, if None.
        runs: Whether it has to run on symbolic tensors, of which == says nothing.

    >>> as_source(operation("divide", {"tensor": 0}, 255))
    'x / 255'
    >>> as_source(operation("mean", {"tensor": 0}, axis=1))
    'ops.mean(x, axis=1)'
    """
    if names is None:
        several = len(tensors(value)) > 1 or any(tensors(value))
        names = _of_several if several else (lambda _: "x")
    return _shown(value, names, _OF_SYMBOLS if runs else _OPERATORS)[0]


def shown_program(
    steps: Iterable[Expression],
    result: Expression,
    names: Callable[[int], str] | None = None,
) -> str:
    """Returns steps and a result as a line of Python.

    >>> shown_program([operation("exp", {"tensor": 0})], operation("add", {"step": 0}, 1))
    'step_0 = ops.exp(x); step_0 + 1'
    """
    parts = list(steps)
    if names is None and any(any(tensors(part)) for part in (*parts, result)):
        names = _of_several
    texts = [f"step_{i} = {as_source(step, names)}" for i, step in enumerate(parts)]
    return "; ".join([*texts, as_source(result, names)])


def _of_several(number: int) -> str:
    return f"x[{number}]"


def _shown(
    value: Expression, names: Callable[[int], str], operators: _Operators
) -> tuple[str, int]:
    """Returns the text, and how tightly it binds."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")', _ATOM
    if isinstance(value, list):
        return f"[{', '.join(_shown(item, names, operators)[0] for item in value)}]", _ATOM
    if not isinstance(value, Mapping):
        text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
        return text, _UNARY if isinstance(value, int | float) and value < 0 else _ATOM
    if "tensor" in value:
        number = value["tensor"]
        assert isinstance(number, int)
        return names(number), _ATOM
    if "step" in value:
        return f"step_{value['step']}", _ATOM
    if "ellipsis" in value:
        return "...", _ATOM
    if "slice" in value:
        return _slice(inside(value), names, operators), _ATOM
    name, arguments = str(value["operation"]), value["arguments"]
    assert isinstance(arguments, Mapping)
    if name in operators:
        sign, strength = operators[name]
        left, right = (_shown(arguments[key], names, operators) for key in ("x1", "x2"))
        # "a - (b - c)", and "(a < b) < c", which Python would chain.
        a = left[0] if left[1] > strength - (strength != 6 and sign != "**") else f"({left[0]})"
        b = right[0] if right[1] > strength else f"({right[0]})"
        return f"{a} {sign} {b}", strength
    if name == "negative":
        text, strength = _shown(arguments["x"], names, operators)
        return (f"-{text}" if strength >= _UNARY else f"-({text})"), _UNARY
    if name in ("get_item", "item"):
        of = arguments["x" if name == "get_item" else "value"]
        text, strength = _shown(of, names, operators)
        key = arguments["key"]
        parts = key if isinstance(key, list) and name == "get_item" else [key]
        inner = ", ".join(_shown(part, names, operators)[0] for part in parts) or "()"
        return f"{text if strength == _ATOM else f'({text})'}[{inner}]", _ATOM
    required = {k for k, default in signatures()[name].arguments.items() if default is REQUIRED}
    texts: list[str] = []
    in_order = True
    for key in signatures()[name].arguments:
        if key not in arguments:
            in_order = False
            continue
        text = _shown(arguments[key], names, operators)[0]
        bare = not texts or key == "x2" or not is_literal(arguments[key])
        plain = in_order and key in required and bare
        in_order = plain
        texts.append(text if plain else f"{key}={text}")
    return f"ops.{name}({', '.join(texts)})", _ATOM


def _slice(parts: list[Expression], names: Callable[[int], str], operators: _Operators) -> str:
    texts = ["" if part is None else _shown(part, names, operators)[0] for part in parts]
    return ":".join(texts[:2] if parts[2] is None else texts)


def checked_expression(value: object) -> Expression:
    """Returns an expression of a file, if it is one.

    Raises:
        ValueError: It is none, with the reason.

    >>> checked_expression({"operation": "sqare", "arguments": {}})
    Traceback (most recent call last):
    ValueError: there is no operation 'sqare'
    """
    if levels(value) > MOST_LEVELS:
        raise ValueError(f"an expression of more than {MOST_LEVELS} levels")
    for count, part in enumerate(walk_any(value)):
        if count > MOST_NODES:
            raise ValueError(f"an expression of more than {MOST_NODES} parts")
        if not isinstance(part, Mapping):
            if not isinstance(part, list | str | int | float | bool | None):
                raise ValueError(f"an expression has no {type(part).__name__}")
            continue
        keys = set(part)
        if keys == {"operation", "arguments"}:
            name, arguments = part["operation"], part["arguments"]
            if name not in signatures():
                raise ValueError(f"there is no operation {name!r}")
            if not isinstance(arguments, Mapping):
                raise ValueError(f"the arguments of {name} are no object")
            try:
                operation(str(name), **arguments)
            except TypeError as error:
                raise ValueError(str(error)) from None
        elif len(keys) != 1 or not keys <= {"tensor", "step", "slice", "ellipsis"}:
            raise ValueError(f"no part of an expression: {json.dumps(sorted(map(str, keys)))}")
        elif keys & {"tensor", "step"}:
            number = next(iter(part.values()))
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise ValueError(f"{next(iter(keys))} {number!r} is no number of one")
        elif "slice" in part and not (isinstance(part["slice"], list) and len(part["slice"]) == 3):
            raise ValueError("a slice has a start, a stop and a step")
    return value


def walk_any(value: object) -> Iterator[object]:
    """Yields a JSON value and all inside, whatever it is."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += _inside_any(part)


def levels(value: object) -> int:
    """Returns how deep a JSON value goes; 1 of a number."""
    deep, parts = 0, [value]
    while parts and deep <= MOST_LEVELS:
        deep += 1
        parts = [inner for part in parts for inner in _inside_any(part)]
    return deep


def _inside_any(part: object) -> list[object]:
    if isinstance(part, list):
        return part
    if isinstance(part, Mapping):
        of = part.get("arguments", part)
        return list(of.values()) if isinstance(of, Mapping) else []
    return []


__all__ = [
    "MOST_LEVELS",
    "MOST_NODES",
    "STATIC",
    "Expression",
    "as_source",
    "checked_expression",
    "inside",
    "is_literal",
    "is_operation",
    "is_static",
    "levels",
    "map_parts",
    "operation",
    "shown_program",
    "tensor",
    "tensors",
    "walk",
]
