"""Operations that are exactly a layer of Keras: the same results, and the same dtype.

Knows shapes and dtypes of the inputs, which only a model that was built has.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from keras_mp.compat.operations.expressions import Expression, is_literal


@dataclass(frozen=True, slots=True)
class Spec:
    """A tensor: its shape, with None for what is not known, and its dtype."""

    shape: tuple[int | None, ...]
    dtype: str


Layer = tuple[str, dict[str, object]]  # class and config, without name and dtype

_MERGE = {
    "add": "Add",
    "subtract": "Subtract",
    "multiply": "Multiply",
    "maximum": "Maximum",
    "minimum": "Minimum",
}
_ACTIVATIONS = frozenset(("sigmoid", "tanh", "softplus", "softsign", "elu", "selu", "exp"))


def layer_of(operation: Mapping[str, object], inputs: Sequence[Spec]) -> Layer | None:
    """Returns the layer of Keras that an operation is; None where there is none.

    Args:
        operation: As in `expressions`.
        inputs: What it is called with.

    >>> relu = {"operation": "relu6", "arguments": {"x": {"tensor": 0}}}
    >>> layer_of(relu, [Spec((None, 3), "float32")])
    ('ReLU', {'max_value': 6.0})
    """
    name, given = operation["operation"], operation["arguments"]
    assert isinstance(given, Mapping)
    if not all(one.dtype == inputs[0].dtype for one in inputs) or "float" not in inputs[0].dtype:
        return None
    of = _BY_NAME.get(str(name))
    return None if of is None else of(str(name), given, inputs)


def _is_input(value: Expression, number: int = 0) -> bool:
    return isinstance(value, Mapping) and value.get("tensor") == number


def _merged(name: str, given: Mapping[str, object], inputs: Sequence[Spec]) -> Layer | None:
    a, b = given["x1"], given["x2"]
    if len(inputs) == 2 and _is_input(a, 0) and _is_input(b, 1):
        # Where ranks or sizes differ, Keras repeats other axes than TensorFlow. Scalars it refuses.
        fits = inputs[0].shape == inputs[1].shape != ()
        return (_MERGE[name], {}) if fits else None
    if name != "multiply":
        return None
    for x, factor in ((a, b), (b, a)):
        if _is_input(x) and isinstance(factor, int | float) and not isinstance(factor, bool):
            return "Rescaling", {"scale": float(factor), "offset": 0.0}
    return None


def _divided(name: str, given: Mapping[str, object], inputs: Sequence[Spec]) -> Layer | None:
    by = given["x2"]
    if not _is_input(given["x1"]) or not isinstance(by, int | float) or isinstance(by, bool):
        return None
    # A product with the inverse, which is exact for powers of two only.
    exact = by != 0 and math.frexp(by)[0] in (0.5, -0.5)
    return ("Rescaling", {"scale": 1.0 / by, "offset": 0.0}) if exact else None


def _relu(name: str, given: Mapping[str, object], inputs: Sequence[Spec]) -> Layer | None:
    if not _is_input(given["x"]):
        return None
    if name == "relu6":
        return "ReLU", {"max_value": 6.0}
    options = {key: value for key, value in given.items() if key != "x"}
    return None if options else ("ReLU", {})


def _activation(name: str, given: Mapping[str, object], inputs: Sequence[Spec]) -> Layer | None:
    if not _is_input(given["x"]) or given.keys() != {"x"}:
        return None
    return "Activation", {"activation": {"exp": "exponential"}.get(name, name)}


def _softmax(name: str, given: Mapping[str, object], inputs: Sequence[Spec]) -> Layer | None:
    axis = given.get("axis", -1)
    plain = _is_input(given["x"]) and isinstance(axis, int)
    return ("Softmax", {"axis": axis}) if plain else None


def _reshape(name: str, given: Mapping[str, object], inputs: Sequence[Spec]) -> Layer | None:
    shape, size = given["newshape"], inputs[0].shape[1:]
    if not _is_input(given["x"]) or not isinstance(shape, list) or not is_literal(shape):
        return None
    if len(shape) < 1 or shape[0] != -1 or None in size or len(inputs[0].shape) < 1:
        return None
    inner = shape[1:]
    whole = all(isinstance(one, int) and one > 0 for one in inner)
    same = whole and math.prod(inner) == math.prod(one for one in size if one is not None)
    return ("Reshape", {"target_shape": inner}) if same and inner else None


def _concatenate(name: str, given: Mapping[str, object], inputs: Sequence[Spec]) -> Layer | None:
    parts, axis = given["xs"], given["axis"]
    if not isinstance(parts, list) or not isinstance(axis, int) or len(parts) < 2:
        return None
    in_order = len(parts) == len(inputs) and all(_is_input(p, i) for i, p in enumerate(parts))
    ranks = {len(one.shape) for one in inputs}
    if not in_order or len(ranks) != 1 or axis % next(iter(ranks)) == 0:
        return None
    return "Concatenate", {"axis": axis}


def _mean(name: str, given: Mapping[str, object], inputs: Sequence[Spec]) -> Layer | None:
    rank, axis = len(inputs[0].shape), given.get("axis")
    if not _is_input(given["x"]) or rank not in (3, 4, 5) or inputs[0].dtype != "float32":
        return None
    axes = axis if isinstance(axis, list) else [axis]
    if sorted(map(str, axes)) != [str(i) for i in range(1, rank - 1)]:
        return None
    options = {"data_format": "channels_last", "keepdims": bool(given.get("keepdims", False))}
    return f"GlobalAveragePooling{rank - 2}D", options


_BY_NAME: dict[str, Callable[[str, Mapping[str, object], Sequence[Spec]], Layer | None]] = {
    **dict.fromkeys(_MERGE, _merged),
    **dict.fromkeys(_ACTIVATIONS, _activation),
    "divide": _divided,
    "relu": _relu,
    "relu6": _relu,
    "softmax": _softmax,
    "reshape": _reshape,
    "concatenate": _concatenate,
    "mean": _mean,
}
