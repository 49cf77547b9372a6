"""Our JSON files: each states its format and version, and is checked when read."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from keras_mp.files import regular_files
from keras_mp.files.atomic_writing import write_atomically


def json_values(value: object) -> Any:
    """Returns a value for JSON: infinities and nan become the text "inf", "-inf" or "nan".

    Dataclasses become objects.

    >>> json_values({"scale": float("inf"), "steps": (1, 2)})
    {'scale': 'inf', 'steps': [1, 2]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    return value


def file_in(path: str | Path, name: str) -> Path:
    """Returns `path` if it is a .json file, else the file `name` in that folder."""
    file = Path(path)
    return file if file.suffix == ".json" and not file.is_dir() else file / name


def write(path: Path, form: str, version: int, value: Mapping[str, Any]) -> None:
    """Writes a file, whole or not at all; creates its folder.

    Args:
        path: The file.
        form: Its "format".
        version: Its "version".
        value: The other entries.

    Raises:
        TypeError: `value` contains something that JSON cannot represent.
        OSError: It cannot be written; an existing file is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = json_values({"format": form, "version": version, **value})
    write_atomically(path, json.dumps(whole, indent=1, allow_nan=False, default=_plain) + "\n")


def _plain(value: Any) -> object:
    # Numbers and arrays of NumPy.
    if hasattr(value, "tolist"):
        return json_values(value.tolist())
    raise TypeError(
        f"{value!r} of type {type(value).__name__} cannot be written as JSON: pass numbers, "
        "strings, lists and dicts."
    )


def read(path: Path, form: str, version: int, writer: str) -> dict[str, Any]:
    """Returns the content of a file.

    Args:
        path: The file.
        form: The "format" that it must have.
        version: The latest supported "version".
        writer: What writes such files, for the message.

    Raises:
        ValueError: The file has another format, or a later version; says what to do.
        OSError: It cannot be read.
    """
    try:
        content = json.loads(regular_files.read_bytes(path), parse_int=_number)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is not valid JSON ({error}): pass a file that {writer} wrote, or copy it "
            "again if it is damaged."
        ) from None
    if not isinstance(content, dict):
        raise bad_value(path, "the file", content, "an object")
    if content.get("format") != form:
        wanted = f'"{form}", as in a file that {writer} wrote'
        raise bad_value(path, "format", content.get("format"), wanted)
    known = content.get("version")
    if not isinstance(known, int) or not 1 <= known <= version:
        wanted = f"at most {version}; a later keras_mp wrote this file: read it with that version"
        raise bad_value(path, "version", known, wanted)
    return content


def check_rows(
    name: object, found: Mapping[str, Any], key: str, checks: dict[str, Callable[[object], bool]]
) -> None:
    """Checks the list of objects under a key.

    Args:
        name: Name of the file, for the message.
        found: Content of the file.
        key: Key of the list.
        checks: Predicates for the values of each object, by key.

    Raises:
        ValueError: A check fails; says where, and what was found.
    """
    rows = found.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise bad_value(name, key, rows, "a list of objects")
    for i, row in enumerate(rows):
        for inner, is_right in checks.items():
            if not is_right(row.get(inner)):
                raise bad_value(name, f"{key}[{i}].{inner}", row.get(inner), _WANTED[is_right])


def is_text(value: object) -> bool:
    """Returns whether a value is a string."""
    return isinstance(value, str)


def is_whole(value: object) -> bool:
    """Returns whether a value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_whole_or_null(value: object) -> bool:
    """Returns whether a value is a whole number, or null."""
    return value is None or is_whole(value)


_WANTED: dict[Callable[[object], bool], str] = {
    is_text: "a string",
    is_whole: "a whole number",
    is_whole_or_null: "a whole number, or null",
}


def bad_value(name: object, where: str, value: object, wanted: str) -> ValueError:
    """Returns the error for an unexpected value.

    >>> print(bad_value("run.json", "steps", "x", "a whole number"))
    run.json: steps is "x": expected a whole number
    """
    return ValueError(f"{name}: {where} is {short_json(value)}: expected {wanted}")


def short_json(value: object) -> str:
    """Returns a value as JSON, cut after 60 characters; what JSON lacks as Python shows it."""
    text = json.dumps(value, default=repr)
    return text if len(text) < 60 else f"{text[:60]}..."


def _number(text: str) -> int | float:
    # Pictures calculate in floats, which end at 309 digits.
    return int(text) if len(text) < 300 else float(text)
