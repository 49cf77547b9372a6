"""The limits of the float formats against those that NumPy knows, and rounding against NumPy's."""

import numpy as np
import pytest

from keras_mp.float_formats import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, LARGEST


@pytest.mark.parametrize("form", [FLOAT16, FLOAT32, FLOAT64], ids=lambda form: form.name)
def test_limits_are_those_of_numpy(form):
    known = np.finfo(form.name)
    assert form.largest == LARGEST[form.name] == known.max
    assert form.smallest_normal == known.smallest_normal
    assert form.smallest_subnormal == known.smallest_subnormal
    assert form.epsilon == known.eps


def test_bfloat16_is_the_upper_half_of_float32():
    def of(bits):
        return float(np.array([bits << 16], np.uint32).view(np.float32)[0])

    assert BFLOAT16.largest == LARGEST["bfloat16"] == of(0x7F7F)
    assert BFLOAT16.smallest_normal == of(0x0080)
    assert BFLOAT16.smallest_subnormal == of(0x0001)
    assert 1 + BFLOAT16.epsilon == of(0x3F81)


def as_float16(value):
    with np.errstate(over="ignore"):
        return float(np.float64(value).astype(np.float16))


def test_where_float16_rounds_to_zero_to_a_normal_number_and_to_infinity():
    def below(value):
        return np.nextafter(value, 0.0)

    zero, normal, infinity = (
        FLOAT16.rounds_to_zero,
        FLOAT16.rounds_to_normal,
        FLOAT16.rounds_to_infinity,
    )
    assert as_float16(zero) == 0.0
    assert as_float16(np.nextafter(zero, 1.0)) == FLOAT16.smallest_subnormal
    assert as_float16(below(normal)) < as_float16(normal) == FLOAT16.smallest_normal
    assert as_float16(below(infinity)) == FLOAT16.largest
    assert as_float16(infinity) == np.inf
