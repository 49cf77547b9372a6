"""The limits of floating-point formats, from their bits. Knows no framework."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary floating-point format with subnormal numbers, infinities and nans.

    Args:
        name: Keras' name of the dtype.
        precision: Bits of the significand, including the implicit one.
        min_exponent: Exponent of the smallest normal number, a power of two.
        max_exponent: Exponent of the largest number, likewise.

    >>> FLOAT16.largest, FLOAT16.smallest_normal == 2.0**-14, FLOAT16.epsilon == 2.0**-10
    (65504.0, True, True)
    """

    name: str
    precision: int
    min_exponent: int
    max_exponent: int

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return (2.0 - self.epsilon) * 2.0**self.max_exponent

    @property
    def smallest_normal(self) -> float:
        """The smallest positive number with all bits of precision."""
        return 2.0**self.min_exponent

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive number."""
        return 2.0 ** (self.min_exponent - self.precision + 1)

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next larger number."""
        return 2.0 ** (1 - self.precision)

    # Numbers are rounded to the nearest, ties to even.

    @property
    def rounds_to_zero(self) -> float:
        """The largest magnitude that rounds to zero."""
        return self.smallest_subnormal / 2

    @property
    def rounds_to_normal(self) -> float:
        """The smallest magnitude that rounds to a normal number."""
        return self.smallest_normal - self.smallest_subnormal / 2

    @property
    def rounds_to_infinity(self) -> float:
        """The smallest magnitude that rounds to infinity."""
        return self.largest + 2.0 ** (self.max_exponent - self.precision)


FLOAT16 = FloatFormat("float16", 11, -14, 15)
BFLOAT16 = FloatFormat("bfloat16", 8, -126, 127)
FLOAT32 = FloatFormat("float32", 24, -126, 127)
FLOAT64 = FloatFormat("float64", 53, -1022, 1023)

# The largest finite number, by dtype.
LARGEST = {each.name: each.largest for each in (FLOAT16, BFLOAT16, FLOAT32, FLOAT64)}
