"""The sorted string table of LevelDB: the format of a checkpoint's `.index` file.

Source: tensorflow/core/lib/io/table*.cc, format.cc, block.cc (TF 2.3), which are LevelDB's.
"""

import struct
from collections.abc import Iterator

from keras_mp.compat.checkpoints import crc
from keras_mp.compat.checkpoints.errors import Malformed
from keras_mp.compat.checkpoints.wire import varint

MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5  # type of compression, checksum
# A key is stored as what differs from the one before, so a small file can name huge ones.
_LONGEST_KEY = 1 << 16
_KEYS_PER_BYTE = 64

Handle = tuple[int, int]


def has_magic(data: memoryview) -> bool:
    """Returns whether the file ends like a table."""
    return len(data) >= _FOOTER and struct.unpack("<Q", data[-8:])[0] == MAGIC


def entries(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yields (key, value) in the order of keys; checksums are verified.

    Args:
        data: The whole file.

    Raises:
        Malformed: It is no table, damaged, or compressed.
    """
    if len(data) < _FOOTER:
        raise Malformed(f"has {len(data)} bytes, too few for an index: empty or cut off")
    if not has_magic(data):
        raise Malformed("does not end like an index: cut off, or another kind of file")
    footer = data[-_FOOTER:]
    _, at = _handle(footer, 0)  # of the meta index, which TensorFlow leaves empty
    index, _ = _handle(footer, at)
    allowed, unread = _KEYS_PER_BYTE * len(data), len(data)
    before = None
    for _, handle in _block_entries(_block(data, index)):
        block, _ = _handle(handle, 0)
        unread -= block[1] + _TRAILER
        if unread < 0:
            raise Malformed("it names a block more than once")
        for key, value in _block_entries(_block(data, block)):
            allowed -= len(key)
            if allowed < 0:
                raise Malformed("its keys take more bytes than a file of its size can")
            if before is not None and key <= before:
                raise Malformed("its keys are not in order")
            before = key
            yield key, value


def _handle(data: memoryview, at: int) -> tuple[Handle, int]:
    offset, at = varint(data, at)
    size, at = varint(data, at)
    return (offset, size), at


def _block(data: memoryview, handle: Handle) -> memoryview:
    offset, size = handle
    if offset + size + _TRAILER > len(data) - _FOOTER:
        raise Malformed(f"the block at {offset} ends after the file does")
    block, trailer = data[offset : offset + size], data[offset + size : offset + size + _TRAILER]
    (stored,) = struct.unpack("<I", trailer[1:])
    try:
        crc.check(data[offset : offset + size + 1], stored)
    except Malformed as error:
        raise Malformed(f"the block at {offset}: {error}") from None
    if trailer[0] == 1:
        raise Malformed(
            f"the block at {offset} is compressed with snappy, which TensorFlow never does for "
            "checkpoints and which is not read here"
        )
    if trailer[0] != 0:
        raise Malformed(f"the block at {offset} is compressed by the unknown method {trailer[0]}")
    return block


def _block_entries(block: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    if len(block) < 4:
        raise Malformed("a block is too short")
    (restarts,) = struct.unpack("<I", block[-4:])
    end = len(block) - 4 - 4 * restarts
    if end < 0:
        raise Malformed("a block is too short for its restarts")
    content, at, key = block[:end], 0, b""
    while at < end:
        shared, at = varint(content, at)
        own, at = varint(content, at)
        size, at = varint(content, at)
        if shared > len(key):
            raise Malformed("a key shares more than the one before it has")
        if own + size > end - at:
            raise Malformed("a block ends within an entry")
        if shared + own > _LONGEST_KEY:
            raise Malformed(f"a key has {shared + own} bytes, more than TensorFlow writes")
        key = key[:shared] + bytes(content[at : at + own])
        at += own
        yield key, content[at : at + size]
        at += size
