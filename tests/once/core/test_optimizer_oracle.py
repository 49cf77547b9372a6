"""The ranges of `tests.optimizer_oracle` hold what a dtype may come to, and little more."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.fuzzing import examples
from tests.optimizer_oracle import FORMATS, SLACK, Range, Scaling, kinds

NUMBERS = st.floats(-1e4, 1e4, allow_subnormal=False)
OPERATIONS = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
}


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(sorted(FORMATS)), st.sampled_from(sorted(OPERATIONS)), NUMBERS, NUMBERS)
def test_a_range_holds_the_result_rounded_or_not_and_nothing_far_off(name, operation, a, b):
    dtype, function = FORMATS[name], OPERATIONS[operation]
    a, b = dtype.rounded(a), dtype.rounded(b)
    found = function(Range(dtype, a), Range(dtype, b))
    if operation == "divide" and b == 0:
        assert found.share_held() == 0
        return
    exact = function(a, b)
    assert found.holds(dtype.rounded(exact))
    if abs(exact) < dtype.largest / 2:
        assert found.holds(exact)
        far = 3 * SLACK * (dtype.unit * abs(exact) + dtype.smallest)
        assert not found.holds(exact + far)
        assert not found.holds(exact - far)


@pytest.mark.parametrize("name", FORMATS)
def test_a_sum_rounds_once_a_term(name):
    dtype = FORMATS[name]
    values = dtype.rounded(np.random.RandomState(0).uniform(0.5, 2, 32))
    total = dtype.rounded(0.0)
    for value in values:
        total = dtype.rounded(total + value)
    found = Range(dtype, values).sum()
    assert found.holds(total)
    assert found.holds(values.sum())
    assert not found.holds(values.sum() * (1 + 200 * dtype.unit))


def test_what_overflows_may_be_inf_or_not():
    found = Range(FORMATS["float16"], 300.0).square()
    assert found.holds(np.inf)
    assert found.holds(90000.0)
    assert not found.holds(60000.0)


def test_the_edge_of_a_dtype():
    """65520 is half way between the largest float16 and the next number: rounding decides."""
    half = [FORMATS["float16"]]
    found = [kinds([np.array([value])], half, None) for value in (65504.0, 65519.999, 65530.0)]
    assert found == [{0}, {0, 1}, {1}]
    assert kinds([np.array([np.inf, 1.0]), np.array([np.nan])], half * 2, 8.0) == {2}


def test_the_scale_by_hand():
    scaling = Scaling(scale=8.0, growth_steps=2, hysteresis=2, min_scale=2.0)
    seen = []
    for kind in (1, 0, 0, 2, 1, 1, 1, 0):
        scaling.take(kind)
        seen.append((scaling.scale, scaling.counter, scaling.left))
    assert seen == [
        (8.0, 0, 1),
        (8.0, 1, 1),
        (16.0, 0, 2),
        (16.0, 0, 1),
        (8.0, 0, 1),
        (4.0, 0, 1),
        (2.0, 0, 1),
        (2.0, 1, 1),
    ]
    assert (scaling.skipped_steps, scaling.raw_iterations, scaling.consecutive_skips) == (5, 8, 0)
