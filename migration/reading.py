"""Reads one JSON file, and says in one line why not."""

import json
import os
import sys

from keras_mp.files import regular_files

STDIN = "-"
MAX_BYTES = 64 * 2**20
YAML = (".yaml", ".yml")
_MOST_PARTS = 2_000_000


class Unreadable(Exception):
    """A file is not there, or not JSON; its text says so."""


def read_json(path: str) -> object:
    """Returns the JSON value in the file `path`, or from stdin for "-".

    A file called .yaml or .yml is read as YAML. JSON that was encoded twice is decoded twice.

    Raises:
        Unreadable: It cannot be read, is larger than 64 MiB, is not UTF-8 or is not JSON.
    """
    from keras_mp.compat.configs.checks import is_deep  # late, as the help needs none of it

    try:
        text = _read_bytes(path).decode("utf-8-sig")
        if path.endswith(YAML):
            value = _of_yaml(text)
        else:
            value = json.loads(text, object_pairs_hook=_object)
            if isinstance(value, str):  # json.dumps(model.to_json())
                value = json.loads(value, object_pairs_hook=_object)
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise Unreadable(
            f"not UTF-8: byte {error.start} is {error.object[error.start]:#04x}"
        ) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Unreadable(f"not JSON: {where}: {error.msg}") from None
    except RecursionError:
        raise Unreadable("nested too deeply") from None
    except ValueError as error:
        # A null byte in the path, a number of thousands of digits.
        raise Unreadable(str(error)) from None
    if is_deep(value):
        raise Unreadable("nested too deeply")
    return value


def _read_bytes(path: str) -> bytes:
    if path == STDIN:
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        with regular_files.opened(path) as file:
            if os.fstat(file.fileno()).st_size > MAX_BYTES:
                raise Unreadable("larger than 64 MiB")
            data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise Unreadable("larger than 64 MiB")
    return data


def _of_yaml(text: str) -> object:
    """Returns what `model.to_yaml()` of Keras up to TF 2.5 wrote; tuples as lists."""
    try:
        import yaml
    except ImportError:
        raise Unreadable("YAML needs PyYAML: pip install 'keras-mp[yaml]'") from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Of plain values, and of the tuples that Keras had written with a tag of Python."""

    Loader.add_constructor(
        "tag:yaml.org,2002:python/tuple",
        lambda loader, node: loader.construct_sequence(node, deep=True),
    )
    try:
        value: object = yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise Unreadable(f"not YAML: {' '.join(str(error).split())[:200]}") from None
    if _expands_beyond(_MOST_PARTS, value):
        raise Unreadable(f"its aliases expand to more than {_MOST_PARTS:,} values")
    return value


def _expands_beyond(limit: int, value: object) -> bool:
    """Returns whether a value, whose parts may be shared, has more than `limit` if written out."""
    waiting, count = [value], 0
    while waiting and count <= limit:
        part = waiting.pop()
        if isinstance(part, dict | list):
            waiting += part.values() if isinstance(part, dict) else part
        count += 1
    return count > limit


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Unreadable(f"duplicate key {json.dumps(twice)}")
    return result
