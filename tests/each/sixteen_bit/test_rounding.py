"""Halves of float32, and rounding at random: against a rule in plain Python, and statistics."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp.sixteen_bit import rounding
from keras_mp.sixteen_bit.rounding import (
    Draw,
    keys,
    newest,
    random_bits,
)


def numbers():
    """All exponents, ties, subnormals, what rounds to inf, inf and zeros of both signs."""
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**32, 4000, dtype=np.uint32)
    ties = (random.integers(0, 2**16, 400, dtype=np.uint32) << 16) | 0x8000
    special = np.array([0, 2**31, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0xFF7FFFFF, 1], np.uint32)
    found = np.concatenate([bits, ties, special]).view("float32")
    return found[~np.isnan(found)]


def split(master):
    return rounding.split([master])[0]


def join(upper, rest):
    return rounding.join([upper], [rest])[0]


def stochastic(wide, dtype, draw):
    return rounding.stochastic([wide], dtype, draw, [0])[0]


def bits_of(tensor):
    return ops.convert_to_numpy(tensor).view("uint32")


def test_halves_lose_nothing():
    there = numbers()
    upper, rest = split(ops.convert_to_tensor(there))
    assert (upper.dtype, rest.dtype) == (
        ops.cast(upper, "bfloat16").dtype,
        ops.cast(rest, "int16").dtype,
    )
    np.testing.assert_array_equal(bits_of(join(upper, rest)), there.view("uint32"))


def test_the_upper_half_is_rounded_to_nearest():
    there = numbers().astype("float64")
    there = there[np.abs(there) < 3e38]
    upper, _ = split(ops.convert_to_tensor(there.astype("float32")))
    found = ops.convert_to_numpy(ops.cast(upper, "float32")).astype("float64")
    to_even = ops.cast(ops.cast(there.astype("float32"), "bfloat16"), "float32")
    nearest = np.abs(ops.convert_to_numpy(to_even).astype("float64") - there)
    np.testing.assert_array_equal(np.abs(found - there), nearest)


def test_nan_stays_nan():
    nans = np.array([0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], "uint32").view("float32")
    upper, rest = split(ops.convert_to_tensor(nans))
    assert np.isnan(ops.convert_to_numpy(join(upper, rest))).all()
    assert np.isnan(ops.convert_to_numpy(ops.cast(upper, "float32"))).all()
    for dtype in ("bfloat16", "float16"):
        drawn = stochastic(ops.convert_to_tensor(nans), dtype, Draw(0, ops.array(1)))
        assert np.isnan(ops.convert_to_numpy(ops.cast(drawn, "float32"))).all()


def test_the_master_is_newest_unless_the_weight_was_changed():
    wide = ops.array([0.1, 1.001, -0.0, 0.0])
    narrow = ops.cast(ops.array([0.1, 1.0078125, -0.0, -0.0]), "bfloat16")
    found = ops.convert_to_numpy(newest([narrow], [wide])[0])
    expected = np.array([0.1, 1.0078125, -0.0, -0.0], "float32")
    np.testing.assert_array_equal(found.view("uint32"), expected.view("uint32"))


def mixed(bits, key):
    """The rule in plain Python."""
    bits = (((bits ^ (bits >> 16)) * 0x7FEB352D) + key) & 0xFFFFFFFF
    return ((bits ^ (bits >> 15)) * 0x846CA68B) & 0xFFFFFFFF


def finished(bits):
    return bits ^ (bits >> 16)


def drawn(count, seed, step, start=0):
    places = ops.arange(count, dtype="int32") + start
    return bits_of(random_bits(places, keys(Draw(seed, ops.array(step)))))


def of_seed(number):
    bits = number & 0xFFFFFFFF
    bits = ((bits ^ (bits >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    bits = ((bits ^ (bits >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return bits ^ (bits >> 16)


@pytest.mark.parametrize(("seed", "step"), [(0, 0), (7, 3), (2**40 + 1, 2**31 - 1)])
def test_the_same_numbers_everywhere(seed, step):
    key = finished(mixed((step * 0x9E3779B9 + of_seed(seed)) & 0xFFFFFFFF, 0))
    other = finished(mixed(key, 0x9E3779B9))
    expected = [mixed((i * 0x9E3779B9 + key) & 0xFFFFFFFF, other) for i in range(60)]
    np.testing.assert_array_equal(drawn(60, seed, step), np.array(expected, "uint32"))


@pytest.mark.parametrize("starts", [(0, 3, 9), (0, 5, 2**32 + 7), (2**17, 2**31, 3)])
def test_small_tensors_are_drawn_as_alone(starts):
    """PyTorch joins them; some do not lie one behind the other."""
    shapes = [(3,), (2, 3), (1, 4)]
    wide = [ops.array(np.full(shape, 1.001, "float32")) for shape in shapes]
    draw = Draw(3, ops.array(5))
    together = rounding.stochastic(wide, "bfloat16", draw, starts)
    for each, found, start in zip(wide, together, starts, strict=True):
        [alone] = rounding.stochastic([each], "bfloat16", draw, [start])
        assert found.shape == each.shape
        same = [ops.convert_to_numpy(ops.cast(t, "float32")) for t in (alone, found)]
        np.testing.assert_array_equal(*same)
    masters = [each * 1.0001 for each in wide]
    halves = zip(*rounding.split(masters), strict=True)
    for back, master in zip(rounding.join(*halves), masters, strict=True):
        np.testing.assert_array_equal(bits_of(back), bits_of(master))


def test_a_tensor_in_blocks_is_drawn_as_a_whole():
    """PyTorch takes blocks of 2**17 numbers on a CPU."""
    count = 2**18 + 77
    wide = np.random.default_rng(0).normal(size=(count,)).astype("float32")
    key = keys(Draw(3, ops.array(5)))
    bits = bits_of(random_bits(ops.arange(count, dtype="int32"), key)).astype("uint64")
    expected = ((wide.view("uint32") + (bits >> 16)) >> 16 << 16).astype("uint32")
    found = stochastic(ops.reshape(ops.array(wide), (1, -1)), "bfloat16", Draw(3, ops.array(5)))
    assert tuple(found.shape) == (1, count)
    np.testing.assert_array_equal(bits_of(ops.cast(found[0], "float32")), expected)
    nan = ops.where(ops.arange(count) == 2**17 + 5, float("nan"), ops.array(wide))
    upper, rest = split(nan)
    joined = ops.convert_to_numpy(join(upper, rest))
    np.testing.assert_array_equal(joined, ops.convert_to_numpy(nan))


def test_random_bits_are_random():
    """Each bit, and each pair of places, steps and seeds: within 5 sigma."""
    count = 2**18
    rows = [drawn(count, *each) for each in [(0, 1), (0, 2), (0, 1, count), (1, 1)]]
    sigma = 0.5 / math.sqrt(count)
    for bit in range(8, 32):
        chosen = [(row >> bit) & 1 for row in rows]
        for each in chosen:
            assert abs(each.mean() - 0.5) < 5 * sigma
            for apart in (1, 2, 3, 64, 1024, 4096):
                pairs = each[apart:] ^ each[:-apart]
                assert abs(pairs.mean() - 0.5) < 5 * 0.5 / math.sqrt(len(pairs))
        for other in chosen[1:]:
            assert abs((chosen[0] ^ other).mean() - 0.5) < 5 * sigma


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("number", [1.001, -3.14159, 1e-3, 6.1e-5, 2.5e-6, -1.1e-7, 700.3])
def test_the_mean_is_the_number(number, dtype):
    count = 2**20
    wide = np.float32(number)
    found = stochastic(ops.ones((count,)) * wide, dtype, Draw(5, ops.array(11)))
    values, counts = np.unique(ops.convert_to_numpy(ops.cast(found, "float32")), return_counts=True)
    assert len(values) == 2
    low, high = values.astype("float64")
    assert low < wide < high
    nearest = np.asarray([low, high], "float32")
    np.testing.assert_array_equal(
        nearest, ops.convert_to_numpy(ops.cast(ops.cast(nearest, dtype), "float32"))
    )
    chance = (float(wide) - low) / (high - low)
    sigma = math.sqrt(chance * (1 - chance) / count)
    assert abs(counts[1] / count - chance) < 5 * sigma


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_what_is_exact_stays_and_the_rest_is_a_neighbour(dtype):
    wide = numbers()
    draw = Draw(0, ops.array(2))
    exact = ops.cast(ops.cast(ops.convert_to_tensor(wide), dtype), "float32")
    same = ops.cast(stochastic(exact, dtype, draw), "float32")
    np.testing.assert_array_equal(ops.convert_to_numpy(same), ops.convert_to_numpy(exact))
    largest = 65504.0 if dtype == "float16" else 3.3895e38
    inside = wide[np.abs(wide) < largest]
    drawn = ops.cast(stochastic(ops.convert_to_tensor(inside), dtype, draw), "float32")
    step = np.maximum(np.abs(inside) * (2.0**-10 if dtype == "float16" else 2.0**-7), 2.0**-24)
    apart = np.abs(ops.convert_to_numpy(drawn).astype("float64") - inside)
    assert np.all(apart <= step)
    assert keras.backend.standardize_dtype(stochastic(exact, dtype, draw).dtype) == dtype
