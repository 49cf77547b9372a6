"""Reads the configs and inputs of a Keras model from a SavedModel, without TensorFlow.

Its variables are a checkpoint, which `checkpoints.py` restores. Sources:
tensorflow/core/protobuf/{saved_model,meta_graph,saved_object_graph}.proto and Keras'
protobuf/saved_metadata.proto, TF 2.6.
"""

import math
import mmap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_mp.compat.checkpoints import Unreadable, wire
from keras_mp.compat.checkpoints.errors import Malformed
from keras_mp.compat.checkpoints.wire import all_of as _all
from keras_mp.files import regular_files

GRAPH, METADATA = "saved_model.pb", "keras_metadata.pb"
EXPORTED = Path("assets", "saved_model.json")  # of experimental.export_saved_model, TF 1.13 to 1.15
NO_KERAS = (
    "holds no Keras model, only graphs: tf.saved_model.save wrote it from a tf.Module. Build the "
    "model in code, then call keras_mp.compat.restore with this folder; "
    "from_graph=True runs the graph in the file without its classes"
)
# tensorflow/core/framework/types.proto
_DTYPES = {1: "float32", 2: "float64", 3: "int32", 7: "string", 9: "int64", 10: "bool"}
_DTYPES |= {14: "bfloat16", 19: "float16"}
_MOST_ELEMENTS = 1 << 24


@dataclass(frozen=True, slots=True)
class SavedModel:
    """What a SavedModel says of its Keras model.

    Attributes:
        version: Of TensorFlow; None where it does not say.
        metadata: What Keras wrote for the root object, as JSON text.
        where: The file that this text is in.
        inputs: Name -> (shape, dtype) of the arguments of its default signature.
        variables: The index of the checkpoint that holds its variables.
    """

    version: str | None
    metadata: bytes
    where: str
    inputs: dict[str, tuple[tuple[int, ...] | None, str]]
    variables: str


def read_saved_model(folder: str | Path) -> SavedModel:
    """Returns what a SavedModel says.

    Args:
        folder: The folder, or its `saved_model.pb`.

    Raises:
        Unreadable: It is damaged, or holds no Keras model.
    """
    folder = folder_of(folder)
    graph, extra = folder / GRAPH, folder / METADATA
    version, metadata, inputs = parsed_file(graph, _graph)
    where = graph
    if extra.exists():
        metadata = parsed_file(extra, _root) or metadata
        where = extra
    exported = folder / EXPORTED
    if not metadata and exported.is_file():
        metadata = parsed_file(exported, lambda message: b'{"model_config": %b}' % bytes(message))
        where = exported
    if not metadata:
        raise Unreadable(str(folder), "", NO_KERAS)
    return SavedModel(version, metadata, str(where), inputs, variables_of(folder))


def folder_of(path: str | Path) -> Path:
    """Returns the folder of a SavedModel from that, or from its `saved_model.pb`."""
    return Path(path).parent if Path(path).name == GRAPH else Path(path)


def variables_of(path: str | Path) -> str:
    """Returns the index of the checkpoint in a SavedModel, whatever else is in its folder."""
    return str(folder_of(path) / "variables" / "variables.index")


def folder_of_variables(prefix: str) -> Path | None:
    """Returns the folder of the SavedModel whose variables a checkpoint is; None if it is of none.

    >>> folder_of_variables("runs/ckpt-1") is None
    True
    """
    inside = Path(prefix)
    folder = inside.parent.parent
    named = inside.parts[-2:] == ("variables", "variables")
    return folder if named and (folder / GRAPH).is_file() else None


def parsed_file(path: Path, parse: Callable[[memoryview], Any]) -> Any:
    """Returns what a function makes of the bytes of a file.

    Raises:
        Unreadable: It cannot be opened, is empty, or the function finds it malformed.
    """
    try:
        with regular_files.opened(path) as file:
            if not file.seek(0, 2):
                raise Unreadable(str(path), "", "is empty")
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return parse(view)
    except Malformed as error:
        raise Unreadable(str(path), "", str(error)) from None
    except OSError as error:
        raise Unreadable(str(path), "", f"cannot be opened: {error.strerror}") from None


