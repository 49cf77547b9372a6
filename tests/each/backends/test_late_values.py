"""`late_values`: the values that Keras would have made, made only where somebody asks."""

import copy
import random
import threading

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp.backends import keras_hooks, late_values as module
from keras_mp.backends.late_values import late_values, settle

HOOK = "_initialize_with_initializer"


@pytest.fixture
def computed(monkeypatch):
    """The names of Keras' initializers that computed something, in the order in which they did."""
    found = []

    def counted(kind):
        call = kind.__call__

        def counting(self, *args, **kwargs):
            found.append(type(self).__name__)
            return call(self, *args, **kwargs)

        return counting

    for kind in (*module._PURE, keras.initializers.Identity):
        if "__call__" in vars(kind):
            monkeypatch.setattr(kind, "__call__", counted(kind))
    return found


class Own(keras.initializers.Initializer):
    """It counts its calls."""

    calls = 0

    def __call__(self, shape, dtype=None):
        Own.calls += 1
        return ops.full(shape, float(Own.calls), dtype)


class Scaled(keras.layers.Layer):
    """It reads a weight while it is built, changes another, and makes a third of what it read."""

    def build(self, shape):
        self.inside = keras.layers.Dense(3, dtype=self.dtype_policy)
        self.inside.build(shape)
        self.first = ops.convert_to_numpy(self.inside.kernel)
        self.norm = self.add_weight(
            shape=(), initializer=keras.initializers.Constant(float(np.abs(self.first).sum()))
        )
        self.raised = self.add_weight(shape=(2,), initializer="ones")
        self.raised.assign_add([1.0, 2.0])

    def call(self, x):
        return self.inside(x) * self.norm * self.raised[0]


def network(policy="float32"):
    """A model of many kinds of layers and initializers, compiled and built."""
    keras.utils.clear_session(free_memory=False)  # names are counted from the beginning
    keras.utils.set_random_seed(3)
    layers, initializers = keras.layers, keras.initializers
    words = inputs = keras.Input((5,), dtype="int32")
    x = layers.Embedding(7, 4, embeddings_initializer="uniform")(words)
    x = layers.LSTM(3, return_sequences=True)(x)
    x = layers.Bidirectional(layers.GRU(2, return_sequences=True))(x)
    x = layers.MultiHeadAttention(2, 3, dropout=0.1)(x, x)
    x = layers.Conv1D(3, 2, kernel_initializer=initializers.HeNormal(seed=7))(x)
    x = layers.BatchNormalization(gamma_initializer=initializers.Constant(2.0))(x)
    x = layers.Dropout(0.5)(x)
    x = layers.Normalization(mean=1.0, variance=4.0)(layers.Flatten()(x))
    seeds = keras.random.SeedGenerator(5)
    x = layers.Dense(4, kernel_initializer=initializers.RandomNormal(seed=seeds))(x)
    x = layers.Dense(2, kernel_initializer=Own(), bias_initializer="truncated_normal")(x)
    model = keras.Model(inputs, Scaled(dtype=policy)(x))
    model.layers[1].trainable = False
    model.compile(keras.optimizers.Adagrad(0.1, initial_accumulator_value=0.5), loss="mse")
    model.optimizer.build(model.trainable_variables)
    return model


def facts(model):
    """Returns all that is to be as without: values and their kinds, configs, random state."""
    variables = [*model.variables, *model.optimizer.variables]
    return {
        "variables": [
            (v.path, str(v.dtype), tuple(v.shape), v.trainable, ops.convert_to_numpy(v).tobytes())
            for v in variables
        ],
        "types": {type(v) for v in variables},
        "config": model.get_config(),
        "first": model.layers[-1].first.tobytes(),
        "random": (random.random(), np.random.random()),
    }


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_all_is_as_without(policy):
    Own.calls = 0
    plain = facts(network(policy))
    assert Own.calls == 1
    Own.calls = 0
    with late_values():
        late = network(policy)
    assert Own.calls == 1, "what is not of Keras is called at once, as without"
    assert facts(late) == plain
    assert plain["types"] == {keras.Variable}


def test_what_is_assigned_to_is_never_computed(computed):
    with late_values():
        model = network()
        there = len(computed)
        for variable in (*model.variables, *model.optimizer.variables):
            variable.assign(ops.ones(variable.shape, variable.dtype))
    # Scaled read two of Glorot's, one of itself and one of what it raised; seeds count theirs.
    assert computed[:there] == ["RandomNormal", "GlorotUniform", "Ones"]
    assert computed[there:] == []
    for variable in (*model.variables, *model.optimizer.variables):
        assert ops.convert_to_numpy(variable).min() == ops.convert_to_numpy(variable).max() == 1


def test_what_nobody_asks_for_is_computed_once_at_the_end(computed):
    with late_values():
        layer = keras.layers.Dense(3)
        layer.build((None, 2))
        assert computed == []
    assert computed == ["GlorotUniform"], "zeros were there from the beginning"
    again = keras.layers.Dense(3, kernel_initializer=layer.kernel_initializer)
    again.build((None, 2))
    np.testing.assert_array_equal(layer.get_weights()[0], again.get_weights()[0])


def ways(variable):
    """How a value may be asked for."""
    yield "numpy", lambda: variable.numpy()
    yield "value", lambda: ops.convert_to_numpy(variable.value)
    yield "operation", lambda: ops.convert_to_numpy(ops.add(variable, 0.0))
    yield "copy", lambda: ops.convert_to_numpy(copy.deepcopy(variable))
    yield "settle", lambda: (settle(variable), ops.convert_to_numpy(variable))[1]


