"""CRC-32C, masked as TensorFlow and LevelDB store it."""

import importlib
from collections.abc import Callable
from typing import Any, cast

from keras_mp.compat.checkpoints.errors import Malformed

_PIECE = 1 << 20


def crc32c(data: Any, start: int = 0) -> int:
    """Returns the CRC-32C of bytes, or of bytes that follow others whose CRC is `start`.

    Computed by google-crc32c, in C.

    Raises:
        ModuleNotFoundError: google-crc32c is not installed; the text says what to do.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    extend, crc = _extend(), start
    for at in range(0, len(data), _PIECE):
        crc = extend(crc, bytes(data[at : at + _PIECE]))  # it takes nothing but bytes
    return crc


def masked_crc(crc: int) -> int:
    """Returns a CRC as it is stored.

    Source: LevelDB, util/crc32c.h: the CRC of data that holds CRCs would be a weak one.
    """
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def check(data: Any, stored: int) -> None:
    """Raises Malformed unless the masked CRC of `data` is `stored`."""
    compare(crc32c(data), stored)


def compare(crc: int, stored: int) -> None:
    """Raises Malformed unless `crc`, masked, is `stored`."""
    if masked_crc(crc) != stored:
        raise Malformed(
            f"its checksum is {masked_crc(crc):#010x}, but {stored:#010x} is stored: damaged"
        )


def _extend() -> Callable[[int, Any], int]:
    try:
        module = importlib.import_module("google_crc32c")
    except ModuleNotFoundError as error:
        error.add_note("Checkpoints are checked with it: pip install 'keras-mp[migrate]'.")
        raise
    return cast("Callable[[int, Any], int]", module.extend)
