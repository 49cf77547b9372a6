"""`next_scale` against the rule written again in plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from keras import ops

from keras_mp.scaling.loss_scale import next_scale
from tests.fuzzing import examples

FLOAT32_MAX = float(np.finfo("float32").max)


def by_hand(scale, counter, finite, growth_steps, floor=1.0, cap=FLOAT32_MAX, up=2.0, down=0.5):
    if not finite:
        return max(scale * down, floor) if scale > floor else scale, 0
    if counter + 1 < growth_steps:
        return scale, counter + 1
    return (scale * up if scale * up <= cap else scale), 0


def run(steps, scale, counter=0, **rule):
    scale, counter = ops.array(scale, "float32"), ops.array(counter, "int32")
    for finite in steps:
        scale, counter = next_scale(scale, counter, ops.array(finite), **rule)
    return float(scale), int(counter)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.booleans(), max_size=25),
    st.integers(-4, 127),
    st.integers(0, 9),
    st.integers(1, 4),
    st.sampled_from([1.0, 0.125, 16.0]),
)
def test_agrees_with_the_rule_by_hand(steps, exponent, counter, growth_steps, floor):
    """Random runs, restored counters beyond the period and scales below the floor included."""
    expected = (2.0**exponent, counter)
    for finite in steps:
        expected = by_hand(*expected, finite, growth_steps, floor)
    found = run(steps, 2.0**exponent, counter, growth_steps=growth_steps, min_scale=floor)
    assert found == expected


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.booleans(), max_size=25), st.sampled_from([(4.0, 0.25), (1.5, 0.75)]))
def test_other_factors(steps, factors):
    up, down = factors
    expected = (1024.0, 0)
    for finite in steps:
        scale, counter = by_hand(*expected, finite, 2, up=up, down=down)
        expected = (float(np.float32(scale)), counter)
    assert run(steps, 1024.0, growth_steps=2, growth_factor=up, backoff_factor=down) == expected


@pytest.mark.parametrize(
    ("scale", "finite", "rule", "after"),
    [
        pytest.param(2.0**127, True, {}, 2.0**127, id="does not grow to inf"),
        pytest.param(1.0, False, {}, 1.0, id="stops at the floor"),
        pytest.param(1.5, False, {}, 1.0, id="is cut off at the floor"),
        pytest.param(0.25, False, {}, 0.25, id="an overflow never raises it"),
        pytest.param(0.25, True, {}, 0.5, id="grows from below the floor"),
        pytest.param(2.0**-10, False, {"min_scale": 2.0**-14}, 2.0**-11, id="floor below 1"),
        pytest.param(8.0, True, {"max_scale": 16.0}, 16.0, id="grows up to the cap"),
        pytest.param(8.0, True, {"max_scale": 15.0}, 8.0, id="not above the cap"),
    ],
)
def test_edges(scale, finite, rule, after):
    assert run([finite], scale, growth_steps=1, **rule) == (after, 0)


def test_170_overflows_and_one_good_step():
    """Keras 3's own class is at scale 0 by then, and the good step writes nan."""
    assert run([False] * 170 + [True], 2.0**15) == (1.0, 1)


def test_keeps_dtypes(backend):
    for dtype in ("int32", "int64") if backend != "jax" else ("int32",):
        scale, counter = next_scale(ops.array(4.0), ops.array(1, dtype), ops.array(True))
        assert "float32" in str(scale.dtype)
        assert dtype in str(counter.dtype)


@pytest.mark.parametrize("steps", [2**31 - 1, 2**31, 10**12])
def test_a_period_that_never_ends(steps):
    """The usual way to say "never grow"; the counter is an int32."""
    assert run([True] * 3, 8.0, growth_steps=steps) == (8.0, 3)
