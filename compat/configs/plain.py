"""A checked deep copy of JSON, with which every conversion starts."""

import math
import numbers
from collections.abc import Mapping

from keras_mp.compat.configs.checks import at, describe
from keras_mp.compat.errors import LegacyError

# A model inside a model adds five levels; TensorFlow itself never gets this deep.
DEPTH = 100


def json_copy(value: object, path: str, depth: int = 0, *, finite: bool = True) -> object:
    """Returns a deep copy; tuples become lists, as they do in a file.

    Args:
        value: The value.
        path: Where it is.
        depth: How many levels are above it.
        finite: Whether infinity is refused; masks in models are made of it.

    Raises:
        LegacyError: It is not JSON: another type, a key that is no string, or too deep.

    >>> json_copy({"axis": (1,)}, "$")
    {'axis': [1]}
    >>> json_copy({"axis": {1}}, "$")
    Traceback (most recent call last):
    keras_mp.compat.errors.LegacyError: $.axis is of type set: expected JSON
    """
    if depth > DEPTH:
        raise LegacyError(path, "is nested too deeply", f"no config has {DEPTH} levels")
    match value:
        case Mapping():
            result = {}
            for key, item in value.items():
                if not isinstance(key, str):
                    raise LegacyError(path, f"has a key {key!r:.60}", "expected strings as keys")
                result[key] = json_copy(item, at(path, key), depth + 1, finite=finite)
            return result
        case list() | tuple():
            return [
                json_copy(item, f"{path}[{i}]", depth + 1, finite=finite)
                for i, item in enumerate(value)
            ]
        case None | bool() | str():
            return value
        case numbers.Integral():
            return int(value)
        case float() if math.isfinite(value) or (math.isinf(value) and not finite):
            return float(value)
    raise LegacyError(path, describe(value), "expected JSON")
