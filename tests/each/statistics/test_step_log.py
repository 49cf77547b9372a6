"""A ring buffer of steps: it holds the last ones, and says which were lost."""

import pytest

from keras_mp.statistics.step import StepCount
from keras_mp.statistics.step_statistics import StepLog
from tests import core_parts

KINDS = [0, 1, 0, 0, 2, 0, 1]


@pytest.mark.parametrize("rows", [1, 3, 7, 10])
def test_the_last_rows_are_there(rows):
    _, variables = core_parts.places()
    count = StepCount(variables)
    log = StepLog(rows, count, None, variables)
    told = []
    for number, kind in enumerate(KINDS, start=1):
        each = core_parts.step(kind, scale=float(2**number))
        count.note(each)
        log.note(each)
        told.append((number, float(2**number), kind, -1))
        assert log.since(0) == (number, told[-rows:])
        assert log.since(number - 1) == (number, told[-1:])
        assert log.since(number) == (number, [])


def test_steps_that_were_taken_elsewhere_have_no_row():
    """Their number is restored, and what they were is not."""
    _, variables = core_parts.places()
    count = StepCount(variables)
    log = StepLog(8, count, None, variables)
    count._steps.assign(5)
    each = core_parts.step(1, scale=4.0)
    count.note(each)
    log.note(each)
    assert log.since(0) == (6, [(6, 4.0, 1, -1)])
