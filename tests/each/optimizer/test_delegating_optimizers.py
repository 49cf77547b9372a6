"""Inner optimizers that wrap another: the other by itself is the oracle.

Plain Keras trains them on TensorFlow and PyTorch; on JAX it raises, or forgets the state inside.
"""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer
from keras_mp.backends.common.optimizers import flatten_optimizers, state_of


class Delegating(keras.optimizers.Optimizer):
    """Hands `build` and `apply` on, and calls no method of Keras for it."""

    def __init__(self, inner):
        super().__init__(learning_rate=0.1)
        self.inner = inner

    def build(self, variables):
        self.inner.build(variables)
        self.built = True

    def apply(self, grads, trainable_variables=None):
        return self.inner.apply(grads, trainable_variables)


class NotBuilt(Delegating):
    """Does not say that it is built."""

    def build(self, variables):
        self.inner.build(variables)


class Listing(Delegating):
    """Has the variables of the other among its own."""

    @property
    def variables(self):
        return self._variables + self.inner.variables


class Both(Delegating):
    """Is built for the variables, too, and has a slot for each."""

    def build(self, variables):
        super(Delegating, self).build(variables)
        self.inner.build(variables)
        self.slow = self.add_optimizer_variables(variables, "slow")


class InAList(Delegating):
    def __init__(self, inner):
        super().__init__(inner)
        self.chain = [inner]
        del self.inner

    def build(self, variables):
        self.chain[0].build(variables)
        self.built = True

    def apply(self, grads, trainable_variables=None):
        return self.chain[0].apply(grads, trainable_variables)


CLASSES = [Delegating, NotBuilt, Listing, Both, InAList]
few = pytest.mark.parametrize("cls", [Delegating, Both])
each_class = pytest.mark.parametrize("cls", CLASSES)


def adam():
    return keras.optimizers.Adam(0.01)


def lso(inner, **settings):
    return LossScaleOptimizer(inner, initial_scale=256.0, **settings)


@pytest.fixture(scope="module")
def expected(fit, with_nan, weights):
    return weights(fit(adam(), *with_nan[1]))


@each_class
def test_it_trains_as_the_one_inside(cls, fit, with_nan, weights, expected):
    inner = cls(adam())
    if cls is NotBuilt:
        inner = Delegating(inner)  # two around one
    model = fit(lso(inner, count_skipped_steps=False), *with_nan[0])
    np.testing.assert_allclose(weights(model), expected, rtol=1e-5)
    [inside] = [
        each
        for each in flatten_optimizers(model.optimizer.inner_optimizer)
        if isinstance(each, keras.optimizers.Adam)
    ]
    assert int(inside.iterations) == 7
    assert float(model.optimizer.loss_scale) == 128.0


@few
def test_a_skipped_step_is_counted_where_steps_are(cls, fit, with_nan):
    """As for one that is not wrapped; what counts no steps counts no skipped ones."""
    model = fit(lso(cls(adam())), *with_nan[0])
    outer, *_, inside = flatten_optimizers(model.optimizer.inner_optimizer)
    assert int(inside.iterations) == 8
    if cls is not Both:
        assert int(outer.iterations) == int(model.optimizer.iterations) == 0


@pytest.mark.parametrize("cls", [Delegating, Listing, Both])
def test_its_state_is_whole_and_saved_once(cls, fit, data, tmp_path, state):
    model = fit(lso(cls(adam())), *data)
    ids = list(map(id, model.optimizer.variables))
    assert len(ids) == len(set(ids))
    inside = flatten_optimizers(model.optimizer.inner_optimizer)[-1]
    assert set(map(id, inside.variables)) <= set(ids)
    model.save_weights(tmp_path / "a.weights.h5")
    again = fit(lso(cls(adam())), *(a[:8] for a in data))
    assert state(again.optimizer.variables) != state(model.optimizer.variables)
    again.load_weights(tmp_path / "a.weights.h5")
    assert state(again.optimizer.variables) == state(model.optimizer.variables)


def test_gradients_may_be_handed_over_by_hand():
    weight = keras.Variable([1.0])
    opt = lso(Delegating(keras.optimizers.SGD(0.5)))
    opt.apply_gradients([(ops.array([256.0]), weight)], gradients_scaled=True)
    assert weight.numpy().tolist() == [0.5]
    opt.scale_loss(1.0)
    opt.apply([ops.array([256.0])])
    assert weight.numpy().tolist() == [0.0]


def test_one_that_is_built_already():
    weight, inner = keras.Variable([1.0]), Delegating(keras.optimizers.SGD(0.5))
    inner.build([weight])
    opt = lso(inner)
    opt.apply_gradients([(ops.array([1.0]), weight)], gradients_scaled=False)
    assert weight.numpy().tolist() == [0.5]


@few
def test_one_that_is_built_for_others_is_refused(cls):
    inner = cls(adam())
    inner.build([keras.Variable([1.0]), keras.Variable([2.0])])
    with pytest.raises(ValueError, match="built for 2 other variables than these 1"):
        lso(inner).build([keras.Variable([1.0])])


@each_class
def test_a_skipped_step_changes_no_bit(cls, state):
    weight = keras.Variable([1.0, 2.0])
    opt = lso(cls(adam()), count_skipped_steps=False)
    opt.build([weight])
    pairs = [(ops.array([1.0, 2.0]), weight)]
    opt.apply_gradients(pairs, gradients_scaled=True)
    kept = [weight, *state_of(opt.inner_optimizer)]
    before = state(kept)
    opt.apply_gradients([(ops.array([1.0, float("inf")]), weight)], gradients_scaled=True)
    assert state(kept) == before


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="XLA is asked for on TensorFlow"
)
@few
def test_under_xla(cls, fit, with_nan, weights):
    bad, without = with_nan
    model = fit(lso(cls(adam()), count_skipped_steps=False), *bad, jit_compile=True)
    plain = fit(adam(), *without, jit_compile=True)
    np.testing.assert_allclose(weights(model), weights(plain), rtol=1e-5)
