"""What the objects and functions of a SavedModel hold beside variables: tables, and operations.

Sources: tensorflow/core/protobuf/saved_object_graph.proto and core/framework/{graph,function,
node_def,attr_value,tensor}.proto, TF 2.15.
"""

import math
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_mp.compat.checkpoints import Unreadable, object_graph, wire
from keras_mp.compat.checkpoints.errors import Malformed
from keras_mp.compat.checkpoints.wire import all_of as _all
from keras_mp.compat.file_formats import saved_models
from keras_mp.compat.file_formats.values import Array

# tensorflow/core/framework/{types,tensor}.proto: dtype -> (NumPy's, the field with its values).
_HALF, _FLOAT, _DOUBLE = 13, 5, 6
_NUMBERS = {1: ("<f4", _FLOAT), 2: ("<f8", _DOUBLE), 3: ("<i4", 7), 9: ("<i8", 10)}
_NUMBERS |= {4: ("u1", 7), 5: ("<i2", 7), 6: ("i1", 7), 17: ("<u2", 7), 10: ("?", 11)}
_NUMBERS |= {19: ("<f2", _HALF), 14: ("bfloat16", _HALF), 22: ("<u4", 16), 23: ("<u8", 17)}
_STRING, _BFLOAT16, _STRINGS, _CONTENT = 7, 14, 8, 4
_MOST = 1 << 26


@dataclass(frozen=True, slots=True)
class Table:
    """A lookup table that is made when a SavedModel is loaded.

    Attributes:
        owner: Path of the object that has it, such as "layer-1" or "layer-1/_lookup_layer".
        keys: What is looked up: strings (bytes in an object array), or numbers.
        values: What is found; None where `keys` are the lines of a file, which are counted.
    """

    owner: str
    keys: Array
    values: Array | None


@dataclass(frozen=True, slots=True)
class _Objects:
    """The graph of objects.

    Attributes:
        children: Of each object: name of the attribute -> number of the object.
        functions: Number of a function -> names of its concrete ones.
        constants: Number of a constant -> its node in the main graph.
        assets: Number of a file -> its place in the list of files.
        captured: Name of a concrete function -> numbers of the objects that it is given.
    """

    children: list[dict[str, int]]
    functions: dict[int, list[str]]
    constants: dict[int, str]
    assets: dict[int, int]
    captured: dict[str, list[int]]


def tables(folder: str | Path) -> list[Table]:
    """Returns the lookup tables; they are made of constants of the main graph, or of an asset.

    Args:
        folder: Of the SavedModel, or its `saved_model.pb`.

    Raises:
        Unreadable: It is damaged, or an asset is a link or leads out of the folder.
    """
    folder = saved_models.folder_of(folder)

    def parse(message: memoryview) -> list[Table]:
        for meta_graph in _all(message, 2):
            objects = _objects(next(_all(meta_graph, 7), memoryview(b"")))
            files = [next(map(wire.text, _all(a, 2)), "") for a in _all(meta_graph, 6)]
            graph = next(_all(meta_graph, 2), memoryview(b""))
            return list(_tables(objects, graph, folder / "assets", files))
        return []

    found: list[Table] = saved_models.parsed_file(folder / saved_models.GRAPH, parse)
    return found


def operations(folder: str | Path) -> set[tuple[str, str]]:
    """Returns (scope, kind) of the operations in all functions of a SavedModel.

    The scope is the name of the operation without its last part; Keras named it after the layer:
    ("model/attention", "Cumsum").

    Raises:
        Unreadable: It is damaged.
    """

    def parse(message: memoryview) -> set[tuple[str, str]]:
        found = set()
        for meta_graph in _all(message, 2):
            for graph in _all(meta_graph, 2):
                for library in _all(graph, 2):
                    for function in _all(library, 1):
                        for node in _all(function, 3):
                            name, kind = _name_and_kind(node)
                            found.add((name.rpartition("/")[0], kind))
        return found

    path = saved_models.folder_of(folder) / saved_models.GRAPH
    result: set[tuple[str, str]] = saved_models.parsed_file(path, parse)
    return result


def _name_and_kind(node: memoryview) -> tuple[str, str]:
    texts = wire.single(node, {1: wire.text, 2: wire.text})
    return texts.get(1, ""), texts.get(2, "")


def _objects(message: memoryview) -> _Objects:
    nodes = list(_all(message, 1))
    found = _Objects([], {}, {}, {}, {})
    for number, node in enumerate(nodes):
        children: dict[str, int] = {}
        for field, value in wire.fields(node):
            if field == 1:
                child, name = object_graph.reference(wire.content(value))
                if not 0 <= child < len(nodes):
                    raise Malformed(f"names the object {child}, of {len(nodes)}")
                children[name] = child
            elif field == 5:
                found.assets[number] = next(_numbers(wire.content(value), 1), 0)
            elif field == 6:
                found.functions[number] = [wire.text(v) for v in _all(wire.content(value), 1)]
            elif field == 9:
                operation = next(_all(wire.content(value), 1), memoryview(b""))
                found.constants[number] = wire.text(operation)
        found.children.append(children)
    for entry in _all(message, 2):
        key = next((wire.text(value) for value in _all(entry, 1)), "")
        found.captured[key] = [n for value in _all(entry, 2) for n in _numbers(value, 2)]
    return found


def _numbers(message: memoryview, field: int) -> Iterator[int]:
    """Yields a repeated number, packed or not."""
    for number, value in wire.fields(message):
        if number == field and isinstance(value, int):
            yield value
        elif number == field:
            at, packed = 0, wire.content(value)
            while at < len(packed):
                one, at = wire.varint(packed, at)
                yield one


