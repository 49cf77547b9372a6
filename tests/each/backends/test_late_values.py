"""`late_values`: the values that Keras would have made, but for those that a file holds."""

import random
import threading

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp.backends import keras_hooks
from keras_mp.backends.common import late_values as module
from keras_mp.backends.common.late_values import late_values, scope_for

HOOK = "_initialize_with_initializer"
KINDS = {
    kind
    for kind in vars(keras.initializers).values()
    if isinstance(kind, type) and "__call__" in vars(kind)
}


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

    for kind in KINDS:
        monkeypatch.setattr(kind, "__call__", counted(kind))
    return found


class Own(keras.initializers.Initializer):
    """It counts its calls."""

    calls = 0

    def __call__(self, shape, dtype=None):
        Own.calls += 1
        return ops.full(shape, float(Own.calls), dtype)


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
    model = keras.Model(inputs, layers.Dense(2, dtype=policy)(x))
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
    assert computed[:there] == ["RandomNormal"], "its seed counts the calls"
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


@pytest.mark.parametrize("layer", [keras.layers.LSTM, keras.layers.ConvLSTM1D])
def test_biases_of_gates_wait_too(layer, computed):
    """A function of Keras makes them, of zeros and of ones for the gate that forgets."""
    options = {} if layer is keras.layers.LSTM else {"kernel_size": 2}
    keras.utils.set_random_seed(1)
    plain = layer(2, **options)
    shape = (None, 3, 4) if layer is keras.layers.LSTM else (None, 3, 5, 4)
    plain.build(shape)
    keras.utils.set_random_seed(1)
    computed.clear()
    with late_values():
        late = layer(2, **options)
        late.build(shape)
        assert computed == []
    for one, other in zip(plain.get_weights(), late.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_value_that_stands_in_for_another():
    with late_values():
        variable = keras.Variable("ones", shape=(2,), dtype="bfloat16")
        with keras_hooks.holding(variable, ops.full((2,), 0.1)):
            assert ops.convert_to_numpy(variable).tolist() == [np.float32(0.1)] * 2
    assert ops.convert_to_numpy(ops.cast(variable, "float32")).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("names", "config", "is_late"),
    [
        ([], {"class_name": "Dense"}, True),
        (["Mine"], {"class_name": "Dense"}, True),
        (["Mine"], [{"class_name": "Mine"}], False),
        (["Mine"], {"config": {"activation": "Mine"}}, False),
        (["pack>Mine"], {"class_name": "Mine"}, False),
        (["pack>Mine"], {"registered_name": "pack>Mine"}, False),
        ([], {"module": "keras_hub.src.layers", "class_name": "Other"}, False),
        (["keras_mp>Mine"], {"registered_name": "keras_mp>Mine"}, True),
    ],
)
def test_only_without_classes_of_the_program(names, config, is_late):
    """These may read a weight while they are built."""
    with scope_for(config, dict.fromkeys(names)):
        assert (HOOK in vars(keras.Variable)) == is_late


def test_classes_that_are_registered_count():
    class Registered(keras.layers.Layer):
        pass

    keras.saving.register_keras_serializable("late_values")(Registered)
    with scope_for({"class_name": "late_values>Registered"}, {}):
        assert HOOK not in vars(keras.Variable)


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
    assert computed == ["Ones", "Zeros"]


def test_a_scope_in_a_scope_is_the_same():
    with late_values():
        with late_values():
            variable = keras.Variable("ones", shape=(2,))
        assert variable.numpy().tolist() == [0.0, 0.0]
        assert HOOK in vars(keras.Variable)
    assert variable.numpy().tolist() == [1.0, 1.0]
    assert HOOK not in vars(keras.Variable)


def test_other_threads_are_as_before():
    made = []

    def work():
        made.append(keras.Variable("ones", shape=(2,)))

    with late_values():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert made[0].numpy().tolist() == [1.0, 1.0]


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
        assert computed == ["Ones"]
        assert variable.numpy().tolist() == [1.0, 1.0]


def test_a_keras_without_the_hook_loads_as_before(monkeypatch, computed):
    monkeypatch.setattr(module, "_INITIALIZE", "not_there")
    with late_values():
        assert keras.Variable("ones", shape=(2,)).numpy().tolist() == [1.0, 1.0]
    assert computed == ["Ones"]
