"""Rounds float32 to 16 bits: a lossless split into two halves, and stochastic rounding.

Pure functions of tensors. The random numbers are a function of a seed, a step and an index, the
same on every backend and device.
"""

from collections.abc import Sequence
from typing import NamedTuple

from keras import ops

from keras_mp import backends
from keras_mp.array_types import Tensor
from keras_mp.backends.common.numerics import signed
from keras_mp.backends.protocol import Places

# A permutation of 32-bit numbers that leaves no visible pattern ("lowbias32" of Chris Wellons'
# "Prospecting for Hash Functions", 2018), with a key added in between. Its last step improves the
# lower bits, and is left out if only the upper ones are used.
_FIRST, _SECOND = 0x7FEB352D, 0x846CA68B
_GOLDEN = 0x9E3779B9


class Draw(NamedTuple):
    """Identifies the random numbers of one step of an optimizer.

    `seed`: of the optimizer. `step`: integer tensor of shape ().
    """

    seed: int
    step: Tensor


def split(masters: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Returns float32 numbers as bfloat16, rounded to nearest, and the remainders as int16.

    Ties round away from zero: with ties to even, even numbers would have 2**16 + 1 different
    remainders, which 16 bits cannot distinguish.

    Args:
        masters: float32, of any shapes.

    Returns:
        (bfloat16, int16) for each, of its shape. `join` restores it, bit for bit; any nan becomes
        the usual one.

    >>> [(upper, rest)] = split([ops.array([1.00390625, -3.0])])
    >>> [float(each) for each in upper], [int(each) for each in rest]
    ([1.0078125, -3.0], [-32768, 0])
    """
    return backends.current().elementwise(_split, masters)


def join(uppers: Sequence[Tensor], rests: Sequence[Tensor]) -> list[Tensor]:
    """Returns the float32 numbers that `split` divided into `uppers` and `rests`.

    >>> numbers = ops.array([0.1, -1e-30])
    >>> upper, rest = split([numbers])[0]
    >>> bool(ops.all(join([upper], [rest])[0] == numbers))
    True
    """
    return backends.current().elementwise(_join, uppers, rests)


def newest(narrow: Sequence[Tensor], masters: Sequence[Tensor]) -> list[Tensor]:
    """Returns each float32 master, or its weight if the master does not round to the weight.

    Compared as bits: XLA removes a cast to 16 bits and back.

    >>> weight, master = ops.cast([0.1, 2.0], "bfloat16"), ops.array([0.1, 1.0])
    >>> found = newest([weight], [master])[0]
    >>> [float(each) for each in found == master], float(found[1])
    ([1.0, 0.0], 2.0)
    """
    return backends.current().elementwise(_newest, narrow, masters)


def stochastic(
    wide: Sequence[Tensor], dtype: str, draw: Draw, starts: Sequence[int]
) -> list[Tensor]:
    """Returns float32 numbers rounded up or down at random, so that the mean is the number.

    Numbers too large for float16 become inf, and nan stays nan.

    Args:
        wide: float32, of any shapes.
        dtype: "bfloat16" or "float16".
        draw: Identifies the random numbers.
        starts: Index of the first number of each, among all that the step rounds.

    Returns:
        `dtype`, same shapes.

    >>> [found] = stochastic([ops.ones((4096,)) * 1.001], "bfloat16", Draw(0, ops.array(1)), [0])
    >>> sorted({float(each) for each in found})
    [1.0, 1.0078125]
    >>> abs(float(ops.mean(ops.cast(found, "float32"))) - 1.001) < 3e-4
    True
    """
    of_draw = keys(draw)

    def rounded(places: Places, wide: Tensor) -> Tensor:
        return _ROUNDED[dtype](wide, random_bits(places(), of_draw))

    return backends.current().elementwise(rounded, wide, starts=starts)


def keys(draw: Draw) -> tuple[Tensor, Tensor]:
    """Returns the keys of `random_bits` for a draw, two int32 numbers of shape ()."""
    step = ops.cast(draw.step, "int32")
    bits = step * signed(_GOLDEN) + signed(_mixed_number(draw.seed))
    key = _finished(_mixed(bits, 0))
    return key, _finished(_mixed(key, signed(_GOLDEN)))


def random_bits(places: Tensor, keys: tuple[Tensor, Tensor]) -> Tensor:
    """Returns an int32 for each index, whose upper 24 bits are random; of their shape.

    >>> bits = random_bits(ops.arange(3, dtype="int32"), keys(Draw(0, ops.array(7))))
    >>> len({int(each) for each in bits})
    3
    """
    bits = places * signed(_GOLDEN)
    bits += keys[0]
    return _mixed(bits, keys[1])


def _split(_: Places, master: Tensor) -> tuple[Tensor, Tensor]:
    bitcast = backends.current().bitcast
    bits = bitcast(backends.current().keep_nan(master, master), "int32")
    upper = backends.current().upper_half(bits + 0x8000)
    # The cast keeps the lower 16 bits; their sign compensates for the rounding.
    return bitcast(upper, "bfloat16"), ops.cast(bits, "int16")


def _join(_: Places, upper: Tensor, rest: Tensor) -> Tensor:
    bitcast = backends.current().bitcast
    bits = ops.cast(bitcast(upper, "int16"), "int32")
    bits *= 2**16
    bits += ops.cast(rest, "int32")
    return bitcast(bits, "float32")


def _newest(_: Places, narrow: Tensor, master: Tensor) -> Tensor:
    bitcast = backends.current().bitcast
    rounded = ops.cast(master, narrow.dtype)
    same = ops.equal(bitcast(rounded, "int16"), bitcast(narrow, "int16"))
    return ops.where(same, master, ops.cast(narrow, "float32"))


def _mixed(bits: Tensor, key: Tensor | int) -> Tensor:
    # In place where the backend can: allocating memory takes longer than the sum.
    shifted = backends.current().shifted_right
    first = shifted(bits, 16)
    first ^= bits
    first *= signed(_FIRST)
    first += key
    second = shifted(first, 15)
    second ^= first
    second *= signed(_SECOND)
    return second


def _finished(bits: Tensor) -> Tensor:
    return bits ^ backends.current().shifted_right(bits, 16)


def _mixed_number(number: int) -> int:
    bits = number & 0xFFFFFFFF
    bits = ((bits ^ (bits >> 16)) * _FIRST) & 0xFFFFFFFF
    bits = ((bits ^ (bits >> 15)) * _SECOND) & 0xFFFFFFFF
    return bits ^ (bits >> 16)


def _bfloat16(wide: Tensor, bits: Tensor) -> Tensor:
    """Adds random bits, then drops the lower half."""
    backend = backends.current()
    added = backend.shifted_right(bits, 16)
    added += backend.bitcast(wide, "int32")
    return backend.keep_nan(backend.bitcast(backend.upper_half(added), "bfloat16"), wide)


def _float16(wide: Tensor, bits: Tensor) -> Tensor:
    """The same with 13 bits; below 2**-14, where numbers are 2**-24 apart, by that distance."""
    backend = backends.current()
    added = backend.bitcast(wide, "int32") + backend.shifted_right(bits, 19)
    normal = backend.bitcast(added & signed(0xFFFFE000), "float32")
    chance = ops.cast(backend.shifted_right(bits, 8), "float32") * 2.0**-24
    small = ops.floor(wide * 2.0**24 + chance) * 2.0**-24
    rounded = ops.where(ops.abs(wide) < 2.0**-14, small, normal)
    return ops.cast(backend.keep_nan(rounded, wide), "float16")


_ROUNDED = {"bfloat16": _bfloat16, "float16": _float16}
