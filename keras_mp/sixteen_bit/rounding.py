"""Numbers of float32 in 16 bits: two halves that lose nothing, and rounding at random.

Pure functions of tensors. What is random is a function of a seed, a step and a place, the same on
every backend and every device.
"""

import math
from typing import NamedTuple

from keras import ops

from keras_mp import backends
from keras_mp.array_types import Tensor

# A permutation of 32-bit numbers that leaves no visible pattern ("lowbias32" of Chris Wellons'
# "Prospecting for Hash Functions", 2018), with a key added in between.
_FIRST, _SECOND = 0x7FEB352D, 0x846CA68B
_GOLDEN = 0x9E3779B9
_LARGEST = {"bfloat16": 3.3895313892515355e38, "float16": 65504.0}


class Draw(NamedTuple):
    """Says which random numbers: the same ones for the same three numbers.

    `seed`: of the optimizer. `step`: integer tensor of shape (). `stream`: which of the tensors
    that are rounded in the step.
    """

    seed: int
    step: Tensor
    stream: int


def split(master: Tensor) -> tuple[Tensor, Tensor]:
    """Returns float32 numbers as bfloat16, rounded to nearest, and what is left, as int16.

    Of two that are as near it is the one away from zero: to even there would be 2**16 + 1 different
    rests of the even ones, which 16 bits cannot tell apart.

    Args:
        master: float32, any shape.

    Returns:
        (bfloat16, int16), each of that shape. `join` gives `master` back, bit for bit; any nan as
        the usual one.

    >>> upper, rest = split(ops.array([1.00390625, -3.0]))
    >>> [float(each) for each in upper], [int(each) for each in rest]
    ([1.0078125, -3.0], [-32768, 0])
    """
    bitcast = backends.current().bitcast
    bits = bitcast(ops.where(ops.isnan(master), float("nan"), master), "int32")
    upper = ops.right_shift(bits + 0x8000, 16)
    rest = bits - ops.left_shift(upper, 16)
    return bitcast(ops.cast(upper, "int16"), "bfloat16"), ops.cast(rest, "int16")


def join(upper: Tensor, rest: Tensor) -> Tensor:
    """Returns the float32 numbers that `split` made `upper` and `rest` of.

    >>> numbers = ops.array([0.1, -1e-30])
    >>> bool(ops.all(join(*split(numbers)) == numbers))
    True
    """
    bitcast = backends.current().bitcast
    high = ops.left_shift(ops.cast(bitcast(upper, "int16"), "int32"), 16)
    return bitcast(high + ops.cast(rest, "int32"), "float32")


def is_rounded(narrow: Tensor, wide: Tensor) -> Tensor:
    """Returns where `narrow` is `wide` rounded to nearest: bool, of their shape.

    Compared as bits: XLA takes a cast to 16 bits and back for nothing.

    >>> from keras import ops
    >>> bool(is_rounded(ops.cast(0.1, "bfloat16"), ops.array(0.1)))
    True
    """
    bitcast = backends.current().bitcast
    rounded = ops.cast(wide, narrow.dtype)
    return ops.equal(bitcast(rounded, "int16"), bitcast(narrow, "int16"))


def stochastic(wide: Tensor, dtype: str, draw: Draw) -> Tensor:
    """Returns float32 numbers rounded up or down at random, so that the mean is the number.

    What lies beyond the largest number of `dtype` is rounded to nearest; so are inf and nan.

    Args:
        wide: float32, any shape.
        dtype: "bfloat16" or "float16".
        draw: Which random numbers.

    Returns:
        `dtype`, same shape.

    >>> found = stochastic(ops.ones((4096,)) * 1.001, "bfloat16", Draw(0, ops.array(1), 0))
    >>> sorted({float(each) for each in found})
    [1.0, 1.0078125]
    >>> abs(float(ops.mean(ops.cast(found, "float32"))) - 1.001) < 3e-4
    True
    """
    bits = random_bits(wide.shape, draw)
    rounded = _bfloat16(wide, bits) if dtype == "bfloat16" else _float16(wide, bits)
    inside = ops.abs(wide) < _LARGEST[dtype]  # of nan, False
    return ops.where(inside, ops.cast(rounded, dtype), ops.cast(wide, dtype))


def random_bits(shape: tuple[int, ...], draw: Draw) -> Tensor:
    """Returns random int32 numbers of a shape, of which each bit is random.

    >>> bits = random_bits((2, 3), Draw(0, ops.array(7), 0))
    >>> bits.shape == (2, 3)
    True
    """
    step = ops.cast(draw.step, "int32")
    key = _mixed(step * _signed(_GOLDEN) + _signed(_mixed_number(draw.seed)), draw.stream)
    other = _mixed(key, _GOLDEN)
    places = ops.reshape(ops.arange(math.prod(shape), dtype="int32"), shape)
    return _mixed(ops.bitwise_xor(places, key), other)


def _mixed(bits: Tensor, key: Tensor | int) -> Tensor:
    key = _signed(key) if isinstance(key, int) else key
    bits = ops.bitwise_xor(bits, _shifted(bits, 16)) * _signed(_FIRST) + key
    bits = ops.bitwise_xor(bits, _shifted(bits, 15)) * _signed(_SECOND)
    return ops.bitwise_xor(bits, _shifted(bits, 16))


def _mixed_number(number: int) -> int:
    bits = number & 0xFFFFFFFF
    bits = ((bits ^ (bits >> 16)) * _FIRST) & 0xFFFFFFFF
    bits = ((bits ^ (bits >> 15)) * _SECOND) & 0xFFFFFFFF
    return bits ^ (bits >> 16)


def _shifted(bits: Tensor, count: int) -> Tensor:
    return ops.bitwise_and(ops.right_shift(bits, count), (1 << (32 - count)) - 1)


def _signed(number: int) -> int:
    """Returns the number that int32 has for these bits.

    >>> _signed(0xFFFFFFFF)
    -1
    """
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def _bfloat16(wide: Tensor, bits: Tensor) -> Tensor:
    """Cuts the lower half off, after a random number was added to it: float32."""
    bitcast = backends.current().bitcast
    added = bitcast(wide, "int32") + ops.bitwise_and(bits, 0xFFFF)
    return bitcast(ops.bitwise_and(added, _signed(0xFFFF0000)), "float32")


def _float16(wide: Tensor, bits: Tensor) -> Tensor:
    """The same with 13 bits; below 2**-14, where numbers are 2**-24 apart, by the distance."""
    bitcast = backends.current().bitcast
    added = bitcast(wide, "int32") + ops.bitwise_and(bits, 0x1FFF)
    normal = bitcast(ops.bitwise_and(added, _signed(0xFFFFE000)), "float32")
    chance = ops.cast(_shifted(bits, 8), "float32") * 2.0**-24
    small = ops.floor(wide * 2.0**24 + chance) * 2.0**-24
    return ops.where(ops.abs(wide) < 2.0**-14, small, normal)
