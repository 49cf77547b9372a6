"""Reads what TensorFlow computed for functions and ops: see record.py."""

import base64
import functools
import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
FILES = {
    "functions": ("functions.json.xz", "functions_tf115.json.xz"),
    "ops": ("ops.json.xz", "ops_tf215.json.xz"),
}


@dataclass(frozen=True)
class Case:
    """A call, and what came of it.

    Attributes:
        names: The functions, or ops, of which all did the same.
        arguments: Expressions; tensors are those of `inputs`.
        options: Expressions by name; of an op all attributes of its node.
        inputs: Arrays.
        result: An array, a list of these, or {"is": a value that is no tensor}.
    """

    names: tuple[str, ...]
    arguments: list[Any]
    options: dict[str, Any]
    inputs: list[Any]
    result: Any

    def __str__(self) -> str:
        shapes = [f"{one.dtype}{list(one.shape)}" for one in self.inputs]
        return f"{self.names[0]}{self.arguments}{self.options} of {shapes}"


def _array(entry: Any) -> Any:
    name, shape, data = entry
    raw = base64.b64decode(data)
    if name == "bfloat16":
        wide = np.frombuffer(raw, "<u2").astype("uint32") << 16
        return wide.view("float32").reshape(shape)
    return np.frombuffer(raw, np.dtype(name).newbyteorder("<")).astype(name).reshape(shape)


@functools.cache
def cases(kind: str) -> list[Case]:
    """Returns what was recorded of "functions", or of "ops"."""
    found = []
    for path in FILES[kind]:
        with lzma.open(FOLDER / path, "rt", encoding="ascii") as file:
            content = json.load(file)
        arrays = [_array(entry) for entry in content["arrays"]]

        def result(value: Any, arrays: Any = arrays) -> Any:
            if isinstance(value, list):
                return [result(item) for item in value]
            return value if isinstance(value, dict) else arrays[value]

        for names, arguments, options, inputs, value, *_ in content["cases"]:
            given = [arrays[number] for number in inputs]
            found.append(Case(tuple(names), arguments, options, given, result(value)))
    return found