@pytest.mark.parametrize("way", [name for name, _ in ways(None)])
def test_whoever_asks_gets_the_value(way):
    with late_values():
        variable = keras.Variable("ones", shape=(2,), name="one")
        assert type(variable) is not keras.Variable
        read = dict(ways(variable))[way]()
        assert type(variable) is keras.Variable
    np.testing.assert_array_equal(read, [1.0, 1.0])


def test_its_text_has_the_value():
    with late_values():
        variable = keras.Variable("ones", shape=(2,), name="one")
        assert "value=[1. 1.]" in repr(variable)


def test_a_copy_in_a_scope_of_16_bits_is_not_what_is_kept():
    class Reads(keras.layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(3, 3), initializer="glorot_uniform")

        def call(self, x):
            return ops.matmul(x, self.kernel)

    keras.utils.set_random_seed(1)
    layer = Reads(dtype="mixed_bfloat16")
    plain = layer(np.ones((1, 3), "float32"))
    keras.utils.set_random_seed(1)
    with late_values():
        late = Reads(dtype="mixed_bfloat16")
        late.build((None, 3))
        computed = late(np.ones((1, 3), "float32"))
    assert ops.convert_to_numpy(ops.cast(computed, "float32")).tolist() == (
        ops.convert_to_numpy(ops.cast(plain, "float32")).tolist()
    )
    np.testing.assert_array_equal(late.get_weights()[0], layer.get_weights()[0])


def test_a_loop_that_is_traced_gets_the_value_and_keeps_none():
    with late_values():
        variable = keras.Variable("ones", shape=(2,))
        total = ops.fori_loop(0, 3, lambda _, x: ops.add(x, variable), ops.zeros((2,)))
        np.testing.assert_array_equal(ops.convert_to_numpy(total), [3.0, 3.0])
        np.testing.assert_array_equal(variable.numpy(), [1.0, 1.0])


def test_a_stateless_scope_has_its_own_value(computed):
    with late_values():
        variable = keras.Variable("ones", shape=(2,))
        with keras.StatelessScope([(variable, ops.full((2,), 5.0))]):
            np.testing.assert_array_equal(ops.convert_to_numpy(variable), [5.0, 5.0])
        assert computed == []
    np.testing.assert_array_equal(variable.numpy(), [1.0, 1.0])


def test_a_value_that_stands_in_for_another(computed):
    with late_values():
        variable = keras.Variable("ones", shape=(2,), dtype="bfloat16")
        with keras_hooks.holding(variable, ops.full((2,), 0.1)):
            assert ops.convert_to_numpy(variable).tolist() == [np.float32(0.1)] * 2
    assert ops.convert_to_numpy(ops.cast(variable, "float32")).tolist() == [1.0, 1.0]


def test_an_error_leaves_nothing_behind(computed):
    layer = keras.layers.Dense(3, kernel_initializer="ones")

    def build_and_fail():
        with late_values():
            layer.build((None, 2))
            raise KeyError

    with pytest.raises(KeyError):
        build_and_fail()
    assert computed == [], "an error is told at once"
    assert HOOK not in vars(keras.Variable)
    plain = keras.layers.Dense(3, kernel_initializer="ones")
    plain.build((None, 2))
    assert type(plain.kernel) is keras.Variable
    assert computed == ["Ones", "Zeros"]
    np.testing.assert_array_equal(layer.kernel.numpy(), np.ones((2, 3)))


def test_a_scope_in_a_scope_is_the_same():
    with late_values():
        with late_values():
            variable = keras.Variable("ones", shape=(2,))
        assert type(variable) is not keras.Variable
        assert HOOK in vars(keras.Variable)
    assert type(variable) is keras.Variable
    assert HOOK not in vars(keras.Variable)


def test_other_threads_are_as_before():
    made = []

    def work():
        made.append(keras.Variable("ones", shape=(2,)))

    with late_values():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert type(made[0]) is keras.Variable


def test_who_hooks_in_before_stays(monkeypatch):
    seen = []
    initialize = getattr(keras.Variable, HOOK)

    def theirs(self, initializer):
        seen.append(initializer)
        initialize(self, initializer)

    monkeypatch.setattr(keras.Variable, HOOK, theirs, raising=False)
    with late_values():
        keras.Variable("ones", shape=(2,))
    assert len(seen) == 1
    assert vars(keras.Variable)[HOOK] is theirs


def test_what_has_a_layout_is_made_at_once(backend, computed):
    if backend != "jax":
        pytest.skip("keras.distribution is JAX's")
    mesh = keras.distribution.DeviceMesh((1,), ["batch"], keras.distribution.list_devices()[:1])
    parallel = keras.distribution.DataParallel(device_mesh=mesh, auto_shard_dataset=False)
    with parallel.scope(), late_values():
        variable = keras.Variable("ones", shape=(2,))
        assert type(variable) is keras.Variable
    assert computed == ["Ones"]


def test_a_keras_without_the_hook_loads_as_before(monkeypatch, computed):
    monkeypatch.setattr(module, "_HOOK", "not_there")
    with late_values():
        assert type(keras.Variable("ones", shape=(2,))) is keras.Variable
    assert computed == ["Ones"]
