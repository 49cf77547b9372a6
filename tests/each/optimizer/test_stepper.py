"""Steps of the inner optimizer: taken with finite gradients, and not with others."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer, backends
from keras_mp.optimizer.stepper import Stepper

INF, NAN = float("inf"), float("nan")


def taken(gradients, scale=None, inner=None, **options):
    """Returns (what the step told, the value of a variable [1, 2] after it, its iterations)."""
    variable = keras.Variable([1.0, 2.0])
    inner = inner or keras.optimizers.SGD(1.0)
    inner.build([variable])
    settings = LossScaleOptimizer(keras.optimizers.SGD(), **options)._settings
    stepper = Stepper(inner, settings, backends.current())
    given = [ops.array(gradients, "float32")]
    result = stepper(given, [variable], None if scale is None else ops.array(scale, "float32"))
    numbers = ops.convert_to_numpy(variable).tolist()
    return bool(result.finite), numbers, int(ops.convert_to_numpy(inner.iterations))


def test_a_step_with_finite_gradients_is_that_of_the_inner_optimizer():
    assert taken([0.5, 1.0]) == (True, [0.5, 1.0], 1)
    assert taken([4.0, 8.0], scale=8.0) == (True, [0.5, 1.0], 1)


@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_no_step_with_others(bad):
    assert taken([0.5, bad], scale=8.0)[:2] == (False, [1.0, 2.0])


def test_skipped_steps_count_where_they_shall():
    for counts in (False, True):
        assert taken([0.5, INF], count_skipped_steps=counts) == (False, [1.0, 2.0], int(counts))
        assert taken([0.5, 1.0], count_skipped_steps=counts) == (True, [0.5, 1.0], 1)


def test_without_a_check_every_step_is_taken():
    finite, numbers, iterations = taken(
        [0.5, INF], scale=1.0, dynamic=False, initial_scale=1.0, skip_nonfinite=False
    )
    assert (finite, iterations) == (True, 1)
    assert np.isneginf(numbers[1])
