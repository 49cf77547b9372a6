"""Writes checkpoints in TensorFlow's format, for tests without TensorFlow.

Source: tensorflow/core/util/tensor_bundle and core/protobuf/trackable_object_graph.proto, TF 2.3.
"""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import google_crc32c
import numpy as np

DTYPES = {"float32": 1, "float64": 2, "int64": 9, "float16": 19}
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
MAGIC = 0xDB4775248B80FB57
RESTARTS = struct.pack("<II", 0, 1)  # at the end of a block whose keys share nothing


def write_objects(prefix, root):
    """Writes what `tf.train.Checkpoint(**root).write(prefix)` would.

    Args:
        prefix: The path without `.index`.
        root: Name -> array, or a dictionary or list of them; or text, the path of an earlier
            object, which gets this name, too.
    """
    tensors: dict[str, np.ndarray | bytes] = {}
    nodes: list[bytes] = []
    _add(root, "", nodes, tensors, {})
    graph = b"".join(field(1, node) for node in nodes)
    write(prefix, {GRAPH: graph} | tensors)


def write(prefix, tensors: Mapping[str, np.ndarray | bytes], *, parts: int = 1):
    """Writes a checkpoint of names.

    Args:
        prefix: The path without `.index`.
        tensors: Its content by key; bytes are a string.
        parts: The number of shards of each array, along its first dimension.
    """
    from keras_mp.compat.checkpoints import slices

    rows = {b"": HEADER}
    with Path(f"{prefix}.data-00000-of-00001").open("wb") as data:
        for key, value in tensors.items():
            if isinstance(value, bytes):
                rows[key.encode()] = _string(data, value)
            elif parts == 1:
                rows[key.encode()] = _array(data, value)
            else:
                rows[key.encode()] = _head(value) + b"".join(
                    field(7, field(1, start + field(2, value.shape[0] // parts)) + rest)
                    for start, rest in _extents(value, parts)
                )
                for i, part in enumerate(np.split(value, parts)):
                    whole = tuple((0, None) for _ in value.shape[1:])
                    rows[slices.key(key, ((i * len(part), len(part)), *whole))] = _array(data, part)
    Path(f"{prefix}.index").write_bytes(index_file(rows))


def _add(value, path, nodes, tensors, numbers):
    """Adds an object and all objects below it; returns its number."""
    if isinstance(value, str):
        return numbers[value]
    number = numbers[path] = len(nodes)
    nodes.append(b"")
    if isinstance(value, np.ndarray):
        key = f"{path}/.ATTRIBUTES/VARIABLE_VALUE"
        tensors[key] = value
        texts = (b"VARIABLE_VALUE", path.encode(), key.encode())
        row = b"".join(field(i, text) for i, text in enumerate(texts, 1))
        nodes[number] = field(2, row)
        return number
    if isinstance(value, Sequence):
        value = {str(i): item for i, item in enumerate(value)}
    for name, item in value.items():
        child = _add(item, f"{path}/{name}" if path else name, nodes, tensors, numbers)
        nodes[number] += field(1, field(1, child) + field(2, name.encode()))
    return number


def _head(value):
    sizes = b"".join(field(2, field(1, size)) for size in value.shape)
    return field(1, DTYPES[value.dtype.name]) + field(2, sizes)


def _extents(value, parts):
    rest = field(1, b"") * (value.ndim - 1)
    return ((field(1, i * (value.shape[0] // parts)), rest) for i in range(parts))


def _array(data, value):
    value = np.asarray(value, order="C")
    crc = google_crc32c.value(value.tobytes())
    row = _head(value) + field(4, data.tell()) + field(5, value.nbytes) + fixed32(6, masked(crc))
    data.write(value.tobytes())
    return row


def _string(data, value):
    length = google_crc32c.value(struct.pack("<I", len(value)))
    stored = number(len(value)) + struct.pack("<I", masked(length))
    crc = google_crc32c.extend(google_crc32c.extend(length, stored[-4:]), value)
    row = field(1, 7) + field(2, b"") + field(4, data.tell())
    row += field(5, len(stored) + len(value)) + fixed32(6, masked(crc))
    data.write(stored + value)
    return row


def index_file(rows, kind=0):
    """Returns an index with a row for each key."""
    return index_of(block(dict(sorted(rows.items())), kind))


def index_of(first):
    """Returns an index with one block."""
    second = block({b"\xff": number(0) + number(len(first) - 5)})
    footer = number(0) + number(0) + number(len(first)) + number(len(second) - 5)
    return first + second + footer.ljust(40, b"\0") + struct.pack("<Q", MAGIC)


def block(rows, kind=0):
    """Returns an uncompressed block whose keys share no prefix; `kind` claims a compression."""
    content = b""
    for key, row in rows.items():
        content += number(0) + number(len(key)) + number(len(row)) + key + row
    return sealed(content + RESTARTS, kind)


def sealed(content, kind=0):
    """Returns a block with its kind and its checksum."""
    content += bytes([kind])
    return content + struct.pack("<I", masked(google_crc32c.value(content)))


def field(tag, value):
    if isinstance(value, int):
        return number(tag << 3) + number(value)
    return number(tag << 3 | 2) + number(len(value)) + value


def fixed32(tag, value):
    return number(tag << 3 | 5) + struct.pack("<I", value)


def number(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def masked(crc):
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


HEADER = field(1, 1)  # of a checkpoint in one data file
