"""Which gradients were not finite, and where it began, against the same in plain Python."""

import random

import keras
import pytest

from keras_mp.statistics.overflow_counts import OverflowCounts
from keras_mp.statistics.step import StepCount
from tests import core_parts

NAMES = ("a", "b", "c")


class Scale:
    """Stands for the scaler: a scale that halves in skipped steps."""

    def __init__(self):
        self.value = 1024.0

    def read(self):
        return self.value


def counts_of(names=NAMES):
    trained = [keras.Variable(0.0, name=name) for name in names]
    _, variables = core_parts.places()
    count, scale = StepCount(variables), Scale()
    counts = OverflowCounts(count, scale, variables)
    counts.build(trained, variables)
    return trained, count, scale, counts


@pytest.mark.parametrize("seed", range(3))
def test_as_in_plain_python(seed):
    trained, count, scale, counts = counts_of()
    draw = random.Random(seed)
    bad_steps, first, last = {name: [] for name in NAMES}, None, None
    for number in range(1, 9):
        finite = [draw.random() < 0.6 for _ in trained]
        kind = 0 if all(finite) else draw.choice([1, 2])
        each = core_parts.step(kind, trained, finite, scale.value)
        before, scale.value = scale.value, scale.value / (2 if kind else 1)
        count.note(each)
        counts.note(each)
        bad = [name for name, good in zip(NAMES, finite, strict=True) if not good]
        for name in bad:
            bad_steps[name].append(number)
        if bad:
            last = bad[-1]
            first = first or (number, last, ("finite", "inf", "nan")[kind], before, scale.value)
        assert counts.last() == last
    expected = [(n, len(steps), steps[0]) for n, steps in bad_steps.items() if steps]
    found = [(each.path, each.steps, each.first_step) for each in counts.all()]
    assert sorted(found) == sorted(expected)
    assert [steps for _, steps, _ in found] == sorted((s for _, s, _ in found), reverse=True)
    one = counts.first()
    assert (one.step, one.variable, one.kind, one.scale_before, one.scale_after) == first
    assert str(one).startswith(f"first overflow: step {first[0]}, {first[1]} ({first[2]})")


def test_a_part_of_the_variables_in_another_order():
    trained, count, _, counts = counts_of()
    known = [id(variable) for variable in trained]
    given = [trained[2], trained[0]]
    each = core_parts.step(1, given, [True, False])
    each = each._replace(index_of=lambda variable: known.index(id(variable)))
    count.note(each)
    counts.note(each)
    assert [(v.path, v.steps) for v in counts.all()] == [("a", 1)]
    assert counts.last() == "a"


def test_before_any_step():
    *_, counts = counts_of()
    assert (counts.all(), counts.first(), counts.last()) == ([], None, None)
    assert counts.path_of(1) == "b"
    assert counts.path_of(-1) is None