def _tables(
    objects: _Objects, graph: memoryview, folder: Path, files: list[str]
) -> Iterator[Table]:
    wanted = list(_initialized(objects))
    needed = {objects.constants[n] for _, given in wanted for n in given if n in objects.constants}
    nodes = {}
    for node in _all(graph, 1) if needed else ():
        name, kind = _name_and_kind(node)
        if kind == "Const" and name in needed:
            nodes[name] = node
    for owner, given in wanted:
        constants = [nodes.get(objects.constants[n]) for n in given if n in objects.constants]
        match constants, [objects.assets[n] for n in given if n in objects.assets]:
            case [memoryview() as keys, memoryview() as values], []:
                yield Table(owner, _constant(keys), _constant(values))
            case [], [asset] if asset < len(files):
                yield Table(owner, _lines(folder, files[asset]), None)


def _lines(folder: Path, name: str) -> Array:
    """Returns the lines of a file in the SavedModel."""
    path = folder / name
    if Path(name).name != name or path.is_symlink() or folder.is_symlink():
        why = "is a link, or leads out of the folder of the SavedModel: copy the file there"
        raise Unreadable(str(path), "", why)
    found: Array = saved_models.parsed_file(
        path, lambda data: np.array(bytes(data).removesuffix(b"\n").split(b"\n"), object)
    )
    return found


def _initialized(objects: _Objects) -> Iterator[tuple[str, list[int]]]:
    """Yields the path of what has a table, and the objects that its initializer is given."""
    parents: dict[int, tuple[int, str]] = {}
    waiting = deque([0] if objects.children else [])
    while waiting:
        number = waiting.popleft()
        for name, child in objects.children[number].items():
            if name == "_initialize" and number:
                for function in objects.functions.get(child, ()):
                    yield _path(parents, parents[number][0]), objects.captured.get(function, [])
            if child and child not in parents:
                parents[child] = number, name
                waiting.append(child)


def _path(parents: dict[int, tuple[int, str]], number: int) -> str:
    names = []
    while number:
        number, name = parents[number]
        names.append(name)
    return "/".join(reversed(names))


def _constant(node: memoryview) -> Array:
    for entry in _all(node, 5):
        if next((wire.text(key) for key in _all(entry, 1)), "") == "value":
            for value in _all(entry, 2):
                for tensor in _all(value, 8):
                    return tensor_of(tensor)
    raise Malformed("holds a constant without a value")


def tensor_of(message: memoryview) -> Array:
    """Returns a TensorProto: strings as bytes in an object array, or numbers.

    The last value stands for those that lack.

    Raises:
        Malformed: It is of a dtype that is not read, or its values do not fit its shape.
    """
    dtype, content = 0, memoryview(b"")
    shape: tuple[int, ...] = ()
    strings: list[object] = []
    for number, value in wire.fields(message):
        if number == 1:
            dtype = wire.integer(value)
        elif number == 2:
            shape = saved_models.shape_of(wire.content(value)) or ()
        elif number == _CONTENT:
            content = wire.content(value)
        elif number == _STRINGS:
            strings.append(bytes(wire.content(value)))
    size = math.prod(shape)
    if any(one < 0 for one in shape) or size > _MOST:
        raise Malformed(f"holds a constant of the shape {shape}")
    if dtype == _STRING:
        return _filled(np.array(strings, object), shape)
    if dtype not in _NUMBERS:
        raise Malformed(f"holds a constant of the dtype {dtype}")
    kind, field = _numpy(dtype), _NUMBERS[dtype][1]
    if content:
        fits = len(content) == size * kind.itemsize
        if not fits:
            raise Malformed(f"holds {len(content)} bytes for a constant of the shape {shape}")
        return np.frombuffer(bytes(content), kind).reshape(shape)
    return _filled(_values(message, kind, field), shape)


def _numpy(dtype: int) -> np.dtype[Any]:
    if dtype == _BFLOAT16:
        import ml_dtypes  # of Keras' own requirements; adds the dtype to NumPy

        return np.dtype(ml_dtypes.bfloat16)  # type: ignore[no-any-return]
    return np.dtype(_NUMBERS[dtype][0])


def _values(message: memoryview, kind: np.dtype[Any], field: int) -> Array:
    if field == _HALF:  # the bits of each, as a number
        return np.array(list(_numbers(message, field)), "<u2").view(kind)
    if field in (_FLOAT, _DOUBLE):
        return np.array(list(_floats(message, kind, field)), kind)
    bits = 8 * kind.itemsize
    low = [number & ((1 << bits) - 1) for number in _numbers(message, field)]
    if kind.kind == "i":
        low = [one - (1 << bits) if one >> (bits - 1) else one for one in low]
    return np.array(low, kind)


def _floats(message: memoryview, kind: np.dtype[Any], field: int) -> Iterator[float]:
    code = "I" if kind.itemsize == 4 else "Q"
    for number, value in wire.fields(message):
        if number != field:
            continue
        data = struct.pack(f"<{code}", value) if isinstance(value, int) else bytes(value)
        if len(data) % kind.itemsize:
            raise Malformed("ends within a number")
        yield from np.frombuffer(data, kind).tolist()


def _filled(array: Array, shape: tuple[int, ...]) -> Array:
    size = math.prod(shape)
    if not size:
        return array[:0].reshape(shape)
    if not array.size and array.dtype != object:  # as TensorFlow writes zeros, to save room
        return np.zeros(shape, array.dtype)
    if not 0 < array.size <= size:
        raise Malformed(f"holds {array.size} values for a constant of the shape {shape}")
    return np.concatenate([array, np.repeat(array[-1:], size - array.size)]).reshape(shape)
