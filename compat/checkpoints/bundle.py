"""Tensor bundles: the `.index` and `.data-00000-of-00001` files of TensorFlow's checkpoints.

Needs no TensorFlow. Files are mapped into memory and a tensor is read when it is asked for, so a
checkpoint of any size costs what is taken from it.

Source: tensorflow/core/util/tensor_bundle/tensor_bundle.cc and core/protobuf/tensor_bundle.proto,
TF 2.3.
"""

import math
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from keras_mp.compat.checkpoints import crc, slices, table, wire
from keras_mp.compat.checkpoints.errors import Malformed, Unreadable
from keras_mp.compat.checkpoints.locating import exists_or_raise
from keras_mp.compat.checkpoints.slices import Slice
from keras_mp.files import regular_files

Array = np.ndarray[Any, np.dtype[Any]]

# tensorflow/core/framework/types.proto
DTYPES: dict[int, str] = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: "string",
    8: "complex64",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
}
# Of a NumPy array, which does not count the sizes that are 0.
_MOST_DIMENSIONS, _MOST_NUMBERS = 32, 1 << 58
_MOST_SHARDS = 1 << 20
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a tensor is.

    Attributes:
        dtype: Its name in NumPy and Keras, or "string".
        shape: Its shape.
        shard: The number of its data file.
        offset: Its first byte there.
        size: Its bytes.
        crc: The masked CRC-32C of these.
        slices: The parts in which it is stored instead, if it was a partitioned variable.
    """

    dtype: str
    shape: tuple[int, ...]
    shard: int = 0
    offset: int = 0
    size: int = 0
    crc: int = 0
    slices: tuple[Slice, ...] = field(default=())


class Bundle(Mapping[str, Array]):
    """The tensors of one checkpoint by their keys, read when asked for.

    Args:
        prefix: The path without `.index`.

    Raises:
        Unreadable: The index is missing, damaged or not one.

    `bundle[key]` gives a NumPy array of the stored shape and dtype; strings come as an object array
    of bytes. It raises KeyError for a key that does not exist, and Unreadable where the data file
    is missing, cut off, or does not match its checksum.
    """

    def __init__(self, prefix: str | Path) -> None:
        self.prefix = str(prefix)
        self._index_file = f"{self.prefix}.index"
        self._files: dict[int, _File] = {}
        self._entries: dict[bytes, memoryview] = {}
        data = _File(self._index_file).data
        try:
            self._entries = dict(table.entries(data))
            self.shards = _shards(self._entries.pop(b"", None))
        except Malformed as error:
            raise Unreadable(self._index_file, "", str(error)) from None
        self._keys = [_name(key) for key in self._entries if not key.startswith(b"\0")]
        if None in self._keys:
            raise Unreadable(self._index_file, "", "holds a key that is not UTF-8")

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and not key.startswith("\0") and key.encode() in self._entries

    def entry(self, key: str) -> Entry:
        """Returns where a tensor is, its dtype and shape, without reading it.

        Raises:
            KeyError: There is no such key.
            Unreadable: The index holds nonsense for it.
        """
        if key not in self:
            raise KeyError(key)
        return self._entry(key.encode(), key)

    def file_of(self, key: str) -> str:
        """Returns the path of the data file that a tensor is in; raises what `entry` does."""
        return self._data_file(self.entry(key))

    def _data_file(self, entry: Entry) -> str:
        return f"{self.prefix}.data-{entry.shard:05d}-of-{self.shards:05d}"

    def _entry(self, stored: bytes, key: str) -> Entry:
        try:
            entry = _parsed(self._entries[stored])
            if entry.shard >= self.shards:
                raise Malformed(f"is in data file {entry.shard} of {self.shards}")
        except Malformed as error:
            raise Unreadable(self._index_file, key, str(error)) from None
        return entry

    def __getitem__(self, key: str) -> Array:
        entry = self.entry(key)
        return self._joined(key, entry) if entry.slices else self._read(key, entry)

    def _joined(self, key: str, entry: Entry) -> Array:
        parts: list[tuple[Slice, Entry]] = []
        left: dict[int, int] = {}
        for part in entry.slices:
            stored = slices.key(key, part)
            if stored not in self._entries:
                raise Unreadable(self._index_file, key, f"its part {part} is missing")
            one = self._entry(stored, f"{key}, part {part}")
            if one.dtype != entry.dtype or one.shape != slices.shape(part, entry.shape):
                why = f"its part {part} is of shape {one.shape} and dtype {one.dtype}"
                raise Unreadable(self._index_file, key, why)
            # Before it takes memory, which a short file may claim, with the same bytes for all.
            file = self._file(key, one)
            left[one.shard] = left.get(one.shard, len(file.data)) - one.size
            if left[one.shard] < 0:
                raise Unreadable(file.path, key, "its parts take more bytes than there are")
            parts.append((part, one))
        if not slices.cover(entry.slices, entry.shape):
            raise Unreadable(self._index_file, key, "its parts do not cover it, each place once")
        whole = np.empty(entry.shape, _numpy(entry.dtype))
        for part, one in parts:
            whole[slices.index(part)] = self._read(key, one)
        return whole

    def _read(self, key: str, entry: Entry) -> Array:
        file = self._file(key, entry)
        try:
            return _decoded(file, entry)
        except Malformed as error:
            raise Unreadable(file.path, key, str(error)) from None

    def _file(self, key: str, entry: Entry) -> "_File":
        if entry.shard not in self._files:
            self._files[entry.shard] = self._opened(self._data_file(entry), key)
        file = self._files[entry.shard]
        try:
            _check_extent(entry, len(file.data))
        except Malformed as error:
            raise Unreadable(file.path, key, str(error)) from None
        return file

    def _opened(self, path: str, key: str) -> "_File":
        if not exists_or_raise(Path(path).exists):
            why = f"there is no such file, which {Path(self._index_file).name} needs"
            raise Unreadable(path, key, why)
        return _File(path, key)


class _File:
    """A file mapped into memory.

    Attributes:
        path: Where.
        data: All of it.
    """

    def __init__(self, path: str, key: str = "") -> None:
        self.path = path
        self._map: mmap.mmap | None = None
        self.data = memoryview(b"")
        try:
            with regular_files.opened(path) as file:
                if size := file.seek(0, 2):
                    self._map = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
                    self.data = memoryview(self._map)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Unreadable(path, key, f"cannot be opened: {reason}") from None

    def pieces(self, start: int, size: int) -> Iterator[tuple[int, bytes]]:
        """Yields (position, bytes) of a part of the file, which then needs no memory any more."""
        for at in range(start, start + size, _PIECE):
            yield at - start, bytes(self.data[at : min(at + _PIECE, start + size)])
            self._forget(at)

    def _forget(self, at: int) -> None:
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):  # not on every system
            page = at - at % mmap.PAGESIZE
            length = min(_PIECE, len(self.data) - page)
            self._map.madvise(mmap.MADV_DONTNEED, page, length)


def _name(key: bytes) -> str | None:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None


def _shards(header: memoryview | None) -> int:
    if header is None:
        raise Malformed("has no header: no checkpoint of TensorFlow 2, nor of 1 with format V2")
    found = wire.single(header, {1: wire.signed, 2: wire.integer})
    if found.get(2, 0) != 0:
        raise Malformed("was written on a big-endian machine, which is not read here")
    shards: int = found.get(1, 0)
    if not 1 <= shards <= _MOST_SHARDS:
        raise Malformed(f"says that there are {shards} data files")
    return shards


def _parsed(message: memoryview) -> Entry:
    numbers = dict.fromkeys((1, 3, 4, 5, 6), 0)
    shape: tuple[int, ...] = ()
    parts = []
    for number, value in wire.fields(message):
        if number in numbers:
            numbers[number] = wire.integer(value)
        elif number == 2:
            shape = _shape(wire.content(value))
        elif number == 7:
            parts.append(slices.from_message(wire.content(value)))
    dtype = DTYPES.get(numbers[1])
    if dtype is None:
        raise Malformed(f"is of dtype {numbers[1]}, which is not read here")
    if parts and dtype == "string":
        raise Malformed("is a partitioned tensor of strings, which is not read here")
    for part in parts:
        slices.check(part, shape)
    if len(set(parts)) < len(parts):
        raise Malformed("names a part of it twice")
    return Entry(dtype, shape, numbers[3], numbers[4], numbers[5], numbers[6], tuple(parts))


def _shape(message: memoryview) -> tuple[int, ...]:
    sizes = []
    for number, value in wire.fields(message):
        if number == 2:
            sizes.append(wire.single(wire.content(value), {1: wire.signed}).get(1, 0))
        elif number == 3 and wire.integer(value):
            raise Malformed("has no known shape")
    numbers = math.prod(size for size in sizes if size)
    if len(sizes) > _MOST_DIMENSIONS or min(sizes, default=0) < 0 or numbers > _MOST_NUMBERS:
        raise Malformed("has an impossible shape")
    return tuple(sizes)


def _check_extent(entry: Entry, there: int) -> None:
    if entry.offset + entry.size > there:
        raise Malformed(f"ends after the file does, which has {there} bytes: cut off")
    if entry.dtype == "string":
        return
    expected = math.prod(entry.shape) * _numpy(entry.dtype).itemsize
    if entry.size != expected:
        raise Malformed(f"has {entry.size} bytes, but its shape {entry.shape} takes {expected}")


def _decoded(file: _File, entry: Entry) -> Array:
    if entry.dtype == "string":
        return _strings(file.data[entry.offset : entry.offset + entry.size], entry)
    result = np.empty(entry.shape, _numpy(entry.dtype))
    filled = result.reshape(-1).view("uint8") if entry.size else np.empty(0, "uint8")
    found = 0
    for at, piece in file.pieces(entry.offset, entry.size):
        found = crc.crc32c(piece, found)
        filled[at : at + len(piece)] = np.frombuffer(piece, "uint8")
    crc.compare(found, entry.crc)
    if entry.dtype == "bool" and entry.size and filled.max() > 1:
        raise Malformed("holds bools that are neither 0 nor 1")
    return result


def _strings(data: memoryview, entry: Entry) -> Array:
    count = math.prod(entry.shape)
    if count > len(data):  # a string takes at least the byte of its length
        raise Malformed(f"has {len(data)} bytes, too few for {count} strings")
    lengths, at = [], 0
    for _ in range(count):
        length, at = wire.varint(data, at)
        lengths.append(length)
    start = at + 4
    if start + sum(lengths) != len(data):
        raise Malformed(f"has {len(data)} bytes, but its strings take {start + sum(lengths)}")
    # As TensorFlow does: over the lengths as numbers of a fixed size, then the rest as it is.
    of_lengths = 0
    for length in lengths:
        code = "<I" if length < 1 << 32 else "<Q"
        of_lengths = crc.crc32c(struct.pack(code, length), of_lengths)
    if struct.unpack("<I", data[at:start])[0] != crc.masked_crc(of_lengths):
        raise Malformed("the checksum of its lengths does not match: damaged")
    if crc.masked_crc(crc.crc32c(data[at:], of_lengths)) != entry.crc:
        raise Malformed("its checksum does not match: damaged")
    values = np.empty(count, object)
    for i, length in enumerate(lengths):
        values[i] = bytes(data[start : start + length])
        start += length
    return values.reshape(entry.shape)


def _numpy(dtype: str) -> np.dtype[Any]:
    if dtype == "bfloat16":
        import ml_dtypes  # of Keras' own requirements; adds the dtype to NumPy

        return np.dtype(ml_dtypes.bfloat16)  # type: ignore[no-any-return]
    return np.dtype(dtype).newbyteorder("<")
