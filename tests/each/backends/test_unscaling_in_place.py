"""PyTorch: gradients that are the `.grad`s of their variables are unscaled where they lie."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="other backends have no .grad"
)
SCALE = 1024.0


@pytest.fixture
def loop():
    """A variable, its optimizer, and a function that runs a backward pass with a given slope."""
    variable = keras.Variable([1.0, 2.0])
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=SCALE)
    optimizer.build([variable])

    def backward(slope):
        optimizer.scale_loss(ops.sum(variable * ops.array(slope, "float32"))).backward()
        return variable.value.grad

    return variable, optimizer, backward


def numbers(variable):
    return ops.convert_to_numpy(variable).tolist()


def test_a_grad_is_divided_where_it_lies(loop):
    variable, optimizer, backward = loop
    gradient = backward([0.25, 0.5])
    place = gradient.data_ptr()
    optimizer.apply([gradient], [variable])
    assert numbers(variable) == [0.75, 1.5]
    assert variable.value.grad.data_ptr() == place
    assert numbers(gradient) == [0.25, 0.5]


def test_other_tensors_are_left_alone(loop):
    variable, optimizer, backward = loop
    gradient = backward([0.25, 0.5]).clone()
    optimizer.apply([gradient], [variable])
    assert numbers(variable) == [0.75, 1.5]
    assert numbers(gradient) == [0.25 * SCALE, 0.5 * SCALE]


def test_the_same_grad_again_is_right(loop):
    variable, optimizer, backward = loop
    gradient = backward([0.25, 0.5])
    for _ in range(3):
        optimizer.apply([gradient], [variable])
    assert numbers(variable) == [0.25, 0.5]


def test_an_overflow_stays_one(loop):
    variable, optimizer, backward = loop
    gradient = backward([np.inf, 0.5])
    for _ in range(2):
        optimizer.apply([gradient], [variable])
    assert numbers(variable) == [1.0, 2.0]
    assert int(optimizer.skipped_steps) == 2


@pytest.mark.parametrize("how", ["zeros", "none"])
def test_cleared_grads_are_divided_anew(loop, how):
    variable, optimizer, backward = loop
    for _ in range(2):
        if variable.value.grad is not None:
            if how == "zeros":
                variable.value.grad.zero_()
            else:
                variable.value.grad = None
        optimizer.apply([backward([0.25, 0.5])], [variable])
    assert numbers(variable) == [0.5, 1.0]


def test_a_grad_that_somebody_changed_is_divided(loop):
    """Clipped by its norm after the backward pass, say."""
    variable, optimizer, backward = loop
    gradient = backward([0.25, 0.5]).mul_(0.5)
    optimizer.apply([gradient], [variable])
    assert numbers(variable) == [0.875, 1.75]


def test_two_backward_passes_of_one_step_add_up(loop):
    variable, optimizer, backward = loop
    backward([0.25, 0.5])
    optimizer.apply([backward([0.25, 0.5])], [variable])
    assert numbers(variable) == [0.5, 1.0]


def test_grads_that_are_never_cleared_are_told_of(loop):
    variable, optimizer, backward = loop
    optimizer.apply([backward([0.25, 0.5])], [variable])
    with pytest.warns(UserWarning, match="Clear them after each step"):
        optimizer.apply([backward([0.25, 0.5])], [variable])


def test_one_that_is_no_grad_leaves_all_alone():
    """A gradient list of which a part was made otherwise: nothing is changed under its feet."""
    variables = [keras.Variable([1.0]), keras.Variable([1.0])]
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=SCALE)
    optimizer.build(variables)
    optimizer.scale_loss(ops.sum(variables[0] * 0.5)).backward()
    gradients = [variables[0].value.grad, ops.array([0.5 * SCALE])]
    optimizer.apply(gradients, variables)
    assert [numbers(v) for v in variables] == [[0.5], [0.5]]
    assert numbers(gradients[0]) == [0.5 * SCALE]
