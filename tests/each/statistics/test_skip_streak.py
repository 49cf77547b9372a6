"""How many steps were skipped in a row, now and at most, for each who asks."""

from keras import ops

from keras_mp.statistics.step import SkipStreak
from tests import core_parts


class Asker:
    """A callback, say."""


def after(*kinds):
    _, variables = core_parts.places()
    runs = SkipStreak(variables)
    tell(runs, *kinds)
    return runs


def tell(runs, *kinds):
    for kind in kinds:
        runs.note(core_parts.step(kind))


def test_a_step_that_is_applied_ends_a_run():
    runs = after(1, 2, 1)
    assert int(ops.convert_to_numpy(runs.read())) == 3
    tell(runs, 0)
    assert int(ops.convert_to_numpy(runs.read())) == 0
    assert runs.take_most() == 3
    tell(runs, 1)
    assert runs.take_most() == 1


def test_a_run_that_goes_on_counts_from_its_beginning():
    runs = after(1, 1)
    assert runs.take_most() == 2
    assert runs.take_most() == 0
    tell(runs, 1)
    assert runs.take_most() == 3


def test_everyone_who_asks_is_told_of_every_run():
    runs, first, second = after(1, 1, 0), Asker(), Asker()
    assert runs.take_most(first) == 2
    tell(runs, 1, 0)
    assert runs.take_most(second) == 1
    assert runs.take_most(first) == 1
    assert runs.take_most(second) == 0
