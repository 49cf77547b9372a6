"""What Keras wrote of a function in the config of a `Lambda` layer.

| written by | `config["function"]` |
| --- | --- |
| Keras 1, 2.0 and 2.1 | `[text, defaults, closure]`, the bytes as text of `raw_unicode_escape` |
| Keras 2.2, TF 1.15 to 2.15 | `[text, defaults, closure]`, the bytes in base64 |
| Keras 3 | `{"class_name": "__lambda__", "config": {"code": text, "defaults": ..., ...}}` |
| both, in an argument of another layer | the same with `"config": {"value": [text, ...]}` |

Source: keras 2.0.8, 2.2.4 and 2.15, utils/generic_utils.py, func_dump; keras 3.15,
layers/core/lambda_layer.py and saving/serialization_lib.py.
"""

import base64
import binascii
from contextlib import suppress
from typing import Any

from keras_mp.compat.code_objects.errors import CodeError
from keras_mp.compat.code_objects.expressions import Array
from keras_mp.compat.code_objects.marshalled import LONGEST
from keras_mp.compat.code_objects.reading import Function, read_function, shortened

_LONGEST_TEXT = 6 * LONGEST  # raw_unicode_escape writes up to six characters for one
_DEEPEST = 20
_BEGINS = (b"c", b"\xe3")  # of a marshalled code object


def from_config(
    field: object, python: tuple[int, int] | None = None, module: object = None
) -> Function:
    """Returns the function that Keras wrote into a config. Nothing is run.

    Args:
        field: `config["function"]` of a `Lambda` layer, whose `function_type` is "lambda".
        python: The version that wrote it, as in `read_function`.
        module: `config["module"]`, which is needed for functions of TensorFlow itself.

    Raises:
        CodeError: It is of another form, or cannot be read; or it uses a variable of the function
            around it whose value is not in the file.

    >>> code = (
    ...     "4wEAAAAAAAAAAQAAAAIAAABTAAAAcwgAAAB8AGQBGwBTACkCTun/AAAAqQApAdoBeHICAAAAcgIA"
    ...     "AAD6C2dlbmVyYXRlLnB52gg8bGFtYmRhPkcAAADzAAAAAA=="
    ... )
    >>> function = from_config([code, None, None])
    >>> function.parameters, function.source()
    (('x',), 'x / 255')
    """
    text, defaults, closure = _parts(field)
    function = read_function(code_bytes(text), defaults, closure, python=python, module=module)
    if function.unknown:
        raise CodeError(
            f"uses {', '.join(function.unknown)}, of the function around it, whose value the file "
            "does not have as a number, text, or a list of these",
            shortened(function.source()),
        )
    return function


def code_bytes(text: str) -> bytes:
    """Returns the bytes that Keras wrote as text: base64, or escapes before that.

    Raises:
        CodeError: It is neither, or more than is read.
    """
    if len(text) > _LONGEST_TEXT:
        raise CodeError(f"has {len(text)} characters of code, more than are read")
    with suppress(UnicodeEncodeError, binascii.Error):
        return base64.b64decode("".join(text.split()).encode("ascii"), validate=True)
    data = text.encode("raw_unicode_escape")
    if data[:1] not in _BEGINS:
        raise CodeError("is no base64, in which Keras wrote byte code")
    return data


def _parts(field: object) -> tuple[str, list[object] | None, list[object] | None]:
    if isinstance(field, dict):
        inner = field.get("config")
        if field.get("class_name") != "__lambda__" or not isinstance(inner, dict):
            raise CodeError("is an object that is no function")
        parts = inner.get("value", [inner.get(key) for key in ("code", "defaults", "closure")])
    else:
        parts = field
    parts = _value(parts)
    if not isinstance(parts, list | tuple) or len(parts) != 3 or not isinstance(parts[0], str):
        raise CodeError("is not a list of code, defaults and closure")
    text, defaults, closure = parts
    for what, values in (("defaults that are", defaults), ("a closure that is", closure)):
        if not isinstance(values, list | tuple | None):
            raise CodeError(f"has {what} no list")
    return text, defaults, closure


def _of_config(value: dict[str, object], key: str) -> Any:
    config = value.get("config")
    return config.get(key) if isinstance(config, dict) else None


def _is_numbers(items: object, depth: int = 0) -> bool:
    if isinstance(items, list):
        return depth < _DEEPEST and all(_is_numbers(one, depth + 1) for one in items)
    return isinstance(items, int | float)


def _value(value: object, depth: int = 0) -> object:
    """Returns a value of JSON with the tuples that Keras marks; others are lists."""
    if depth > _DEEPEST:
        return value
    if isinstance(value, dict) and value.get("class_name") == "__tuple__":
        items = value.get("items", _of_config(value, "value"))
        return tuple(_value(one, depth + 1) for one in items) if isinstance(items, list) else value
    if isinstance(value, dict) and value.get("class_name") in ("__numpy__", "__tensor__"):
        items, dtype = _of_config(value, "value"), _of_config(value, "dtype")
        is_array = isinstance(items, list) and isinstance(dtype, str)
        return Array(items, dtype) if is_array and _is_numbers(items) else value
    if isinstance(value, list | tuple):
        return type(value)(_value(one, depth + 1) for one in value)
    return value
