"""PyTorch: `.grad`s of variables are unscaled where they lie, and hold after it what they held."""

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


def test_a_grad_holds_what_it_held(loop):
    variable, optimizer, backward = loop
    gradient = backward([0.25, 0.5])
    place = gradient.data_ptr()
    optimizer.apply([gradient], [variable])
    assert numbers(variable) == [0.75, 1.5]
    assert variable.value.grad.data_ptr() == place
    assert numbers(gradient) == [0.25 * SCALE, 0.5 * SCALE]


def test_no_memory_is_taken_for_a_copy():
    """The step is the same, and the gradients that it sees lie where those of the caller lie."""
    seen = []

    class Looks(keras.optimizers.SGD):
        def apply(self, grads, trainable_variables=None):
            seen.extend(gradient.data_ptr() for gradient in grads)
            super().apply(grads, trainable_variables)

    variable = keras.Variable([1.0, 2.0])
    optimizer = LossScaleOptimizer(Looks(1.0), initial_scale=SCALE)
    optimizer.build([variable])
    optimizer.scale_loss(ops.sum(variable * 0.5)).backward()
    optimizer.apply([variable.value.grad], [variable])
    optimizer.apply([variable.value.grad.clone()], [variable])
    assert seen[0] == variable.value.grad.data_ptr() != seen[1]
    assert numbers(variable) == [0.0, 1.0]


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


def test_grads_that_are_never_cleared_add_up(loop):
    """As with the plain optimizer."""
    variable, optimizer, backward = loop
    for _ in range(2):
        optimizer.apply([backward([0.25, 0.5])], [variable])
    assert numbers(variable) == [0.25, 0.5]


@pytest.mark.parametrize("how", ["zero_", "data", "numpy"])
def test_grads_that_somebody_writes_to(loop, how):
    """By ways that autograd counts, and by others."""
    variable, optimizer, backward = loop
    optimizer.apply([backward([0.25, 0.5])], [variable])
    gradient = variable.value.grad
    new = ops.array([0.25 * SCALE, 0.5 * SCALE], "float32")
    if how == "zero_":
        gradient.zero_().add_(new)
    elif how == "data":
        gradient.data = new
    else:
        gradient.numpy()[:] = new.numpy()
    optimizer.apply([variable.value.grad], [variable])
    assert numbers(variable) == [0.5, 1.0]


def test_a_step_that_fails_leaves_them_scaled():
    class Fails(keras.optimizers.SGD):
        def apply(self, grads, trainable_variables=None):
            raise MemoryError

    variable = keras.Variable([1.0])
    optimizer = LossScaleOptimizer(Fails(1.0), initial_scale=SCALE)
    optimizer.build([variable])
    optimizer.scale_loss(ops.sum(variable * 0.5)).backward()
    with pytest.raises(MemoryError):
        optimizer.apply([variable.value.grad], [variable])
    assert numbers(variable.value.grad) == [0.5 * SCALE]


def test_tensors_that_cannot_be_changed_in_place(loop):
    """Named twice, laid out in the same memory, or made under `torch.inference_mode`."""
    import torch

    variable, optimizer, backward = loop
    optimizer.scale_loss(1.0)
    variable.value.grad = torch.tensor([0.25 * SCALE]).expand(2)
    optimizer.apply([variable.value.grad], [variable])
    assert numbers(variable) == [0.75, 1.75]
    with torch.inference_mode():
        made = torch.tensor([0.25 * SCALE, 0.5 * SCALE])
    variable.value.grad = made
    optimizer.apply([variable.value.grad], [variable])
    assert numbers(variable) == [0.5, 1.25]
    variable.value.grad = None
    gradient = backward([0.25, 0.25])
    optimizer.apply([gradient, gradient], [variable, variable])
    assert numbers(variable) == [0.0, 0.75]


def test_what_a_scale_below_1_makes_infinite_is_not_applied():
    variable = keras.Variable([1.0])
    optimizer = LossScaleOptimizer(
        keras.optimizers.SGD(1.0), initial_scale=0.25, min_scale=2.0**-10
    )
    optimizer.build([variable])
    optimizer.scale_loss(ops.sum(variable * 1.0)).backward()
    variable.value.grad.fill_(3e38)
    optimizer.apply([variable.value.grad], [variable])
    assert numbers(variable) == [1.0]
    assert int(optimizer.nonfinite_kind) == 1


def test_one_that_is_no_grad_leaves_all_alone():
    """A gradient list of which a part was made otherwise."""
    variables = [keras.Variable([1.0]), keras.Variable([1.0])]
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=SCALE)
    optimizer.build(variables)
    optimizer.scale_loss(ops.sum(variables[0] * 0.5)).backward()
    gradients = [variables[0].value.grad, ops.array([0.5 * SCALE])]
    optimizer.apply(gradients, variables)
    assert [numbers(v) for v in variables] == [[0.5], [0.5]]
    assert numbers(gradients[0]) == [0.5 * SCALE]
