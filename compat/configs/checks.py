"""Checks of JSON values, each an error by path: what the tables of `configs/` are made of.

A check takes a value and where it is, and returns it as plain JSON or raises LegacyError.
"""

import math
import numbers
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

from keras_mp.compat.errors import LegacyError
from keras_mp.files.json_paths import at as at, describe as describe
from keras_mp.float_formats import FLOAT32

INT32_MAX = 2**31 - 1

Check = Callable[[object, str], object]


def anything(value: object, path: str) -> object:
    """Returns what it is given: something else looks at it."""
    return value


def number(value: object, path: str) -> float:
    """Returns a finite float.

    >>> number(1, "$.rate")
    1.0
    >>> number(True, "$.rate")
    Traceback (most recent call last):
    keras_mp.compat.errors.LegacyError: $.rate is true: expected a number
    """
    return float(int_or_float(value, path))


def int_or_float(value: object, path: str) -> int | float:
    """Returns a finite number; a whole one stays whole."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise LegacyError(path, describe(value), "expected a number")
    try:
        as_float = float(value)
    except OverflowError:
        as_float = math.inf
    if not math.isfinite(as_float):
        raise LegacyError(path, describe(value), "expected a finite number")
    return int(value) if isinstance(value, numbers.Integral) else as_float


def number_list(value: object, path: str) -> list[int | float]:
    """Returns a list of finite numbers."""
    if not isinstance(value, list | tuple):
        raise LegacyError(path, describe(value), "expected a list of numbers")
    return [int_or_float(item, f"{path}[{i}]") for i, item in enumerate(value)]


def steps(value: object, path: str) -> int:
    """Returns a count of one or more, such as of steps, that an int32 can reach."""
    whole = 0 if isinstance(value, bool) or not isinstance(value, numbers.Integral) else int(value)
    if not 1 <= whole <= INT32_MAX:
        raise LegacyError(path, describe(value), f"expected a whole number from 1 to {INT32_MAX}")
    return whole


def count(value: object, path: str) -> int:
    """Returns a whole number, zero or more."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 0:
        raise LegacyError(path, describe(value), "expected a whole number, zero or more")
    return int(value)


def empty(why: str) -> Check:
    """Returns a check that only null and an empty list pass.

    >>> empty("build it in code")([1], "$.transformers")
    Traceback (most recent call last):
    keras_mp.compat.errors.LegacyError: $.transformers is a list: build it in code
    """

    def check(value: object, path: str) -> None:
        if value is not None and value not in ([], ()):
            raise LegacyError(path, describe(value), why)

    return check


def flag(value: object, path: str) -> bool:
    """Returns true or false; 0 and 1 are neither."""
    if not isinstance(value, bool):
        raise LegacyError(path, describe(value), "expected true or false")
    return value


def truth(value: object, path: str) -> bool:
    """Returns what tf.keras made of a flag, which was any number.

    >>> truth(1, "$.scale"), truth(0.0, "$.scale"), truth(False, "$.scale")
    (True, False, False)
    """
    if not isinstance(value, bool | int | float):
        raise LegacyError(path, describe(value), "expected true or false")
    return bool(value)


def scale(value: object, path: str) -> float:
    """Returns a loss scale: positive, finite and not subnormal in float32."""
    result = number(value, path)
    if not FLOAT32.smallest_normal <= result <= FLOAT32.largest:
        raise LegacyError(path, describe(value), "expected a positive scale that float32 can hold")
    return result


def name(value: object, path: str) -> str:
    """Returns a name that Keras 3 takes."""
    if not isinstance(value, str):
        raise LegacyError(path, describe(value), "expected a name")
    if "/" in value:
        raise LegacyError(path, describe(value), "Keras 3 allows no '/' in a name; rename it")
    return value


def or_none(check: Check) -> Check:
    """Returns `check`, for a value that may also be null."""
    return lambda value, path: None if value is None else check(value, path)


def mapping(value: object, path: str) -> Mapping[str, object]:
    """Returns a JSON object."""
    if not isinstance(value, Mapping):
        raise LegacyError(path, describe(value), "expected an object")
    return value


def entries(
    config: Mapping[str, object], path: str, table: Mapping[str, Check], owner: str
) -> dict[str, object]:
    """Returns `config` with each value checked by `table`; a key that is not in it is refused.

    >>> entries({"rho": 1}, "$", {"rho": number}, "RMSprop")
    {'rho': 1.0}
    >>> entries({"rrho": 1}, "$", {"rho": number}, "RMSprop")
    Traceback (most recent call last):
    keras_mp.compat.errors.LegacyError: $.rrho is not known: no RMSprop of TF 1.15 to 2.15 wrote it
    """
    result = {}
    for key, value in config.items():
        if key not in table:
            why = f"no {owner} of TF 1.15 to 2.15 wrote it"
            raise LegacyError(at(path, key), "is not known", why)
        result[key] = table[key](value, at(path, key))
    return result


def only(config: Mapping[str, object], path: str, known: Container[str], why: str) -> None:
    """Raises for the first key that is none of these."""
    for key in config:
        if key not in known:
            raise LegacyError(at(path, key), "is not known", why)


def require(config: Mapping[str, object], path: str, *keys: str) -> None:
    """Raises for the first of `keys` that `config` does not have."""
    for key in keys:
        if key not in config:
            raise LegacyError(at(path, key), "is missing", "every TF wrote it")


def objects_in(value: object) -> Iterator[Mapping[str, Any]]:
    """Yields the JSON objects in a value, however deep; the last one of a list first.

    >>> [sorted(one) for one in objects_in({"a": [{"b": 1}, {"c": {}}]})]
    [['a'], ['c'], [], ['b']]
    """
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            yield part
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


def is_deep(value: object, most: int = 100) -> bool:
    """Returns whether JSON is nested beyond what any config is, and recursion could not follow it.

    >>> is_deep({"layers": [{}]}), is_deep([[[]]], most=2)
    (False, True)
    """
    level = [value]
    for _ in range(most):
        inside = [v for v in level if isinstance(v, dict | list)]
        level = [i for v in inside for i in (v.values() if isinstance(v, dict) else v)]
        if not level:
            return False
    return True
