"""Several optimizers: a loss scale each, or one that they share."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from keras import ops

import keras_mp
from keras_mp import LossScaleOptimizer, SharedLossScale
from tests.fuzzing import examples

GOOD, BAD = 1.0, float("inf")


def lso(**options):
    given = {"initial_scale": 64.0, "dynamic_growth_steps": 3, **options}
    return LossScaleOptimizer(keras.optimizers.SGD(0.25), **given)


class Pair:
    """Two optimizers with a variable each."""

    def __init__(self, **options):
        self.optimizers = lso(**options), lso(**options)
        self.variables = keras.Variable([1.0]), keras.Variable([1.0])
        for optimizer, variable in zip(self.optimizers, self.variables, strict=True):
            optimizer.build([variable])

    def step(self, i, gradient):
        pair = (ops.array([gradient]), self.variables[i])
        self.optimizers[i].apply_gradients([pair], gradients_scaled=True)

    def scales(self):
        return [float(o.loss_scale) for o in self.optimizers]

    def counters(self):
        return [int(o.dynamic_counter) for o in self.optimizers]


def test_each_has_its_own():
    pair = Pair()
    for first, second in ((GOOD, BAD), (GOOD, BAD), (GOOD, GOOD)):
        pair.step(0, first)
        pair.step(1, second)
    assert pair.scales() == [128.0, 16.0]
    assert pair.counters() == [0, 1]


def by_hand(rounds, hysteresis):
    """What torch.amp.GradScaler does with several optimizers, with a floor and hysteresis."""
    scale, counter, left = 64.0, 0, hysteresis
    for steps in rounds:
        if not all(steps):
            counter = 0
            scale = max(scale / 2, 1.0) if left <= 1 else scale
            left = max(left - 1, 1)
        elif counter + 1 == 3:
            scale, counter, left = scale * 2, 0, hysteresis
        else:
            counter += 1
    return scale, counter


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12), st.integers(1, 2))
def test_one_decision_a_round(rounds, hysteresis):
    pair = Pair(hysteresis=hysteresis)
    shared = SharedLossScale(*pair.optimizers)
    assert shared.optimizers == tuple(pair.optimizers)
    for steps in rounds:
        for i, finite in enumerate(steps):
            before = pair.variables[i].numpy().tolist()
            pair.step(i, GOOD if finite else BAD)
            assert (pair.variables[i].numpy().tolist() != before) == finite
        shared.update()
    scale, counter = by_hand(rounds, hysteresis)
    assert pair.scales() == [scale, scale] == [float(shared.loss_scale)] * 2
    assert pair.counters() == [counter, counter]
    iterations = [int(o.iterations) for o in pair.optimizers]
    assert iterations == [len(rounds)] * 2  # skipped ones count, as without sharing


def test_no_scale_changes_within_a_round():
    """So that a loss may be scaled before another optimizer steps."""
    pair = Pair()
    SharedLossScale(*pair.optimizers)
    pair.step(0, BAD)
    assert pair.scales() == [64.0, 64.0]


def test_several_steps_of_one_in_a_round():
    """A critic that steps more often: one bad step is enough."""
    pair = Pair()
    shared = SharedLossScale(*pair.optimizers)
    pair.step(0, GOOD)
    for gradient in (GOOD, BAD, GOOD):
        pair.step(1, gradient)
    shared.update()
    assert pair.scales() == [32.0, 32.0]
    shared.update()
    assert pair.counters() == [1, 1]  # the round before is forgotten


@pytest.mark.parametrize("stateless", [False, True])
def test_one_loss_for_all(stateless):
    pair = Pair()
    shared = SharedLossScale(*pair.optimizers)
    if stateless:
        state = [v.value for v in pair.optimizers[0].variables]
        factor = float(shared.stateless_scale_loss(state, ops.array(1.0)))
    else:
        factor = float(shared.scale_loss(ops.array(1.0)))
    for i in range(2):
        gradient = ops.array([factor])
        pair.optimizers[i].apply([gradient], [pair.variables[i]])  # warns, unless it was told
    assert [float(v.numpy()[0]) for v in pair.variables] == [0.75, 0.75]


def test_they_start_with_the_scale_of_the_first():
    pair = Pair()
    pair.step(0, BAD)
    SharedLossScale(*pair.optimizers)
    assert pair.scales() == [32.0, 32.0]


def test_what_is_restored_into_one_goes_to_all():
    pair, other = Pair(), Pair()
    for _ in range(2):
        other.step(1, BAD)
    other.step(1, GOOD)
    SharedLossScale(*pair.optimizers)
    pair.optimizers[1].set_weights(other.optimizers[1].get_weights())
    assert pair.scales() == [16.0, 16.0]
    assert pair.counters() == [1, 1]


def test_hysteresis_that_is_restored_into_one_goes_to_all():
    pair = Pair(hysteresis=3)
    SharedLossScale(*pair.optimizers)
    pair.optimizers[1].extra_state.load_own_variables({"hysteresis_left": np.int32(2)})
    assert [int(o.hysteresis_left) for o in pair.optimizers] == [2, 2]


@pytest.mark.parametrize("member", [0, 1])
def test_growth_steps_that_are_set_on_one_are_set_on_all(member):
    pair = Pair()
    shared = SharedLossScale(*pair.optimizers)
    pair.optimizers[member].dynamic_growth_steps = 1
    assert [o.dynamic_growth_steps for o in pair.optimizers] == [1, 1]
    for i in range(2):
        pair.step(i, GOOD)
    shared.update()
    assert pair.scales() == [128.0, 128.0]
    with pytest.raises(ValueError, match="at least 1"):
        pair.optimizers[member].dynamic_growth_steps = 0
    assert [o.dynamic_growth_steps for o in pair.optimizers] == [1, 1]


def test_growth_steps_may_be_set_while_the_state_is_on_loan(make_model, data):
    """In a callback of `fit`, where JAX has the variables."""
    first, second = lso(), lso()
    SharedLossScale(first, second)
    set_it = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: setattr(second, "dynamic_growth_steps", 7)
    )
    model = make_model()
    model.compile(first, "mse")
    model.fit(data[0][:8], data[1][:8], verbose=0, callbacks=[set_it])
    assert first.dynamic_growth_steps == 7


def test_a_scale_state_that_is_applied_to_one_goes_to_all():
    pair = Pair()
    SharedLossScale(*pair.optimizers)
    other = lso()
    other.dynamic_scale.assign(8.0)
    other.step_counter.assign(2)
    keras_mp.compat.scale_state(other).apply(pair.optimizers[1])
    assert pair.scales() == [8.0, 8.0]
    assert pair.counters() == [2, 2]


def test_they_may_be_watched_differently():
    SharedLossScale(lso(diagnose=True), lso(max_consecutive_skips=3))


def test_saved_in_the_middle_of_a_round(make_model, data, tmp_path):
    def made():
        model = make_model()
        model.compile(lso(), "mse")
        other = lso()
        other.build([keras.Variable([1.0])])
        return model, SharedLossScale(model.optimizer, other), other

    model, shared, _ = made()
    model.train_on_batch(data[0][:8], data[1][:8] * np.inf)
    model.save_weights(tmp_path / "model.weights.h5")
    model, shared, other = made()
    model.optimizer.build(model.trainable_variables)
    model.load_weights(tmp_path / "model.weights.h5")
    shared.update()
    assert float(model.optimizer.loss_scale) == float(other.loss_scale) == 32.0


REFUSED = {
    "one": (lambda: [lso()], ValueError, "two or more different optimizers, but got 1"),
    "twice": (lambda: [lso()] * 2, ValueError, "one of them twice"),
    "plain": (
        lambda: [lso(), keras.optimizers.SGD()],
        TypeError,
        "got keras.optimizers.SGD: wrap it",
    ),
    "that of Keras": (
        lambda: [lso(), keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())],
        TypeError,
        "got keras.optimizers.LossScaleOptimizer, which Keras puts around",
    ),
    "fixed": (
        lambda: [lso(), LossScaleOptimizer(keras.optimizers.SGD(), False, 8.0)],
        ValueError,
        "fixed loss scale",
    ),
    "other settings": (
        lambda: [lso(), lso(max_scale=2.0**20)],
        ValueError,
        "max_scale is None for the first and 1048576.0 for number 2",
    ),
}


@pytest.mark.parametrize(("make", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refuses(make, error, words):
    with pytest.raises(error, match=words):
        SharedLossScale(*make())


def test_in_one_group_only():
    first, second = lso(), lso()
    SharedLossScale(first, second)
    with pytest.raises(ValueError, match="shares its loss scale already"):
        SharedLossScale(lso(), second)


def test_compiled(backend):
    """A round as one compiled function: jax.jit, tf.function, torch.compile."""
    rounds = [(GOOD, GOOD), (BAD, GOOD), (GOOD, GOOD)]
    pair = Pair()
    shared = SharedLossScale(*pair.optimizers)

    def a_round(first, second):
        for optimizer, variable, gradient in zip(
            pair.optimizers, pair.variables, (first, second), strict=True
        ):
            optimizer.apply_gradients([(gradient, variable)], gradients_scaled=True)
        shared.update()

    if backend == "tensorflow":
        import tensorflow as tf

        a_round = tf.function(a_round)
    elif backend == "torch":
        import torch

        a_round = torch.no_grad()(torch.compile(a_round, fullgraph=True, backend="eager"))
    else:
        a_round = with_state(pair, shared)
    for first, second in rounds:
        a_round(ops.array([first]), ops.array([second]))
    assert pair.scales() == [32.0, 32.0]
    assert pair.counters() == [1, 1]


def with_state(pair, shared):
    """A round on JAX: state in, state out."""
    import jax

    for optimizer in pair.optimizers:
        optimizer.scale_loss(1.0)

    @jax.jit
    def compiled(states, values, gradients):
        new = [
            o.stateless_apply(s, [g], [v])
            for o, s, g, v in zip(pair.optimizers, states, gradients, values, strict=True)
        ]
        return shared.stateless_update([state for _, state in new]), [v[0] for v, _ in new]

    def a_round(*gradients):
        states = [[v.value for v in o.variables] for o in pair.optimizers]
        values = [v.value for v in pair.variables]
        states, values = compiled(states, values, gradients)
        for optimizer, state in zip(pair.optimizers, states, strict=True):
            for variable, value in zip(optimizer.variables, state, strict=True):
                variable.assign(value)
        for variable, value in zip(pair.variables, values, strict=True):
            variable.assign(value)

    return a_round


def test_a_gan():
    """A generator and a discriminator, a loss each, one scale: they train, and bad rounds skip."""
    keras.utils.set_random_seed(0)
    generator = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    judge = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)]
    )
    optimizers = [LossScaleOptimizer(keras.optimizers.Adam(0.01)) for _ in range(2)]
    shared = keras_mp.SharedLossScale(*optimizers)
    random = np.random.RandomState(0)

    def entropy(logits, label):
        return ops.mean(ops.softplus(-logits) if label else ops.softplus(logits))

    def a_round(real, noise):
        def of_judge():
            return entropy(judge(real), 1) + entropy(judge(generator(noise)), 0)

        optimizers[0].minimize(of_judge, judge.trainable_variables)
        optimizers[1].minimize(
            lambda: entropy(judge(generator(noise)), 1), generator.trainable_variables
        )
        shared.update()

    for i in range(12):
        real = (random.randn(16, 2) + 3).astype("float32")
        if i == 5:
            real[0] = np.nan
        a_round(real, random.randn(16, 2).astype("float32"))
    assert float(optimizers[0].loss_scale) == float(optimizers[1].loss_scale) == 2.0**14
    assert all(np.isfinite(w).all() for w in generator.get_weights() + judge.get_weights())
