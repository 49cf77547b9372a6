"""`read_state`: the optimizer's values of a stateless loop, by name."""

import keras
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer
from tests.backends import on


def built(**settings):
    settings = {"initial_scale": 8.0, **settings}
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.5), **settings)
    weight = keras.Variable([1.0])
    optimizer.build([weight])
    return optimizer, weight


def values_of(optimizer):
    return [ops.copy(variable.value) for variable in optimizer.variables]


def plain(state):
    return {name: None if v is None else v.item() for name, v in numpy(state).items()}


def numpy(state):
    each = state._asdict().items()
    return {name: None if v is None else ops.convert_to_numpy(v) for name, v in each}


def test_it_is_of_the_values_and_not_of_the_variables():
    optimizer, weight = built(max_consecutive_skips=5)
    before = values_of(optimizer)
    for gradient in (1.0, float("nan"), float("inf")):
        optimizer.apply_gradients([(ops.array([gradient]), weight)], gradients_scaled=True)
    after = values_of(optimizer)
    at_start = {
        "loss_scale": 8.0,
        "dynamic_counter": 0,
        "iterations": 0,
        "last_step_applied": True,
        "skipped_steps": 0,
        "nonfinite_kind": 0,
        "consecutive_skips": 0,
    }
    at_end = {
        "loss_scale": 2.0,
        "dynamic_counter": 0,
        "iterations": 3,
        "last_step_applied": False,
        "skipped_steps": 2,
        "nonfinite_kind": 1,
        "consecutive_skips": 2,
    }
    assert plain(optimizer.read_state(before)) == at_start
    assert plain(optimizer.read_state(after)) == at_end
    optimizer.dynamic_scale.assign(64.0)
    assert optimizer.read_state(after).loss_scale == 2.0
    assert float(optimizer.loss_scale) == 64.0


def test_what_an_optimizer_does_not_have_is_none():
    optimizer, _ = built(dynamic=False)
    state = optimizer.read_state(values_of(optimizer))
    assert (state.dynamic_counter, state.consecutive_skips) == (None, None)
    assert float(state.loss_scale) == 8.0


def test_an_accumulating_optimizer_counts_its_steps():
    inner = keras.optimizers.SGD(0.5, gradient_accumulation_steps=2)
    optimizer, weight = LossScaleOptimizer(inner), keras.Variable([1.0])
    optimizer.build([weight])
    for _ in range(5):
        optimizer.apply_gradients([(ops.array([1.0]), weight)], gradients_scaled=True)
    assert int(optimizer.read_state(values_of(optimizer)).iterations) == 2


@pytest.mark.parametrize("change", [lambda v: v[:-1], lambda v: [*v, v[0]]])
def test_one_value_for_each_variable(change):
    optimizer, _ = built()
    values = change(values_of(optimizer))
    known = len(optimizer.variables)
    with pytest.raises(ValueError, match=f"has {len(values)} values, but .* has {known} variables"):
        optimizer.read_state(values)


@on("jax")
def test_inside_a_compiled_step_and_out_of_it():
    import jax

    optimizer, weight = built()

    @jax.jit
    def step(weights, values, gradient):
        gradient = gradient * optimizer.stateless_scale_loss(values, 1.0)
        weights, values = optimizer.stateless_apply(values, [gradient], weights)
        return weights, values, optimizer.read_state(values)

    weights, values, state = step([weight.value], values_of(optimizer), ops.array([float("inf")]))
    assert plain(state) == plain(optimizer.read_state(values))
    assert (float(state.loss_scale), bool(state.last_step_applied)) == (4.0, False)
    _, _, state = step(weights, values, ops.array([1.0]))
    assert (float(state.loss_scale), int(state.skipped_steps)) == (4.0, 1)
    assert bool(state.last_step_applied)
    assert float(optimizer.loss_scale) == 8.0
