"""How errors name a place in JSON and the value at it."""

import json
import re
from collections.abc import Mapping


def at(path: str, key: object) -> str:
    """Returns the path of a member.

    >>> at("$.config", "name"), at("$", "a b"), at("$", 0)
    ('$.config.name', '$["a b"]', '$[0]')
    """
    plain = isinstance(key, str) and re.fullmatch(r"\w{1,60}", key, re.ASCII)
    return f"{path}.{key}" if plain else f"{path}[{_shown(key)}]"


def describe(value: object) -> str:
    """Returns what an error says is there, on one short line.

    >>> describe(None), describe({"a": 1}), describe("x" * 99)
    ('is null', 'is an object', 'is "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...')
    """
    return f"is {_shown(value)}"


def _shown(value: object) -> str:
    match value:
        case Mapping():
            return "an object"
        case list() | tuple():
            return "a list"
        case int() if abs(value) > 10**60:
            return "a huge number"
        case str() | bool() | None | int() | float():
            text = json.dumps(value)
            return text if len(text) <= 60 else f"{text[:56]}..."
    return f"of type {type(value).__name__}"