def _graph(message: memoryview) -> tuple[str | None, bytes, dict[str, Any]]:
    version, metadata, inputs = None, b"", {}
    for meta_graph in _all(message, 2):
        for info in _all(meta_graph, 1):
            version = next((wire.text(value) for value in _all(info, 5)), version)
        for entry in _all(meta_graph, 5):
            name = next((wire.text(key) for key in _all(entry, 1)), "")
            if name == "serving_default":
                inputs = {k: v for value in _all(entry, 2) for k, v in _inputs(value)}
        for objects in _all(meta_graph, 7):
            root = next(_all(objects, 1), None)
            for user_object in _all(root, 4) if root is not None else ():
                if next((wire.text(n) for n in _all(user_object, 1)), "").startswith("_tf_keras_"):
                    metadata = bytes(next(_all(user_object, 3), b""))
        break
    return version, metadata, inputs


def _inputs(signature: memoryview) -> Iterator[tuple[str, Any]]:
    for entry in _all(signature, 1):
        name = next((wire.text(key) for key in _all(entry, 1)), "")
        for tensor in _all(entry, 2):
            numbers = [wire.integer(value) for n, value in wire.fields(tensor) if n == 2]
            shape = next((shape_of(value) for value in _all(tensor, 3)), None)
            yield name, (shape, _DTYPES.get(numbers[-1] if numbers else 0, "unknown"))


def shape_of(message: memoryview) -> tuple[int, ...] | None:
    """Returns the shape in a TensorShapeProto; None where even its rank is not known."""
    sizes = []
    for number, value in wire.fields(message):
        if number == 3 and value:
            return None
        if number == 2:
            size = [wire.signed(v) for n, v in wire.fields(wire.content(value)) if n == 1]
            sizes.append(size[-1] if size else 0)
    return tuple(sizes)


def _root(message: memoryview) -> bytes:
    for node in _all(message, 1):
        path = next((wire.text(value) for value in _all(node, 3)), "")
        if path == "root":
            return bytes(next(_all(node, 5), b""))
    return b""


def plain(value: Any) -> Any:
    """Returns JSON without the tuples and shapes that Keras wrote as objects.

    >>> plain({"shape": {"class_name": "__tuple__", "items": [None, 3]}})
    {'shape': [None, 3]}
    """
    if isinstance(value, Mapping):
        if value.get("class_name") in ("__tuple__", "TensorShape") and "items" in value:
            return plain(value["items"])
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def arguments(
    metadata: Mapping[str, Any], inputs: Mapping[str, tuple[tuple[int, ...] | None, str]]
) -> tuple[Any, ...] | None:
    """Returns arrays of zeros to call a model with that has no config; None if nothing tells.

    Args:
        metadata: Of the root, after `plain`.
        inputs: Of the signature.

    >>> [array.shape for array in arguments({}, {"input_1": ((-1, 5), "float32")})]
    [(1, 5)]
    """
    for key in ("save_spec", "build_input_shape"):
        found = _zeros(metadata[key]) if metadata.get(key) is not None else None
        if found is not None:
            return (found,)
    if len(inputs) == 1:
        shape, dtype = next(iter(inputs.values()))
        array = None if shape is None else _array(shape, dtype)
        return None if array is None else (array,)
    return None


def _zeros(spec: Any) -> Any:
    if isinstance(spec, Mapping):
        if "type_spec" in spec:
            match spec.get("serialized"):
                case [list(shape), str(dtype), *_]:
                    return _array(shape, dtype)
            return None
        found = {key: _zeros(item) for key, item in spec.items()}
        return found if found and all(v is not None for v in found.values()) else None
    if isinstance(spec, list):
        if all(size is None or isinstance(size, int) for size in spec):
            return _array(spec, "float32")
        items = [_zeros(item) for item in spec]
        return None if any(item is None for item in items) else items
    return None


def _array(shape: Any, dtype: str) -> Any:
    sizes = [1 if size is None or size == -1 else size for size in shape]
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        return None
    if math.prod(sizes) > _MOST_ELEMENTS or dtype in ("string", "unknown"):
        return None
    # float32 stands in for float16, too: each layer casts its inputs itself.
    kind = dtype if dtype in ("int32", "int64", "bool") else "float32"
    return np.zeros(sizes, kind)
